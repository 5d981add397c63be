/** Runs the latency tests: one message at a time. */
import { setImmediate as eventLoop, setTimeout as sleep } from 'node:timers/promises';
import { failure } from '../exit.js';
import type { Handshake } from './communication/handshake.js';
import type { PerftestContext } from './resources.js';

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
  /** All times in order, with --report-unsorted or --report-histogram. */
  readonly times?: readonly number[];
}

type Role = Handshake['role'];

/** SEND, and a SEND in return. The client begins. */
export async function runSends(ctx: PerftestContext, size: number, role: Role): Promise<LatencyReport> {
  const { iters } = ctx.options;
  const times: number[] = [];
  for (let i = 0; i < iters; i++) {
    // The send queue may hold a single message: the last one must have completed.
    await ctx.settle(role === 'server' ? i + 1 : i);
    if (ctx.received > 0) ctx.startClock();
    if (ctx.isOver) break;
    times.push(performance.now());
    ctx.post(0);
  }
  await ctx.settle(iters);
  return latencyReport(ctx, size, times, 2);
}

/** WRITE, and a WRITE in return, detected by its last byte or by its immediate data. The server begins. */
export async function runWrites(ctx: PerftestContext, size: number, role: Role): Promise<LatencyReport> {
  const { iters, immediate } = ctx.options;
  const times: number[] = [];
  for (let i = 0; i < iters; i++) {
    const expected = role === 'client' ? i + 1 : i;
    if (expected > 0) await awaitWrite(ctx, expected, immediate);
    if (expected > 0) ctx.startClock();
    await ctx.settle();
    if (ctx.isOver) break;
    times.push(performance.now());
    ctx.lastByte = (i + 1) & 0xff;
    ctx.post(0);
  }
  if (role === 'server' && !ctx.isOver) await awaitWrite(ctx, iters, immediate);
  await ctx.settle();
  return latencyReport(ctx, size, times, 2);
}

/** One READ or atomic after another, at the client alone. */
export async function runReads(ctx: PerftestContext, size: number): Promise<LatencyReport> {
  const { iters } = ctx.options;
  const times: number[] = [];
  for (let i = 0; i < iters && !ctx.isOver; i++) {
    times.push(performance.now());
    ctx.post(0);
    await ctx.settle();
    ctx.startClock();
  }
  // a message that the end of the time has cut off is not counted
  if (ctx.outstanding === 0) times.push(performance.now());
  return latencyReport(ctx, size, times, 1);
}

/** Waits for a WRITE of the peer: reads the memory between turns of the card, and sleeps when the peer takes long. */
async function awaitWrite(ctx: PerftestContext, count: number, immediate: boolean): Promise<void> {
  if (immediate) return ctx.settle(count);
  const { idleMs, spinMs } = ctx.options;
  const begin = performance.now();
  const wcs = ctx.cq.createWcs(4);
  for (;;) {
    const filled = ctx.cq.poll(wcs);
    for (const wc of wcs.slice(0, filled)) ctx.count(wc);
    if (ctx.lastByte === (count & 0xff) || ctx.isOver) return;
    const waited = performance.now() - begin;
    if (idleMs > 0 && waited > idleMs)
      throw failure(`message ${count} did not come in ${idleMs / 1000} s: the peer has stopped, or packets are lost`, {
        code: 'ETIMEDOUT',
      });
    if (waited > 20) await sleep(1);
    else if (waited > spinMs) await eventLoop();
  }
}

/** @param times when each message was posted, milliseconds; a latency is 1/n of the time between two of them */
function latencyReport({ options }: PerftestContext, size: number, times: readonly number[], n: number): LatencyReport {
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
