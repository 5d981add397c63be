// `wasm-roce pingpong` and the stock ibv_rc_pingpong, each as client and as server of the other: sizes around the packet
// boundaries, all path MTUs, both families, both links, contents checked by both.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { testIf, xdpPrivilege } from '../kit/privileges.js';
import type { LinkKind } from './card.js';
import { CARD } from './guest/network.js';
import type { Family } from './pair.js';
import { clientOf, inProcess, type Report, type Run, withStock } from './stock.js';
import { describeWithRxe, matrix } from './world.js';

const SIZES = [1, 2, 63, 64, 1023, 1024, 1025, 4096, 65_536, 2 ** 20];
const MTUS = [256, 512, 1024, 2048, 4096];

describeWithRxe('pingpong with ibv_rc_pingpong', 9000, (world) => {
  const cells = matrix(['client', 'server'] as const).flatMap((cell) => MTUS.map((mtu) => [...cell, mtu] as const));
  describe.each(cells)('link %s, %s, we are the %s, path MTU %d', (link, family, weAre, mtu) => {
    test.each(SIZES)('%d bytes', async (size) => {
      const run: Run = { transport: 'RC', size, mtu, family, iters: size > 65_536 ? 4 : 10 };
      const report = await withStock(world.guest, run, weAre, () => inProcess(link, run, weAre));
      const bytes = 2 * size * run.iters;
      expect(report).toMatchObject({ ok: true, role: weAre, link, bytes, checked: run.iters, invalid: 0 });
    });
  });

  /** The same through the command line, in a process of its own. */
  async function throughCommand(link: LinkKind, family: Family, weAre: 'client' | 'server', more: string[] = []) {
    const run: Run = { transport: 'RC', size: 5000, iters: 20, mtu: 1024, family };
    const words = ['pingpong', '--link', link, '-s', '5000', '-n', '20', '-c', '--json', '--timeout', '16', ...more];
    if (weAre === 'client') {
      const { host, gidIndex } = clientOf(family);
      const ours = async () => (await command([...words, '-g', String(gidIndex), host])).ended;
      return withStock(world.guest, run, weAre, ours);
    }
    const { ended } = await command([...words, '-d', CARD.interface], /waiting for a client/);
    return withStock(world.guest, run, weAre, () => ended);
  }

  test.each(matrix(['client', 'server'] as const))('the command: link %s, %s, %s', async (link, family, weAre) => {
    const report = await throughCommand(link, family, weAre);
    expect(report).toMatchObject({ ok: true, role: weAre, link, checked: 20, invalid: 0 });
  });

  for (const weAre of ['client', 'server'] as const)
    testIf(xdpPrivilege(), `the command: link xdp, ${weAre}`, async () => {
      const report = await throughCommand('xdp', 'IPv4', weAre);
      expect(report).toMatchObject({ ok: true, role: weAre, link: 'xdp', invalid: 0 });
    });

  test.each(['client', 'server'] as const)('the command that doubles and reorders frames: %s', async (weAre) => {
    const report = await throughCommand('packet', 'IPv4', weAre, ['--duplicate', '0.3', '--reorder', '0.2']);
    expect(report).toMatchObject({ ok: true, role: weAre, checked: 20, invalid: 0 });
    for (const fate of ['tx_duplicate', 'rx_duplicate', 'tx_reorder', 'rx_reorder'])
      expect(report.faults[fate], fate).toBeGreaterThan(0);
  });
});

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
