/** Runs of the tests of latency: one message at a time. */
import { setImmediate as eventLoop, setTimeout as sleep } from 'node:timers/promises';
import { failure } from '../exit.js';
import type { End } from './end.js';
import type { Exchange } from './handshake.js';

/** Microseconds. */
export interface LatencyReport {
  readonly size: number;
  readonly iters: number;
  readonly min: number;
  readonly max: number;
  /** Median. */
  readonly typical: number;
  readonly average: number;
  readonly stdev: number;
  readonly p99: number;
  readonly p999: number;
  /** All of them, as they came, when they are asked for. */
  readonly times?: readonly number[];
}

type Role = Exchange['role'];

/** SEND there and back; the client begins. */
export async function runSends(end: End, size: number, role: Role): Promise<LatencyReport> {
  const { iters } = end.options;
  const times: number[] = [];
  for (let i = 0; i < iters; i++) {
    // The queue holds one message at least: the last one must have gone.
    await end.settle(role === 'server' ? i + 1 : i);
    if (end.received > 0) end.startClock();
    if (end.isOver) break;
    times.push(performance.now());
    end.post(0);
  }
  await end.settle(iters);
  return latencyReport(end, size, times, 2);
}

/** WRITE there and back, known by its last byte, or by its receive when it has an immediate; the server begins. */
export async function runWrites(end: End, size: number, role: Role): Promise<LatencyReport> {
  const { iters, immediate } = end.options;
  const times: number[] = [];
  for (let i = 0; i < iters; i++) {
    const expected = role === 'client' ? i + 1 : i;
    if (expected > 0) await arrival(end, expected, immediate);
    if (expected > 0) end.startClock();
    await end.settle();
    if (end.isOver) break;
    times.push(performance.now());
    end.mark = (i + 1) & 0xff;
    end.post(0);
  }
  if (role === 'server' && !end.isOver) await arrival(end, iters, immediate);
  await end.settle();
  return latencyReport(end, size, times, 2);
}

/** READ after READ, or one atomic after the other; the client alone. */
export async function runReads(end: End, size: number): Promise<LatencyReport> {
  const { iters } = end.options;
  const times: number[] = [];
  for (let i = 0; i < iters && !end.isOver; i++) {
    times.push(performance.now());
    end.post(0);
    await end.settle();
    end.startClock();
  }
  // of one that time has cut off nothing is known
  if (end.outstanding === 0) times.push(performance.now());
  return latencyReport(end, size, times, 1);
}

/** The memory is looked at between the card's turns; a peer that takes long is waited for asleep. */
async function arrival(end: End, count: number, immediate: boolean): Promise<void> {
  if (immediate) return end.settle(count);
  const { idleMs, spinMs } = end.options;
  const begin = performance.now();
  const wcs = end.cq.createWcs(4);
  for (;;) {
    const filled = end.cq.poll(wcs);
    for (const wc of wcs.slice(0, filled)) end.count(wc);
    if (end.mark === (count & 0xff) || end.isOver) return;
    const waited = performance.now() - begin;
    if (idleMs > 0 && waited > idleMs)
      throw failure(`message ${count} has not come in ${idleMs / 1000} s: the peer has stopped, or packets are lost`);
    if (waited > 20) await sleep(1);
    else if (waited > spinMs) await eventLoop();
  }
}

/** @param times when each message was posted, milliseconds; a latency is the n-th part of the time from one to the next */
function latencyReport({ options }: End, size: number, times: readonly number[], n: number): LatencyReport {
  const all = new Float64Array(Math.max(1, times.length - 1));
  for (let i = 0; i + 1 < times.length; i++) all[i] = (((times[i + 1] as number) - (times[i] as number)) * 1000) / n;
  const listed = options.unsorted || options.histogram ? { times: [...all] } : {};
  all.sort();
  const at = (part: number) => all[Math.max(0, Math.ceil(part * all.length) - 1)] as number;
  const average = all.reduce((sum, time) => sum + time, 0) / all.length;
  const variance = all.reduce((sum, time) => sum + (time - average) ** 2, 0) / all.length;
  return {
    size,
    iters: n === 1 ? times.length - 1 : times.length,
    min: at(0),
    max: at(1),
    typical: at(0.5),
    average,
    stdev: Math.sqrt(variance),
    p99: at(0.99),
    p999: at(0.999),
    ...listed,
  };
}
