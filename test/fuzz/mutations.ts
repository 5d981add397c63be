/** Frames for the live queue pairs of a `Target`: made up, mutated, or aimed at what the queue pairs expect. */
import { rxeFlushIcrc } from '../../src/probe/packet/icrc.js';
import { encode, type Flow, frameOf, OPCODES, Op, UC } from '../../src/probe/packet/packets.js';
import { QKEY } from '../kit/datagrams.js';
import { headerBytes } from '../kit/gsobursts.js';
import type { Random } from '../kit/random.js';
import { FROM_PEER, type Key, MTU, seal, type Target } from './target.js';

const OPCODES_KNOWN = [...OPCODES.keys()];
const RELIABLE = ['qp', OPCODES_KNOWN.filter((code) => code < UC)] as const;
/** Destination and type of a frame; listed n times is drawn n times as often. */
const KINDS = [
  ...[RELIABLE, RELIABLE, RELIABLE],
  ['unreliable', OPCODES_KNOWN.filter((code) => code >= UC && code < 2 * UC)],
  ['datagrams', OPCODES_KNOWN.filter((code) => code >> 5 === 3)],
] as const;

/** Numbers at boundaries. */
function edge(random: Random, bits: number): number {
  const all = 2 ** bits;
  return random.pick([0, 1, all - 1, all / 2, all / 2 - 1, random.below(all), random.below(Math.min(all, 256))]);
}

/** A PSN near the card's, or any. */
function drawPsn(target: Target, random: Random): number {
  const around = random.pick([target.qp.attribute('EXPECTED_PSN'), target.qp.attribute('UNACKED_PSN')]);
  return random.chance(0.85) ? (around + random.pick([0, 0, 0, 0, 1, -1, 2, -2, 8])) & 0xffffff : random.below(1 << 24);
}

/** Valid outer headers, anything within: these frames get deep into the card. */
export function crafted(target: Target, random: Random): Uint8Array {
  const [qp, opcodes] = random.pick(KINDS);
  // a tag of another VLAN, or one that gives a priority only
  const tag = random.chance(0.02) ? { vlan: edge(random, 16) } : {};
  const there: Flow = { ...FROM_PEER, ...tag, destQp: target[qp].qpn };
  const opcode = random.chance(0.95) ? random.pick(opcodes) : random.below(256);
  const headers = new Set(OPCODES.get(opcode)?.headers);
  const { open, closed, landing, invalidatable, window } = target;
  const regions: readonly Key[] = [open, open, window, window, closed, landing, invalidatable];
  const region = random.pick(regions);
  const rkey = random.chance(0.9) ? region.rkey : random.u32();
  const va = random.chance(0.9)
    ? region.iova + BigInt(random.below(region.length)) - (random.chance(0.1) ? 64n : 0n)
    : BigInt(random.u32()) * BigInt(edge(random, 32));
  const length = random.pick([0, 1, 8, 64, MTU, MTU - 1, MTU + 1, random.below(4200)]);
  const payload =
    random.chance(0.5) || headers.size === 0 ? new Uint8Array(length).fill(random.u32()) : new Uint8Array(0);
  const reth = {
    va,
    rkey,
    length: random.chance(0.7) ? payload.length : random.pick([random.below(9000), edge(random, 32)]),
  };
  const swapAdd = BigInt(random.u32());
  const packet = {
    bth: {
      opcode,
      psn: drawPsn(target, random),
      solicited: random.chance(0.5),
      ackReq: random.chance(0.5),
      migReq: random.chance(0.5),
      ...(random.chance(0.02) ? { version: random.below(16) } : {}),
      ...(random.chance(0.02) ? { pkey: edge(random, 16) } : {}),
      ...(random.chance(0.02) ? { destQp: edge(random, 24) } : {}),
      ...(random.chance(0.05) ? { pad: random.below(4) } : {}),
    },
    ...(headers.has('deth')
      ? { deth: { qkey: random.chance(0.8) ? QKEY : random.u32(), srcQp: random.below(1 << 24) } }
      : {}),
    ...(headers.has('feth')
      ? { feth: { placement: random.pick([1, 1, 1, 0, 2, 3, 9]), selectivity: random.pick([0, 0, 1, 2, 3]) } }
      : {}),
    ...(headers.has('reth') ? { reth } : {}),
    ...(headers.has('atomiceth')
      ? { atomiceth: { va: random.chance(0.8) ? va & ~7n : va, rkey, swapAdd, compare: 0n } }
      : {}),
    ...(headers.has('aeth')
      ? {
          aeth: {
            syndrome: random.pick([0x1f, 0, 0x60, 0x61, 0x62, 0x63, 0x2c, random.below(256)]),
            msn: random.below(1 << 24),
          },
        }
      : {}),
    ...(headers.has('immdt') ? { immdt: random.u32() } : {}),
    ...(headers.has('ieth') ? { ieth: rkey } : {}),
    ...(headers.has('atomicack') ? { atomicack: swapAdd } : {}),
    payload,
  };
  const changes = random.chance(0.1) ? { icrc: random.u32() } : {};
  const bytes = encode(frameOf(there, packet, changes));
  if (opcode === Op.FLUSH && random.chance(0.3))
    new DataView(bytes.buffer).setUint32(bytes.length - 4, rxeFlushIcrc(bytes.subarray(14, -4)));
  return bytes;
}

/** Replaces, cuts, inserts or duplicates a few bytes. */
export function mutate(random: Random, original: Uint8Array): Uint8Array {
  let bytes = Uint8Array.from(original);
  for (let n = random.between(1, 5); n > 0; n--) {
    const at = random.chance(0.8) ? random.below(Math.min(90, bytes.length)) : random.below(bytes.length);
    const dice = random.below(10);
    if (dice < 5) bytes[at] = random.pick([0, 0xff, 0x7f, 0x80, random.below(256)]);
    else if (dice < 8) bytes[at] = (bytes[at] as number) ^ (1 << random.below(8));
    else if (dice < 9) bytes = bytes.slice(0, Math.max(1, at));
    else bytes = Uint8Array.from([...bytes.subarray(0, at), ...random.bytes(random.below(40)), ...bytes.subarray(at)]);
  }
  if (random.chance(0.5)) seal(bytes);
  return bytes;
}

/** Addresses the live queue pair: addresses, number and PSN are those that it expects. */
export function aim(target: Target, random: Random, original: Uint8Array): Uint8Array {
  const bytes = Uint8Array.from(original);
  const view = new DataView(bytes.buffer);
  if (view.getUint16(12) !== 0x0800) return bytes;
  bytes.set([10, 0, 0, 2, 10, 0, 0, 1], 26);
  const qpn = target.qp.qpn;
  bytes.set([qpn >>> 16, (qpn >>> 8) & 255, qpn & 255], 47);
  const psn = drawPsn(target, random);
  bytes.set([psn >>> 16, (psn >>> 8) & 255, psn & 255], 51);
  if (bytes.length > 14 + 28 + 12 + 16 + 4 && random.chance(0.7)) {
    view.setBigUint64(54, target.open.iova + BigInt(random.below(target.open.length)));
    view.setUint32(62, target.open.rkey);
  }
  seal(bytes);
  return bytes;
}

/**
 * A super-packet of anything, with segments of any size.
 * @returns the frame and the options of its descriptor
 */
export function superPacket(target: Target, random: Random): { bytes: Uint8Array; options: number } {
  const frames = Array.from({ length: random.between(1, 6) }, () => crafted(target, random));
  const [first] = frames as [Uint8Array];
  const headers = headerBytes(first);
  const segment = first.length - headers;
  // most are as long as the first, or they would not be in one super-packet
  const payloads = frames.map((bytes) => bytes.subarray(headers));
  const fitted = random.chance(0.5) ? payloads.filter(({ length }) => length === segment) : payloads;
  let bytes = Uint8Array.from(Buffer.concat([first.subarray(0, headers), ...fitted]));
  if (random.chance(0.2)) bytes = Uint8Array.from(mutate(random, bytes));
  if (random.chance(0.1)) bytes = bytes.slice(0, random.between(1, bytes.length + 1));
  const size = random.chance(0.8) ? segment : random.pick([1, 15, 16, 17, 0x7fff, 1 + random.below(0x7fff)]);
  return { bytes, options: ((size << 17) | (random.chance(0.2) ? 0x10000 : 0)) >>> 0 };
}
