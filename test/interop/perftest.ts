/** Our perftest commands and the stock programs, each as client and as server of the other. */
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { KINDS, meetsByCm, type PerftestOptions } from '../../src/cli/perftest/kinds.js';
import type { PerftestReport } from '../../src/cli/perftest/report.js';
import { runClient, runServer } from '../../src/cli/perftest/roles.js';
import type { Guest } from './guest/guest.js';
import { CARD, GUEST } from './guest/network.js';
import type { Family } from './pair.js';
import { printed } from './printed.js';
import type { World } from './world.js';

export const PORT = 18515;

export type Role = 'client' | 'server';

/**
 * A row of a stock program's table: bytes, iterations, the first of its figures. That is `inf` where the guest was too busy
 * for the program to measure its clock.
 */
export function stockRow(size: number, iters: number | RegExp): RegExp {
  return new RegExp(`^ *${size} +${typeof iters === 'number' ? iters : iters.source} +(?:\\d|inf)`, 'm');
}

/**
 * Ours and the stock program, until both have ended well.
 * @param stopMs when given, the stock program is interrupted so many milliseconds after it has connected, or if 0 once we are done
 */
export async function withStock(
  { guest }: World,
  stock: readonly string[],
  role: Role,
  family: Family,
  options: PerftestOptions,
  stopMs?: number,
): Promise<{ report: PerftestReport; stdout: string }> {
  const [here, there] = family === 'IPv4' ? [CARD.ipv4, GUEST.ipv4] : [CARD.ipv6, GUEST.ipv6];
  const { output, stdout } = printed();
  const serving = role === 'server' ? runServer(options, output) : undefined;
  const { port } = options;
  const tool = guest.spawn([...stock, '-p', String(port), ...(serving ? [here] : [])]);
  try {
    if (!serving) await guest.listening(port, meetsByCm(options) ? 'rdma' : 'tcp');
    const ours = serving ?? runClient(there, options, output);
    if (stopMs) void connected(guest).then(() => sleep(stopMs).then(() => tool.kill(SIGINT)));
    let isServed = false;
    // without a client a server would wait for ever
    if (serving)
      void tool.exited.then(
        () =>
          isServed ||
          connect(port, here)
            .on('error', () => {})
            .end(),
      );
    await ours.catch((error) => {
      throw tool.error(String(error));
    });
    isServed = true;
    const ended = stopMs === 0 ? await tool.kill(SIGINT) : await within(30_000, tool.exited);
    if (ended.status !== 0 && stopMs === undefined) throw tool.error(`status ${ended.status}`);
    return { report: JSON.parse(stdout.text) as PerftestReport, stdout: ended.stdout };
  } finally {
    await tool.kill();
  }
}

/** Waits until a queue pair of the guest is, or for some seconds. */
function connected(guest: Guest): Promise<unknown> {
  const isUp = "rdma resource show qp | grep -q 'type RC state RTS'";
  return guest.exec(`for i in $(seq 200); do ${isUp} && exit; sleep 0.05; done`, { timeout: 30_000 }).catch(() => {});
}

const SIGINT = 2;

async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  const late = sleep(ms, undefined, { ref: false }).then(() => Promise.reject(new Error(`not done within ${ms} ms`)));
  late.catch(() => {});
  return Promise.race([promise, late]);
}

export function optionsOf(name: string, changes: Partial<PerftestOptions>): PerftestOptions {
  const kind = KINDS.find((one) => one.name === name);
  if (kind === undefined) throw new Error(`there is no ${name}`);
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
    ...{ idleMs: 10_000, spinMs: 0.2, open: { memoryBytes: 2 ** 26 } },
    ...changes,
  };
}
