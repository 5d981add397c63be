// `wasm-roce pingpong` and the stock ibv_rc_pingpong, each as client and as server of the other: sizes around the packet
// boundaries, all path MTUs, both families, both links, contents checked by both.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { CARD } from './guest/network.js';
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

  // the same through the command line, in a process of its own
  test.each(matrix(['client', 'server'] as const))('the command: link %s, %s, %s', async (link, family, weAre) => {
    const run: Run = { transport: 'RC', size: 5000, iters: 20, mtu: 1024, family };
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
