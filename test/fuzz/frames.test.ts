/**
 * Frames that nobody should send: mutated captures, headers with random fields, noise. Whatever arrives, the card does not
 * trap, counts each frame exactly once, writes nowhere but where a peer may, and still works afterwards.
 *   WASM_ROCE_SEED=n  another seed     WASM_ROCE_SCALE=x  x times as many frames
 * What once failed lies in corpus/ as hexadecimal text and is replayed first.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { beforeAll, expect, describe as group, test } from 'vitest';
import { QKEY } from '../kit/datagrams.js';
import { CAPTURES, roceFrames } from '../kit/fixtures.js';
import { rxeFlushIcrc } from '../kit/icrc.js';
import { encode, type Flow, frameOf, OPCODES, Op, UC } from '../kit/packets.js';
import { Random } from '../kit/random.js';
import { headerBytes } from '../kit/runs.js';
import { FROM_PEER, type Key, MTU, seal, Target } from './target.js';

const SEED = Number(process.env.WASM_ROCE_SEED ?? 7);
const SCALE = Number(process.env.WASM_ROCE_SCALE ?? 1);
const CORPUS = new URL('corpus/', import.meta.url);
const OPCODES_KNOWN = [...OPCODES.keys()];
const RELIABLE = ['qp', OPCODES_KNOWN.filter((code) => code < UC)] as const;
/** Whom a frame is for, and what it may be; as often as it stands here. */
const KINDS = [
  ...[RELIABLE, RELIABLE, RELIABLE],
  ['unreliable', OPCODES_KNOWN.filter((code) => code >= UC && code < 2 * UC)],
  ['datagrams', OPCODES_KNOWN.filter((code) => code >> 5 === 3)],
] as const;

let target: Target;
beforeAll(async () => {
  target = await Target.create();
});

/** Feeds frames made by `make`; a failure says which one, ready for the corpus. */
function fuzz(count: number, random: Random, make: (random: Random) => Uint8Array): void {
  for (let i = 0; i < count; ) {
    const frames = Array.from({ length: random.chance(0.8) ? 1 : random.between(2, 5) }, () => make(random));
    target.options = random.chance(0.1) ? 0x10000 : 0;
    try {
      target.feed(...frames);
      if (i % 8 === 0) target.tend();
      if (i % 64 === 0) target.checkGuards();
    } catch (cause) {
      const hex = frames.map((bytes) => Buffer.from(bytes).toString('hex')).join('\n');
      throw new Error(`frame ${i} with seed ${SEED}: ${(cause as Error).message}\n${hex}`, { cause });
    }
    i += frames.length;
  }
  target.options = 0;
  target.checkGuards();
  target.checkAlive();
}

/** Numbers at which things change. */
function edge(random: Random, bits: number): number {
  const all = 2 ** bits;
  return random.pick([0, 1, all - 1, all / 2, all / 2 - 1, random.below(all), random.below(Math.min(all, 256))]);
}

/** A PSN about where the card is, or anywhere. */
function drawPsn(random: Random): number {
  const around = random.pick([target.qp.attribute('EXPECTED_PSN'), target.qp.attribute('UNACKED_PSN')]);
  return random.chance(0.85) ? (around + random.pick([0, 0, 0, 0, 1, -1, 2, -2, 8])) & 0xffffff : random.below(1 << 24);
}

/** Right in the outer headers, anything within: this is what gets deep into the card. */
function crafted(random: Random): Uint8Array {
  const [qp, opcodes] = random.pick(KINDS);
  const there: Flow = { ...FROM_PEER, destQp: target[qp].qpn };
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
      psn: drawPsn(random),
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

/** A handful of bytes replaced, cut off, put in or doubled. */
function mutate(random: Random, original: Uint8Array): Uint8Array {
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

/** Aimed at the live queue pair: addresses, number and PSN are what it expects. */
function aim(random: Random, original: Uint8Array): Uint8Array {
  const bytes = Uint8Array.from(original);
  const view = new DataView(bytes.buffer);
  if (view.getUint16(12) !== 0x0800) return bytes;
  bytes.set([10, 0, 0, 2, 10, 0, 0, 1], 26);
  const qpn = target.qp.qpn;
  bytes.set([qpn >>> 16, (qpn >>> 8) & 255, qpn & 255], 47);
  const psn = drawPsn(random);
  bytes.set([psn >>> 16, (psn >>> 8) & 255, psn & 255], 51);
  if (bytes.length > 14 + 28 + 12 + 16 + 4 && random.chance(0.7)) {
    view.setBigUint64(54, target.open.iova + BigInt(random.below(target.open.length)));
    view.setUint32(62, target.open.rkey);
  }
  seal(bytes);
  return bytes;
}

group('frames that nobody should send', () => {
  const corpus = readdirSync(CORPUS).filter((file) => file.endsWith('.hex'));
  test.each(corpus)('corpus/%s', (file) => {
    const text = readFileSync(new URL(file, CORPUS), 'utf8').replace(/#.*$/gm, '');
    for (const line of text.split('\n').filter((hex) => hex.trim() !== ''))
      target.feed(Uint8Array.from(Buffer.from(line.trim(), 'hex')));
    target.checkGuards();
    target.checkAlive();
  });

  test('headers with random fields, most of them sealed with the right ICRC', () => {
    fuzz(80_000 * SCALE, new Random(SEED), crafted);
    expect(target.deaths).toBeGreaterThan(100);
  });

  test('mutated captures of real peers', () => {
    const frames = CAPTURES.flatMap((name) => roceFrames(name).slice(0, 60));
    fuzz(60_000 * SCALE, new Random(SEED + 1), (random) => mutate(random, random.pick(frames)));
  });

  test('mutated captures aimed at the live queue pair', () => {
    const frames = CAPTURES.flatMap((name) => roceFrames(name).slice(0, 60));
    fuzz(40_000 * SCALE, new Random(SEED + 2), (random) => {
      const aimed = aim(random, random.pick(frames));
      return random.chance(0.5) ? aimed : mutate(random, aimed);
    });
  });

  test('noise, and frames of every length', () => {
    fuzz(20_000 * SCALE, new Random(SEED + 3), (random) => {
      const bytes = random.bytes(random.between(1, 200));
      if (bytes.length > 60 && random.chance(0.7)) bytes.set([8, 0, 0x45], 12);
      if (bytes.length > 60 && random.chance(0.5)) {
        bytes.set([0, bytes.length - 14], 16);
        bytes.set([0x40, 0, 64, 17], 20);
        bytes.set([0x12, 0xb7, 0, bytes.length - 34], 36);
      }
      if (random.chance(0.5)) seal(bytes);
      return bytes;
    });
  });

  test('super-packets of anything, with segments of any size', () => {
    const random = new Random(SEED + 4);
    for (let i = 0; i < 4000 * SCALE; i++) {
      const frames = Array.from({ length: random.between(1, 6) }, () => crafted(random));
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
      target.options = ((size << 17) | (random.chance(0.2) ? 0x10000 : 0)) >>> 0;
      try {
        target.feed(bytes);
      } catch (cause) {
        const hex = Buffer.from(bytes).toString('hex');
        throw new Error(`${(cause as Error).message}, options ${target.options}, seed ${SEED}\n${hex}`, { cause });
      }
      if (i % 8 === 0) target.tend();
      if (i % 64 === 0) target.checkGuards();
    }
    target.options = 0;
    target.checkAlive();
  });

  test('hardly a drop counter was never reached', () => {
    const reached = target.rig.counters();
    const never = target.names.filter((name) => name.startsWith('drop_') && reached[name] === undefined);
    // RNR waits are hard to hit by chance: they need a NAK within the delay of another one
    expect(never.filter((name) => name !== 'drop_rnr_wait')).toEqual([]);
  });
});
