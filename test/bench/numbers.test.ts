import { describe, expect, test } from 'vitest';
import { cpusOf } from '../../bench/rig/cpus.js';
import { latencyOf, spread } from '../../bench/rig/stats.js';
import { sampleOf } from '../../bench/work.js';
import { WORK } from './work.js';

describe('several rounds as one', () => {
  test('the median of an even number lies between the two in the middle', () => {
    expect(spread([4, 1, 3, 2])).toEqual({ median: 2.5, min: 1, max: 4 });
    expect(spread([7])).toEqual({ median: 7, min: 7, max: 7 });
    expect(() => spread([])).toThrow(RangeError);
  });

  test('a percentile is a measured time, in microseconds', () => {
    const times = Float64Array.from({ length: 1000 }, (_, i) => (1000 - i) / 1000);
    expect(latencyOf(times)).toEqual({ count: 1000, min: 1, median: 500, p90: 900, p99: 990, p999: 999, max: 1000 });
  });
});

describe('two ends as one sample', () => {
  test('has the window of either end, and the CPU time of both over all messages', () => {
    const window = { messages: 500, seconds: 0.5, frames: 600 };
    const sample = sampleOf(WORK, [{ window, messages: 1000, cpu: 0.3 }, { cpu: 0.2 }]);
    expect(sample).toEqual({
      messagesPerSecond: 1000,
      gbps: 0.008,
      framesPerSecond: 1200,
      cpuPerByte: 500,
      cpuPerMessage: 500_000,
    });
  });

  test('no times give no sample', () => {
    expect(() => sampleOf(WORK, [{ cpu: 1 }, { cpu: 1 }])).toThrow('nothing got through');
    expect(() => sampleOf(WORK, [{ window: { messages: 0, seconds: 1 }, cpu: 1 }])).toThrow('while it was measured');
  });
});

test('each end gets CPUs of its own where there are enough, two at most', () => {
  expect(cpusOf([0])).toEqual({ a: '0', b: '0', isShared: true });
  expect(cpusOf([0, 1])).toEqual({ a: '0', b: '1', isShared: false });
  expect(cpusOf([2, 3, 6, 7, 8, 9])).toEqual({ a: '2,3', b: '6,7', isShared: false });
});
