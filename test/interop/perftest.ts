/** Our perftest commands and the stock programs, each as client and as server of the other. */
import { setTimeout as sleep } from 'node:timers/promises';
import { communicatesByCm, KINDS, type PerftestOptions } from '../../src/cli/perftest/parameters.js';
import type { PerftestReport } from '../../src/cli/perftest/report.js';
import { runClient, runServer } from '../../src/cli/perftest/roles.js';
import { captureOutput, releaseServer, tracked } from './captured-output.js';
import { rxeCounters } from './counters.js';
import type { Environment } from './environment.js';
import type { Guest } from './guest/guest.js';
import { CARD, GUEST } from './guest/network.js';
import type { Family } from './pair.js';

export const PORT = 18515;

export type Role = 'client' | 'server';

/**
 * Returns a pattern for a row of a stock program's table: bytes, iterations, and the first figure. The figure is `inf`
 * if the guest was too busy for the program to measure its clock.
 */
export function stockRow(size: number, iters: number | RegExp): RegExp {
  return new RegExp(`^ *${size} +${typeof iters === 'number' ? iters : iters.source} +(?:\\d|inf)`, 'm');
}

/**
 * Runs our command and the stock program until both have ended successfully.
 * @param stopMs milliseconds after which the stock program, once it sends, is interrupted; 0 = once our command has
 *   ended
 */
export async function withStock(
  { guest }: Environment,
  stock: readonly string[],
  role: Role,
  family: Family,
  options: PerftestOptions,
  stopMs?: number,
): Promise<{ report: PerftestReport; stdout: string }> {
  const [here, there] = family === 'IPv4' ? [CARD.ipv4, GUEST.ipv4] : [CARD.ipv6, GUEST.ipv6];
  const { output, stdout } = captureOutput();
  const serving = role === 'server' ? tracked(runServer(options, output)) : undefined;
  const { port } = options;
  const tool = guest.spawn([...stock, '-p', String(port), ...(serving ? [here] : [])]);
  try {
    if (!serving) await guest.listening(port, communicatesByCm(options) ? 'rdma' : 'tcp');
    const ours = serving ?? tracked(runClient(there, options, output));
    if (stopMs)
      void busy(guest)
        .then(() => sleep(stopMs).then(() => tool.kill(SIGINT)))
        .catch(() => {});
    let isServed = false;
    // if the client or its guest ends early, this connection ends our server, which would wait forever
    const release = () => {
      if (!isServed) releaseServer(here, port);
    };
    if (serving) void tool.exited.then(release, release);
    await ours.catch((error) => {
      throw tool.error(String(error));
    });
    isServed = true;
    const ended = stopMs === 0 ? await tool.kill(SIGINT) : await within(100_000, tool.exited);
    if (ended.status !== 0 && stopMs === undefined) throw tool.error(`status ${ended.status}`);
    return { report: JSON.parse(stdout.text) as PerftestReport, stdout: ended.stdout };
  } finally {
    await tool.kill();
  }
}

/** Waits until rxe has sent a hundred packets more than now, at most for some seconds. */
async function busy(guest: Guest): Promise<void> {
  const sent = async () => (await rxeCounters(guest)).sent_pkts ?? 0;
  const enough = (await sent()) + 100;
  for (let tries = 0; tries < 200 && (await sent()) < enough; tries++) await sleep(50);
}

const SIGINT = 2;

async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  const late = sleep(ms, undefined, { ref: false }).then(() => Promise.reject(new Error(`not done within ${ms} ms`)));
  late.catch(() => {});
  return Promise.race([promise, late]);
}

export function optionsOf(name: string, changes: Partial<PerftestOptions>): PerftestOptions {
  const kind = KINDS.find((one) => one.name === name);
  if (kind === undefined) throw new Error(`unknown perftest command ${name}`);
  const iters = changes.iters ?? 20;
  const size = kind.verb === 'ATOMIC' ? 8 : kind.measures === 'bw' ? 2000 : 64;
  return {
    ...{
      kind,
      port: PORT,
      rdmaCm: false,
      interface: CARD.interface,
      link: 'packet',
      transport: 'RC',
      size,
      all: false,
      iters,
    },
    ...{ durationMs: 0, txDepth: kind.measures === 'bw' ? Math.min(10, iters) : 1, rxDepth: Math.min(iters, 512) },
    ...{
      qps: 1,
      postList: 1,
      trafficClass: 0,
      bidirectional: false,
      immediate: false,
      atomic: 'FETCH_AND_ADD',
      timeout: 18,
      retryCnt: 7,
      gigabits: false,
    },
    // The stock programs fill and register 16 MiB for `-a`, which takes an emulated guest seconds.
    ...{ idleMs: 100_000, spinMs: 0.2, open: { memoryBytes: 2 ** 26 } },
    ...changes,
  };
}
