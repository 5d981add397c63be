// `wasm-roce pingpong` and the stock ibv_rc_pingpong, each as client and as server of the other: sizes around the packet
// boundaries, all path MTUs, both families, both links, contents checked by both.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { Output } from '../../src/cli/output.js';
import { type PingpongOptions, runClient, runServer } from '../../src/cli/pingpong/roles.js';
import type { LinkKind } from './card.js';
import type { Guest } from './guest/guest.js';
import { CARD, GUEST } from './guest/network.js';
import { FAMILIES, type Family } from './pair.js';
import { describeWithRxe, matrix } from './world.js';

const SIZES = [1, 2, 63, 64, 1023, 1024, 1025, 4096, 65_536, 2 ** 20];
const MTUS = [256, 512, 1024, 2048, 4096];
const PORT = 18515;

interface Run {
  readonly size: number;
  readonly iters: number;
  readonly mtu: number;
  readonly family: Family;
}

/** A report of ours, as `--json` prints it. */
interface Report {
  readonly ok: boolean;
  readonly role: string;
  readonly link: string;
  readonly bytes: number;
  readonly checked: number;
  readonly invalid: number;
}

/** The stock server listens on IPv4 only; the GID's index tells our client the family then. Both GID tables have the same order. */
const clientOf = (family: Family) => ({ host: GUEST.ipv4, gidIndex: FAMILIES[family].gid });
const ourAddress = (family: Family) => (family === 'IPv4' ? CARD.ipv4 : CARD.ipv6);

/** The stock tool in the guest: a server, or with `server` its client. */
function stock({ size, iters, mtu, family }: Run, server?: string): string[] {
  const options = { d: 'rxe0', g: FAMILIES[family].gid, s: size, n: iters, m: mtu, p: PORT };
  const words = Object.entries(options).flatMap(([letter, value]) => [`-${letter}`, String(value)]);
  return ['ibv_rc_pingpong', ...words, '-c', ...(server === undefined ? [] : [server])];
}

function expectStockPleased(stdout: string, { size, iters }: Run): void {
  expect(stdout).toContain(`${2 * size * iters} bytes in `);
  expect(stdout).toContain(`${iters} iters in `);
  expect(stdout).not.toContain('invalid data');
}

/** Runs the stock tool as the client of `ours`, which listens when this is called, or as the server that it connects to. */
async function withStock(guest: Guest, run: Run, weAre: 'client' | 'server', ours: () => Promise<Report>) {
  if (weAre === 'server') {
    const [report, stdout] = await Promise.all([ours(), guest.run(stock(run, ourAddress(run.family)), PATIENCE)]);
    expectStockPleased(stdout, run);
    return report;
  }
  const server = guest.spawn(stock(run));
  try {
    await guest.listening(PORT);
    const report = await ours();
    const { status, stdout } = await server.exited;
    expect(status).toBe(0);
    expectStockPleased(stdout, run);
    return report;
  } finally {
    await server.kill();
  }
}

const PATIENCE = { timeout: 60_000 };

describeWithRxe('pingpong with ibv_rc_pingpong', 9000, (world) => {
  const cells = matrix(['client', 'server'] as const).flatMap((cell) => MTUS.map((mtu) => [...cell, mtu] as const));
  describe.each(cells)('link %s, %s, we are the %s, path MTU %d', (link, family, weAre, mtu) => {
    test.each(SIZES)('%d bytes', async (size) => {
      const run: Run = { size, mtu, family, iters: size > 65_536 ? 4 : 10 };
      const report = await withStock(world.guest, run, weAre, () => inProcess(link, run, weAre));
      const bytes = 2 * size * run.iters;
      expect(report).toMatchObject({ ok: true, role: weAre, link, bytes, checked: run.iters, invalid: 0 });
    });
  });

  // the same through the command line, in a process of its own
  test.each(matrix(['client', 'server'] as const))('the command: link %s, %s, %s', async (link, family, weAre) => {
    const run: Run = { size: 5000, iters: 20, mtu: 1024, family };
    const { host, gidIndex } = clientOf(family);
    const server = weAre === 'client' ? ['-g', String(gidIndex), host] : [];
    const words = ['pingpong', '--link', link, '-s', '5000', '-n', '20', '-c', '--json', '--timeout', '18', ...server];
    if (weAre === 'client') {
      const report = await withStock(world.guest, run, weAre, async () => (await command(words)).ended);
      expect(report).toMatchObject({ ok: true, role: weAre, link, checked: 20, invalid: 0 });
    } else {
      const ours = await command([...words, '-d', CARD.interface], /waiting for a client/);
      const report = await withStock(world.guest, run, weAre, () => ours.ended);
      expect(report).toMatchObject({ ok: true, role: weAre, link, checked: 20, invalid: 0 });
    }
  });
});

/** What the command does, without the time that a process takes to start. Resolves when done; a server listens at once. */
async function inProcess(link: LinkKind, { size, iters, mtu, family }: Run, weAre: 'client' | 'server') {
  const { host, gidIndex } = clientOf(family);
  const options: PingpongOptions = {
    ...{ link, size, iters, mtu, port: PORT, interface: CARD.interface, rxDepth: 500, check: true },
    ...{ timeout: 18, retryCnt: 7, idleMs: 30_000, spinMs: 0.2, keep: false },
    ...(weAre === 'client' && { gidIndex }),
    open: { memoryBytes: 2 ** 25 + 2 * size },
  };
  const printed = new Text();
  const output = new Output(true, printed, new Text() as unknown as NodeJS.WriteStream);
  await (weAre === 'client' ? runClient(host, options, output) : runServer(options, output));
  return JSON.parse(printed.text) as Report;
}

class Text extends Writable {
  text = '';

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

/** Starts `wasm-roce` and waits until stderr says `ready`. `ended` is its JSON; it fails unless the exit status is 0. */
async function command(words: readonly string[], ready?: RegExp): Promise<{ ended: Promise<Report> }> {
  const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', 'tsx', main, ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (data: Buffer) => {
    stdout += data;
  });
  const isReady = new Promise<void>((resolve) => {
    child.stderr.on('data', (data: Buffer) => {
      stderr += data;
      if (ready?.test(stderr)) resolve();
    });
  });
  const ended = once(child, 'close').then(([status]) => {
    if (status !== 0) throw new Error(`wasm-roce ${words.join(' ')}: status ${status}\n${stdout}${stderr}`);
    return JSON.parse(stdout) as Report;
  });
  if (ready) await Promise.race([isReady, ended]);
  return { ended };
}
