/**
 * Invalid frames: mutated captures, headers with random fields, noise. For every frame, the card does not trap, counts
 * it exactly once, writes only where a peer may, and still works afterwards.
 *   WASM_ROCE_SEED=n  another seed     WASM_ROCE_SCALE=x  x times as many frames
 * Frames that once failed are in corpus/ as hexadecimal text and are replayed first.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { beforeAll, expect, describe as group, test } from 'vitest';
import { CAPTURES, roceFrames } from '../kit/fixtures.js';
import { Random } from '../kit/random.js';
import { aim, crafted, mutate, superPacket } from './mutations.js';
import { seal, Target } from './target.js';

const SEED = Number(process.env.WASM_ROCE_SEED ?? 7);
const SCALE = Number(process.env.WASM_ROCE_SCALE ?? 1);
const CORPUS = new URL('corpus/', import.meta.url);
let target: Target;
beforeAll(async () => {
  target = await Target.create();
});

/** Feeds frames made by `make`; a failure names the frame, ready for the corpus. */
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

group('frames that no peer should send', () => {
  const corpus = readdirSync(CORPUS).filter((file) => file.endsWith('.hex'));
  test.each(corpus)('corpus/%s', (file) => {
    const text = readFileSync(new URL(file, CORPUS), 'utf8').replace(/#.*$/gm, '');
    for (const line of text.split('\n').filter((hex) => hex.trim() !== ''))
      target.feed(Uint8Array.from(Buffer.from(line.trim(), 'hex')));
    target.checkGuards();
    target.checkAlive();
  });

  test('headers with random fields, most of them sealed with the right ICRC', () => {
    fuzz(80_000 * SCALE, new Random(SEED), (random) => crafted(target, random));
    expect(target.deaths).toBeGreaterThan(100);
  });

  test('mutated captures of real peers', () => {
    const frames = CAPTURES.flatMap((name) => roceFrames(name).slice(0, 60));
    fuzz(60_000 * SCALE, new Random(SEED + 1), (random) => mutate(random, random.pick(frames)));
  });

  test('mutated captures aimed at the live queue pair', () => {
    const frames = CAPTURES.flatMap((name) => roceFrames(name).slice(0, 60));
    fuzz(40_000 * SCALE, new Random(SEED + 2), (random) => {
      const aimed = aim(target, random, random.pick(frames));
      return random.chance(0.5) ? aimed : mutate(random, aimed);
    });
  });

  test('random bytes, and frames of every length', () => {
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

  test('super-packets with random content and segments of any size', () => {
    const random = new Random(SEED + 4);
    for (let i = 0; i < 4000 * SCALE; i++) {
      const { bytes, options } = superPacket(target, random);
      target.options = options;
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

  test('nearly every drop counter was reached', () => {
    const reached = target.rig.counters();
    const never = target.names.filter((name) => name.startsWith('drop_') && reached[name] === undefined);
    // RNR waits are hard to hit by chance: they need a NAK within the delay of another one
    expect(never.filter((name) => name !== 'drop_rnr_wait')).toEqual([]);
  });
});
