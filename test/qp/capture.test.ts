/** Captures of two rxe ends, replayed with the card as the responder and as the requester. */
import { describe, expect, test } from 'vitest';
import { rxeFlushIcrc } from '../../src/probe/packet/icrc.js';
import { type Decoded, decode, encodeFrame, Op, type Packet } from '../../src/probe/packet/packets.js';
import { type Conversation, rc } from '../kit/conversation.js';
import { roceFrames } from '../kit/fixtures.js';
import type { Region, SendRequest } from '../kit/rig.js';

/**
 * The ends of the recorded programs (see their README): addresses of requester and responder, the bytes that the
 * program keeps, and where a memory window begins.
 */
const [ASKS, ANSWERS] = ['10.77.0.2', '10.77.0.3'];
const BYTES = 3000;
const WINDOW = { offset: 4096, length: 8192 };
const RIGHTS = 15 | 16 | 256;
const RXE_FLUSH_ICRC = 1;

interface Capture {
  readonly name: string;
  readonly requests: readonly Decoded[];
  readonly answers: readonly Decoded[];
  /** Key and address of the requests. */
  readonly rkey: number;
  readonly va: bigint;
}

function read(name: string): Capture {
  const packets = roceFrames(name).map(decode);
  const requests = packets.filter(({ ip }) => ip.src === ASKS);
  const { rkey, va } = requests.map(({ reth }) => reth).find((reth) => reth) as NonNullable<Packet['reth']>;
  return { name, requests, answers: packets.filter(({ ip }) => ip.src === ANSWERS), rkey, va };
}

/** The contents of a packet, without queue pairs and the M bit, which rxe leaves 0. */
function said({ bth, reth, feth, aeth, ieth, payload }: Decoded): object {
  const { opcode, psn, ackReq, solicited } = bth;
  return { opcode, psn, ackReq, solicited, reth, feth, aeth, ieth, payload: Buffer.from(payload).toString('hex') };
}

const octets = (ip: string): number[] => ip.split('.').map(Number);
const first = (packets: readonly Decoded[]): Decoded['bth'] => (packets[0] as Decoded).bth;

const NAMES = ['rxt_flush_global', 'rxt_flush_mr', 'rxt_atomic_write', 'rxt_mw'];

describe.each(NAMES.map((name) => [name, read(name)] as const))('%s', (name, capture) => {
  const isWindow = name === 'rxt_mw';
  const isFlush = name.startsWith('rxt_flush');

  /** Memory at the address of the capture, and its key. */
  function memory(c: Conversation): { region: Region; rkey: number } {
    if (!isWindow) {
      const region = c.rig.regionAt(c.target.ptr, 65536, RIGHTS, capture.va - (name === 'rxt_atomic_write' ? 64n : 0n));
      return { region, rkey: region.rkey };
    }
    const region = c.rig.regionAt(c.target.ptr, 65536, RIGHTS, capture.va - BigInt(WINDOW.offset));
    const mw = c.rig.window(2);
    const rkey = (c.rig.x.mrRkey(mw) ^ 1) >>> 0;
    const bind = { rkey, lkey: region.lkey, va: capture.va, length: WINDOW.length, access: 2 | 4 };
    c.post(0, { opcode: 'BIND_MW', bind }).silent().wc({ opcode: 'BIND_MW' });
    return { region, rkey };
  }

  test('the card answers as rxe did', async () => {
    const psn = first(capture.requests).psn;
    const c = await rc({
      ...{ receives: 1, access: RIGHTS & ~16, rqPsn: psn, destQpn: first(capture.answers).destQp },
      ...{ localIp: octets(ANSWERS), remoteIp: octets(ASKS), flow: { srcIp: ASKS, dstIp: ANSWERS, migReq: false } },
    });
    if (isFlush) c.rig.x.qpQuirks(c.qp.handle, RXE_FLUSH_ICRC);
    const { rkey } = memory(c);
    const answers: object[] = [];
    let us = 1;
    for (const { bth, reth, feth, ieth, payload } of capture.requests) {
      const { opcode, psn, ackReq, solicited } = bth;
      const packet: Packet = {
        ...{ bth: { opcode, psn, ackReq, solicited }, payload },
        ...(reth && { reth: { ...reth, rkey } }),
        ...(feth && { feth }),
        ...(ieth !== undefined && { ieth: rkey }),
      };
      const bytes = encodeFrame(c.there, packet);
      const icrc = opcode === Op.FLUSH ? { icrc: rxeFlushIcrc(bytes.subarray(14, -4)) } : {};
      c.frames(us++, encodeFrame(c.there, packet, icrc));
      for (const answer of c.take()) answers.push(said(decode(answer)));
    }
    // in the capture as in ours, the memory that is read holds what was written to it first
    expect(answers).toEqual(capture.answers.map(said));
    if (isWindow)
      c.wc({ wrId: 1, opcode: 'RECV', byteLen: 64, flags: 8, invalidatedRkey: rkey }).events('QP_ACCESS_ERR');
  });

  test('the card requests as rxe did, and takes its responses', async () => {
    const { va, rkey } = capture;
    const c = await rc({
      ...{ sqPsn: first(capture.requests).psn, destQpn: first(capture.requests).destQp, timeout: 0 },
      ...{ localIp: octets(ASKS), remoteIp: octets(ANSWERS), flow: { srcIp: ANSWERS, dstIp: ASKS } },
    });
    const payload = (opcode: number): Uint8Array =>
      (capture.requests.find(({ bth }) => bth.opcode === opcode) as Decoded).payload;
    c.buffer.bytes.set(isWindow || isFlush ? Buffer.concat(written()) : payload(Op.ATOMIC_WRITE));
    const remote = { va, rkey };
    const write: SendRequest = { wrId: 1, opcode: 'RDMA_WRITE', pieces: [c.buffer.piece(0, BYTES)], remote };
    const what = 1 | (name === 'rxt_flush_mr' ? 16 : 0);
    const all: SendRequest[] = isFlush
      ? [write, { wrId: 2, opcode: 'FLUSH', remote, flush: { length: BYTES, what } }]
      : isWindow
        ? [
            write,
            { wrId: 2, opcode: 'RDMA_READ', pieces: [c.buffer.piece(8192, BYTES)], remote },
            { wrId: 3, opcode: 'SEND_WITH_INV', pieces: [c.buffer.piece(0, 64)], imm: rkey },
            { wrId: 4, opcode: 'RDMA_WRITE', pieces: [c.buffer.piece(0, 64)], remote },
          ]
        : [{ wrId: 1, opcode: 'ATOMIC_WRITE', pieces: [c.buffer.piece(0, 8)], remote }];
    if (isFlush) c.rig.x.qpQuirks(c.qp.handle, RXE_FLUSH_ICRC);
    const asked: Uint8Array[] = [];
    c.post(0, ...all);
    asked.push(...c.take());
    expect(asked.map((bytes) => said(decode(bytes)))).toEqual(capture.requests.map(said));
    for (const bytes of asked) {
      const { bth, icrc } = decode(bytes);
      if (bth.opcode === Op.FLUSH) expect(icrc).toBe(rxeFlushIcrc(bytes.subarray(14, -4)));
    }
    capture.answers.forEach(({ bth, aeth, payload }, i) => {
      const { opcode, psn, ackReq, solicited } = bth;
      c.in(i + 1, { bth: { opcode, psn, ackReq, solicited }, payload, ...(aeth && { aeth }) }).silent();
    });
    c.wc(...all.map(({ wrId = 0 }) => ({ wrId, ...(wrId === 4 && { status: 'REM_ACCESS_ERR' }) })));
    if (isWindow) expect(c.buffer.bytes.slice(8192, 8192 + BYTES)).toEqual(c.buffer.bytes.slice(0, BYTES));
  });

  /** The message of the first three requests. */
  function written(): Uint8Array[] {
    return capture.requests.slice(0, 3).map(({ payload }) => payload);
  }
});

test('the captures contain what this file tests', () => {
  const opcodes = NAMES.flatMap((name) => read(name).requests.map(({ bth }) => bth.opcode));
  for (const opcode of [Op.FLUSH, Op.ATOMIC_WRITE, Op.SEND_ONLY_WITH_INVALIDATE]) expect(opcodes).toContain(opcode);
});
