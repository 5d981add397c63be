/** The log of an endpoint: how many lines clients can cause. */
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Log } from '../../src/cli/endpoint/log.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function open(): { log: Log; lines(): Record<string, unknown>[] } {
  const stream = new PassThrough();
  const lines = () => {
    const text = String(stream.read() ?? '');
    return text
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  };
  return { log: new Log('json', stream), lines };
}

test('of many errors of one event a few are logged, then their number', () => {
  const { log, lines } = open();
  for (let n = 0; n < 1000; n++) log.error('refused', new Error(`${n}`), { n });
  log.error('failed', new Error('another event'));
  log.info('connected');
  expect(lines().map(({ event, n }) => [event, n])).toEqual([
    ...Array.from({ length: 20 }, (_, n) => ['refused', n]),
    ['failed', undefined],
    ['connected', undefined],
  ]);
  vi.advanceTimersByTime(10_000);
  expect(lines()).toMatchObject([{ level: 'warn', event: 'refused', suppressed: 980, seconds: 10 }]);
  log.error('refused', new Error('again'), { n: 7 });
  expect(lines()).toMatchObject([{ event: 'refused', n: 7 }]);
});

test('few errors are all logged, without a number', () => {
  const { log, lines } = open();
  for (let n = 0; n < 20; n++) log.error('refused', new Error(`${n}`));
  expect(lines()).toHaveLength(20);
  vi.advanceTimersByTime(60_000);
  expect(lines()).toEqual([]);
});
