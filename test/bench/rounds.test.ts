import { expect, test } from 'vitest';
import type { Contender } from '../../bench/contenders/contender.js';
import { NoiseMeter } from '../../bench/rig/noise.js';
import type { Rig } from '../../bench/rig/program.js';
import { measureRounds } from '../../bench/rig/rounds.js';
import type { Sample, Work } from '../../bench/work.js';

const SAMPLE: Sample = { messagesPerSecond: 1, gbps: 1, cpuPerByte: 1, cpuPerMessage: 1 };

function works(...mtus: number[]): Work[] {
  const same = { kind: 'bulk', operation: 'SEND', size: 1, qps: 1, waiting: 'spin', warmMs: 1, ms: 1 } as const;
  return mtus.map((mtu) => ({ ...same, mtu }));
}

/** A rig and contenders that log their calls. */
function stage(trouble: Partial<Record<string, (mtu: number) => void>> = {}) {
  const log: string[] = [];
  let mtu = 0;
  const rig = {
    setMtu: async (value: number) => {
      mtu = value;
      log.push(`mtu ${value}`);
    },
  } as unknown as Rig;
  const contender = (name: string): Contender => ({
    name,
    kind: 'beside',
    takes: () => true,
    begin: async () => {
      log.push(`${name} begins`);
      trouble[`${name} begins`]?.(mtu);
    },
    measure: async () => {
      log.push(name);
      trouble[name]?.(mtu);
      return SAMPLE;
    },
    end: async () => void log.push(`${name} ends`),
    stop: () => void log.push(`${name} stops`),
  });
  return { log, rig, contender };
}

const OPTIONS = { rounds: 2, onProgress: () => {}, noise: new NoiseMeter(() => 1) };

test('contenders take turns, and each round begins with another', async () => {
  const { log, rig, contender } = stage();
  const rows = await measureRounds(rig, [contender('x'), contender('y')], works(1500), OPTIONS);
  expect(log.filter((line) => /^[xy]$/.test(line))).toEqual(['x', 'y', 'y', 'x']);
  expect(log.slice(-2)).toEqual(['x stops', 'y stops']);
  expect(rows.map(({ contender: name, samples }) => [name, samples.length])).toEqual([
    ['x', 2],
    ['y', 2],
  ]);
});

test('a contender that cannot begin is skipped with the reason, once', async () => {
  const refuse = () => {
    throw new Error('no such link\nand more');
  };
  const { log, rig, contender } = stage({ 'x begins': refuse });
  const rows = await measureRounds(rig, [contender('x'), contender('y')], works(1500), OPTIONS);
  expect(rows[0]).toMatchObject({ contender: 'x', samples: [], skipped: 'no such link' });
  expect(rows[1]?.samples).toHaveLength(2);
  expect(log.filter((line) => line === 'x begins')).toHaveLength(1);
});

test('a contender that fails is started again for the next work, and not tried again', async () => {
  const fail = (mtu: number) => {
    if (mtu === 1500) throw new Error('timed out');
  };
  const { log, rig, contender } = stage({ x: fail });
  const [small, large] = await measureRounds(rig, [contender('x')], works(1500, 9000), OPTIONS);
  expect(small).toMatchObject({ samples: [], skipped: 'failed: timed out' });
  expect(large?.samples).toHaveLength(2);
  expect(log.slice(0, 6)).toEqual(['mtu 1500', 'x begins', 'x', 'x stops', 'mtu 9000', 'x begins']);
});

test('a turn in which the machine has changed is repeated once, and its samples are dropped', async () => {
  const { log, rig, contender } = stage();
  // the loops before and after: x, x again, y
  const loops = [10, 13, 10, 14, 10, 12];
  const noise = new NoiseMeter(() => loops.shift() as number);
  const rows = await measureRounds(rig, [contender('x'), contender('y')], works(1500), {
    ...OPTIONS,
    rounds: 1,
    noise,
  });
  expect(log.filter((line) => /^[xy]$/.test(line))).toEqual(['x', 'x', 'y']);
  expect(rows.map(({ samples }) => samples.length)).toEqual([1, 1]);
  expect(noise.summary).toEqual({ min: 10, max: 14, turns: 2, repeated: 1 });
});
