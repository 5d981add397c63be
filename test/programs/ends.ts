/** Programs under `wasm-roce run`, without privileges: where they run, and when their servers listen. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { type Ended, type Running, start } from '../cli/run.js';
import { eventually } from '../kit/eventually.js';
import { ROOT } from '../repo/sources.js';

export const LIBRARY = join(ROOT, `prebuilds/linux-${process.arch}/libwasmroce.so`);
export const built = { ok: existsSync(LIBRARY), reason: 'the library for C programs is not built: npm run build' };

/** Runs a program without capabilities, but still as root: another user may not be allowed to read the project. */
export const UNPRIVILEGED = ['setpriv', '--inh-caps=-all', '--bounding-set=-all'];

/** The place of an end. */
export interface Host {
  /** The interface of its device. */
  readonly interface: string;
  /** Words that enter its network namespace. */
  readonly enter: readonly string[];
}

/** Starts a program on a host. @param options of `run` */
export function launch(host: Host, words: readonly string[], options: readonly string[] = []): Running {
  return start(['run', '--interface', host.interface, ...options, '--', ...words], {
    prefix: [...host.enter, ...UNPRIVILEGED],
  });
}

/** Returns the process of a program that was launched: the child of `wasm-roce run`. */
export const programOf = ({ pid }: Running): number =>
  Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim());

/** Whether a process listens on a TCP port of its network namespace: state 0A of /proc/net/tcp. */
export function listens(pid: number, port: number): boolean {
  const local = `:${port.toString(16).toUpperCase().padStart(4, '0')} `;
  const lines = ['tcp', 'tcp6'].flatMap((file) => readFileSync(`/proc/${pid}/net/${file}`, 'utf8').split('\n'));
  return lines.some((line) => line.includes(local) && / 0A /.test(line));
}

export async function listening({ pid }: Running, port: number): Promise<void> {
  await eventually(() => expect(listens(pid, port)).toBe(true));
}

/**
 * Runs a server of rdma_cm and its client, until the client finds the server there. Each client has a server of its
 * own: perftest's makes two connections, and a client that fails between them leaves its server in the second.
 * @returns the server, and the end of its client
 */
export async function connected(server: () => Running, client: () => Running): Promise<[Running, Ended]> {
  let pause = 0;
  return eventually(async () => {
    const serving = server();
    // nothing outside of the program shows that it listens
    pause += 250;
    await new Promise((resolve) => setTimeout(resolve, pause));
    const ended = await client().ended;
    if (ended.status !== 0) serving.child.kill('SIGKILL');
    expect(ended).toMatchObject({ status: 0 });
    return [serving, ended];
  });
}
