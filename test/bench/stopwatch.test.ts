import { expect, describe as group, test } from 'vitest';
import type { Work } from '../../bench/work.js';
import { Stopwatch } from '../../bench/workers/stopwatch.js';
import { WORK } from './work.js';

const ENDLESS: Work = { ...WORK, size: 10, warmMs: 0, ms: 1e6 };

group('the warm-up of a run', () => {
  test('lasts until its bytes are transferred', () => {
    const watch = new Stopwatch({ ...ENDLESS, warmBytes: 100 });
    watch.messages = 9;
    watch.tick();
    expect(watch.isMeasuring).toBe(false);
    watch.messages = 10;
    watch.tick();
    expect(watch.isMeasuring).toBe(true);
  });

  test('lasts at most a second longer for them', () => {
    const watch = new Stopwatch({ ...ENDLESS, warmBytes: 100 });
    watch.tick(performance.now() + 900);
    expect(watch.isMeasuring).toBe(false);
    watch.tick(performance.now() + 1001);
    expect(watch.isMeasuring).toBe(true);
  });

  test('lasts for its time, however much is transferred', () => {
    const watch = new Stopwatch({ ...ENDLESS, warmMs: 500, warmBytes: 100 });
    watch.messages = 1000;
    watch.tick();
    expect(watch.isMeasuring).toBe(false);
  });
});
