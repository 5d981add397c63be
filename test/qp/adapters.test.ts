/**
 * Packets that adapters send and rxe does not, as in public captures of ConnectX-4 Lx, ConnectX-5 and Huawei's Hi1822,
 * or by the kernel's drivers. The packets are made by the kit.
 */
import { describe, test } from 'vitest';
import {
  ack,
  CNP,
  decode,
  encodeFrame,
  type Flow,
  nak,
  type Packet,
  request,
  response,
} from '../../src/probe/packet/packets.js';
import { type Conversation, PING, type RcOptions, rc, send, TARGET_VA } from '../kit/conversation.js';
import type { SendRequest } from '../kit/rig.js';

/** The bits of BTH byte 4 that a Hi1822 sets in every request, and all reserved ones. */
const RESERVED: readonly Partial<Packet['bth']>[] = [{ reserved6: 0x10 }, { reserved6: 0x3f, reserved7: 0x7f }];
const AT_TARGET = (c: Conversation) => ({ va: TARGET_VA, rkey: c.target.rkey });
const remote = { va: 0x5000n, rkey: 0x77 };
const ping = (wrId: number): SendRequest => ({ wrId, opcode: 'SEND', inline: PING });
const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });
const told = (psn: number, msn: number, code: number): Packet => ack({ psn, msn, syndrome: code });
const reading = (c: Conversation, length: number): SendRequest => ({
  opcode: 'RDMA_READ',
  pieces: [c.buffer.piece(0, length)],
  remote,
});

describe('reserved bits and fields', () => {
  test.each(RESERVED)('reserved bits are ignored in requests: %o', async (bits) => {
    const c = await rc({ receives: 1 });
    const write = request.writeOnly({ psn: 101, ...AT_TARGET(c), payload: PING, bth: bits });
    const read = request.read({ psn: 102, ...AT_TARGET(c), length: 4, bth: bits });
    c.in(0, send({ psn: 100, bth: bits }), write, read)
      .out(response.readOnly({ psn: 102, msn: 3, payload: PING }))
      .wc({ wrId: 1, byteLen: 4 });
  });

  test.each(RESERVED)('reserved bits are ignored in responses: %o', async (bits) => {
    const c = await rc();
    c.post(0, { ...ping(1) }, { ...reading(c, 4), wrId: 2 })
      .out(sent(1000), request.read({ psn: 1001, ...remote, length: 4, ackReq: true }))
      .in(1, ack({ psn: 1000, msn: 1, bth: bits }), response.readOnly({ psn: 1001, msn: 2, payload: PING, bth: bits }))
      .wc({ wrId: 1 }, { wrId: 2 })
      .holds(c.buffer, 0, PING);
  });

  test('a request without AckReq gets no ACK, whatever the bits beside it', async () => {
    const c = await rc({ receives: 1 });
    c.in(0, send({ psn: 100, ackReq: false, bth: { reserved7: 0x7f } }))
      .silent()
      .wc({ wrId: 1 });
  });

  test.each<readonly [string, Partial<Flow>]>([
    ['source port 0, as of a CNP', { sport: 0 }],
    ['a queue pair number as the source port (Hi1822)', { sport: 69 }],
    ['a source port below 0xc000', { sport: 1 }],
    ['the destination port as the source port', { sport: 4791 }],
    ['identification 0 (Hi1822)', { ipId: 0 }],
    ['an identification that counts (mlx5)', { ipId: 0x718c }],
    ['the last identification', { ipId: 0xffff }],
    ['ECT(0) in every packet, ACKs too', { trafficClass: 0x02 }],
    ['ECT(1)', { trafficClass: 0x01 }],
    ['a traffic class of its own', { trafficClass: 0xc2 }],
    ['MigReq 0', { migReq: false }],
    ['hop limit 1', { hopLimit: 1 }],
  ])('%s', async (_, changes) => {
    const c = await rc({ receives: 1 });
    const there = { ...c.there, ...changes };
    c.frames(0, encodeFrame(there, send({ psn: 100 })))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .post(1, ping(2))
      .out(sent(1000))
      .frames(2, encodeFrame(there, ack({ psn: 1000, msn: 1 })))
      .wc({ wrId: 2 })
      .counts({ rcvd_pkts: 2 });
  });

  test('header fields that change from packet to packet of a connection', async () => {
    const c = await rc({ receives: 4 });
    for (let i = 0; i < 4; i++) {
      const there = { ...c.there, sport: i * 7, ipId: 0xfffe + i, trafficClass: i === 3 ? 0 : i, hopLimit: 64 - i };
      c.frames(i, encodeFrame({ ...there, ipId: there.ipId & 0xffff }, send({ psn: 100 + i })));
      c.out(ack({ psn: 100 + i, msn: i + 1 })).wc({ wrId: i + 1 });
    }
  });
});

describe('ACKs of adapters', () => {
  test('of WRITEs without credits (mlx5, with nothing posted) let further WRITEs and READs go', async () => {
    const c = await rc({ flowControl: true });
    const writing = (wrId: number): SendRequest => ({ wrId, opcode: 'RDMA_WRITE', inline: PING, remote });
    const written = (psn: number) => request.writeOnly({ psn, ...remote, payload: PING, ackReq: true });
    c.post(0, writing(1))
      .out(written(1000))
      .in(1, told(1000, 1, 0))
      .wc({ wrId: 1 })
      .post(2, writing(2), { ...reading(c, 4), wrId: 3 }, writing(4))
      .out(written(1001), request.read({ psn: 1002, ...remote, length: 4, ackReq: true }), written(1003))
      .in(3, told(1001, 2, 0), response.readOnly({ psn: 1002, msn: 3, payload: PING, syndrome: 0 }), told(1003, 4, 0))
      .wc({ wrId: 2 }, { wrId: 3 }, { wrId: 4 })
      .counts({ rc_crwaits: 0 });
  });

  test('without credits let SENDs go one at a time, and none waits for ever', async () => {
    const c = await rc({ flowControl: true, timeout: 8 });
    const WAIT = 1049;
    c.post(0, ping(1), ping(2), ping(3))
      .out(sent(1000))
      .in(1, told(1000, 1, 0))
      .silent()
      .wc({ wrId: 1 });
    c.at(1 + WAIT)
      .out(sent(1001))
      .in(2 + WAIT, told(1001, 2, 0))
      .silent()
      .wc({ wrId: 2 });
    c.at(2 + 2 * WAIT)
      .out(sent(1002))
      .in(3 + 2 * WAIT, told(1002, 3, 0))
      .wc({ wrId: 3 });
  });

  test.each([
    [5, 6],
    [6, 8],
  ])('with code %i allow %i messages (Hi1822)', async (code, messages) => {
    const c = await rc({ flowControl: true });
    c.post(0, ping(1))
      .out(sent(1000))
      .in(1, told(1000, 1, code))
      .wc({ wrId: 1 });
    for (let n = 0; n < messages + 1; n++) c.qp.send(ping(2 + n));
    c.at(2).out(...Array.from({ length: messages }, (_, n) => sent(1001 + n)));
    const all = Array.from({ length: messages }, (_, n) => ({ wrId: 2 + n }));
    c.in(3, told(1000 + messages, 1 + messages, code))
      .out(sent(1001 + messages))
      .wc(...all)
      .in(4, told(1001 + messages, 2 + messages, code))
      .wc({ wrId: messages + 2 });
  });

  test('in the middle of a message leave the MSN as it was, and bring credits (Hi1822)', async () => {
    const c = await rc({ flowControl: true, mtu: 256 });
    c.post(0, ping(1))
      .out(sent(1000))
      .in(1, told(1000, 1, 5))
      .wc({ wrId: 1 });
    const packets = request.send({ psn: 1001, payload: c.buffer.bytes.slice(0, 1000), mtu: 256 });
    c.post(2, { wrId: 2, opcode: 'SEND', pieces: [c.buffer.piece(0, 1000)] }, ping(3))
      .out(...packets, sent(1005))
      .in(3, told(1002, 1, 6), told(1004, 2, 5), told(1005, 3, 5))
      .wc({ wrId: 2 }, { wrId: 3 });
  });
});

describe('a CNP as a ConnectX-4 Lx sends it', () => {
  const cnp: Packet = {
    bth: { opcode: CNP, psn: 0, ackReq: false, solicited: false, migReq: false, becn: true },
    payload: new Uint8Array(16),
  };
  /** Its own traffic class, an identification that counts, source port 0. */
  const HABITS = { sport: 0, trafficClass: 0xc2, ipId: 0x718c };

  test('slows the queue pair down, and takes no PSN', async () => {
    const c = await rc({ receives: 1 });
    c.post(0, ping(1))
      .out(sent(1000))
      .frames(1, encodeFrame({ ...c.there, ...HABITS }, cnp))
      .counts({ rp_cnp_handled: 1, rp_cnp_ignored: 0 })
      .in(2, ack({ psn: 1000, msn: 1 }), send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 }, { wrId: 1 });
  });

  test('counts also with reserved bits, or with bytes in the reserved part', async () => {
    const c = await rc();
    c.post(0, ping(1)).out(sent(1000));
    const odd: Packet = { ...cnp, bth: { ...cnp.bth, reserved6: 0x10 }, payload: new Uint8Array(16).fill(0xff) };
    c.frames(1, encodeFrame({ ...c.there, ...HABITS }, odd)).counts({ rp_cnp_handled: 1 });
    c.in(2, ack({ psn: 1000, msn: 1 })).wc({ wrId: 1 });
  });
});

describe('RNR NAKs of an adapter with memory on demand (ODP)', () => {
  const started = async (options: RcOptions = {}): Promise<Conversation> => {
    const c = await rc({ mtu: 256, ...options });
    return c
      .post(0, { ...reading(c, 1000), wrId: 1 })
      .out(request.read({ psn: 1000, ...remote, length: 1000, ackReq: true }));
  };
  const data = Uint8Array.from({ length: 1000 }, (_, i) => i & 255);
  const answers = (from: number) =>
    response.read({ psn: 1000 + from, msn: 1, payload: data.slice(from * 256), mtu: 256 });

  test('to a READ: the READ is sent again after the delay', async () => {
    const c = await started({ rnrRetry: 1, retryCnt: 0 });
    c.in(1, nak.rnr({ psn: 1000, timer: 1 }))
      .silent()
      .at(11)
      .out(request.read({ psn: 1000, ...remote, length: 1000, ackReq: true }))
      .in(12, ...answers(0))
      .wc({ wrId: 1 })
      .holds(c.buffer, 0, data)
      .counts({ rcvd_rnr_err: 1 });
  });

  test('in the middle of a READ response: only the rest is requested again', async () => {
    const c = await started();
    c.in(1, ...answers(0).slice(0, 2), nak.rnr({ psn: 1002, timer: 1 }))
      .silent()
      .at(11)
      .out(request.read({ psn: 1002, va: remote.va + 512n, rkey: remote.rkey, length: 488, ackReq: true }))
      .in(12, ...answers(2))
      .wc({ wrId: 1 })
      .holds(c.buffer, 0, data);
  });

  test('to a WRITE and to an atomic, which need no receive, repeat them', async () => {
    const c = await rc();
    const written = request.writeOnly({ psn: 1000, ...remote, payload: PING, ackReq: true });
    const added = request.fetchAdd({ psn: 1001, ...remote, add: 5n, ackReq: true });
    const pieces = [c.buffer.piece(0, 8)];
    c.post(
      0,
      { wrId: 1, opcode: 'RDMA_WRITE', inline: PING, remote },
      { wrId: 2, opcode: 'ATOMIC_FETCH_AND_ADD', pieces, remote, compareAdd: 5n },
    )
      .out(written, added)
      .in(1, nak.rnr({ psn: 1000, timer: 1 }))
      .at(11)
      .out(written, added)
      .in(12, ack({ psn: 1000, msn: 1 }), nak.rnr({ psn: 1001, msn: 1, timer: 1 }))
      .wc({ wrId: 1 })
      .at(22)
      .out(added)
      .in(23, response.atomicAck({ psn: 1001, msn: 2, original: 7n }))
      .wc({ wrId: 2 });
  });

  test('without end, with rnr_retry 7: no retry of retry_cnt is used', async () => {
    const c = await started({ retryCnt: 0 });
    let us = 1;
    for (let i = 0; i < 10; i++) {
      // later the requester waits longer than it is asked for
      const wait = Math.max(10, (us - 1) / 4);
      c.in(us, nak.rnr({ psn: 1000, timer: 1 })).at(us + wait);
      c.out(request.read({ psn: 1000, ...remote, length: 1000, ackReq: true }));
      us += wait + 10;
    }
    c.in(us, ...answers(0)).wc({ wrId: 1 });
  });
});

test('the ICRC of these packets is that of the test kit, which leaves out what routers may change', async () => {
  const c = await rc({ receives: 1 });
  const bytes = encodeFrame(
    { ...c.there, trafficClass: 0xff, hopLimit: 3 },
    send({ psn: 100, bth: { reserved6: 0x2a } }),
  );
  // on their way: other traffic class and hop limit, the reserved bits and FECN and BECN of the BTH
  bytes[15] = 0x02;
  bytes[22] = 60;
  bytes[46] = 0xc5;
  const checksum = decode(encodeFrame({ ...c.there, trafficClass: 2, hopLimit: 60 }, send({ psn: 100 }))).ip;
  if (checksum.version === 4 && checksum.checksum !== undefined)
    new DataView(bytes.buffer).setUint16(24, checksum.checksum);
  c.frames(0, bytes)
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1 });
});
