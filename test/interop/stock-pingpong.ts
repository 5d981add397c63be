/** Our pingpong commands and the stock programs, each as client and as server of the other. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { type PingpongOptions, runClient, runServer } from '../../src/cli/pingpong/roles.js';
import { TRANSPORTS, type Transport } from '../../src/cli/pingpong/transport.js';
import type { FaultOptions } from '../../src/link/fault/options.js';
import { captureOutput, releaseServer, tracked } from './captured-output.js';
import type { LinkKind } from './card.js';
import type { Guest } from './guest/guest.js';
import { CARD, GUEST } from './guest/network.js';
import { FAMILIES, type Family } from './pair.js';

export interface Run {
  readonly transport: Transport;
  readonly size: number;
  readonly iters: number;
  /** Not for datagrams. */
  readonly mtu: number;
  readonly family: Family;
  /** Queue pairs, with a shared receive queue only. */
  readonly qps?: number;
  readonly timeout?: number;
  readonly retryCnt?: number;
  readonly idleMs?: number;
  readonly faults?: FaultOptions;
}

/** The report of our command, as `--json` prints it. */
export interface Report {
  readonly ok: boolean;
  readonly role: string;
  readonly link: string;
  readonly bytes: number;
  readonly checked: number;
  readonly invalid: number;
  readonly unacknowledged: number;
  readonly faults: Readonly<Record<string, number>>;
}

export const PORT = 18515;
const PATIENCE = { timeout: 60_000 };

/**
 * The stock server listens on IPv4 only, so the GID index selects the family for our client. Both GID tables have the
 * same order.
 */
export const clientOf = (family: Family) => ({ host: GUEST.ipv4, gidIndex: FAMILIES[family].gid });
const ourAddress = (family: Family) => (family === 'IPv4' ? CARD.ipv4 : CARD.ipv6);

/** Returns the command of the stock program in the guest: a server, or with `server` a client of it. */
function stock({ transport, size, iters, mtu, family, qps }: Run, server?: string): string[] {
  const options = {
    ...{ d: 'rxe0', g: FAMILIES[family].gid, s: size, n: iters, p: PORT },
    ...(transport !== 'UD' && { m: mtu }),
    ...(transport === 'SRQ' && qps !== undefined && { q: qps }),
  };
  const words = Object.entries(options).flatMap(([letter, value]) => [`-${letter}`, String(value)]);
  return [TRANSPORTS[transport].tool, ...words, '-c', ...(server === undefined ? [] : [server])];
}

function expectStockSuccess(stdout: string, { size, iters }: Run): void {
  expect(stdout).toContain(`${2 * size * iters} bytes in `);
  expect(stdout).toContain(`${iters} iters in `);
  expect(stdout).not.toContain('invalid data');
}

/** Runs the stock program as the client of `ours`, which already listens, or as the server that `ours` connects to. */
export async function withStock(guest: Guest, run: Run, weAre: 'client' | 'server', ours: () => Promise<Report>) {
  if (weAre === 'server') {
    const serving = ours();
    const client = guest.run(stock(run, ourAddress(run.family)), PATIENCE);
    client.catch(() => releaseServer(ourAddress(run.family), PORT));
    const [report, stdout] = await Promise.all([serving, client]);
    expectStockSuccess(stdout, run);
    return report;
  }
  await using server = guest.spawn(stock(run));
  await guest.listening(PORT);
  const report = await ours();
  // Both ends are done by now. A stock program that misses an ACK polls for it without end.
  const late = sleep(30_000, undefined, { ref: false }).then(() => {
    throw server.error('not done 30 s after our client');
  });
  const { status, stdout } = await Promise.race([server.exited, late]);
  expect(status).toBe(0);
  expectStockSuccess(stdout, run);
  return report;
}

/**
 * Runs our command in this process, which saves the start of a process. A server listens when this function returns.
 */
export async function inProcess(link: LinkKind, run: Run, weAre: 'client' | 'server'): Promise<Report> {
  const { transport, size, iters, mtu, family, qps, timeout = 18, retryCnt = 7, idleMs = 30_000, faults } = run;
  const { host, gidIndex } = clientOf(family);
  const options: PingpongOptions = {
    ...{ transport, qps: qps ?? (transport === 'SRQ' ? 16 : 1) },
    ...{ link, size, iters, mtu, port: PORT, interface: CARD.interface, rxDepth: 500, check: true },
    ...{ timeout, retryCnt, idleMs, spinMs: 0.2, keep: false },
    ...(weAre === 'client' && { gidIndex }),
    open: { memoryBytes: 2 ** 25 + 2 * size, ...(faults && { fault: faults }) },
  };
  const { output, stdout } = captureOutput();
  await tracked(weAre === 'client' ? runClient(host, options, output) : runServer(options, output));
  return JSON.parse(stdout.text) as Report;
}
