// `wasm-roce pingpong` and the stock ibv_rc_pingpong, each as client and as server of the other: sizes around the
// packet boundaries, all path MTUs, both families, both links. Both ends check the contents.
import { describe, expect, test } from 'vitest';
import { type Running, start } from '../cli/run.js';
import { testIf, xdpPrivilege } from '../kit/privileges.js';
import type { LinkKind } from './card.js';
import { corners, describeWithRxe, matrix } from './environment.js';
import { CARD } from './guest/network.js';
import type { Family } from './pair.js';
import { clientOf, inProcess, type Report, type Run, withStock } from './stock-pingpong.js';

const SIZES = [1, 2, 63, 64, 1023, 1024, 1025, 4096, 65_536, 2 ** 20];
const MTUS = [256, 512, 1024, 2048, 4096];

/**
 * Returns the sizes for a path MTU: all of them over the packet link and IPv4. The other links and families change
 * headers, not how a message is cut into packets: each of them has every size and every path MTU. The corners have all
 * sizes over the packet link with one path MTU.
 */
function sizesFor(link: LinkKind, family: Family, mtu: number): number[] {
  const isCorner = (i: number) => i % MTUS.length === MTUS.indexOf(mtu);
  if (link === 'packet' && family === 'IPv4') return corners(SIZES, (_, i) => mtu === 1024 || isCorner(i));
  return SIZES.filter((_, i) => isCorner(i));
}

describeWithRxe('pingpong with ibv_rc_pingpong', 9000, (environment) => {
  const cells = matrix(['client', 'server'] as const).flatMap((cell) => MTUS.map((mtu) => [...cell, mtu] as const));
  describe.each(cells)('link %s, %s, we are the %s, path MTU %d', (link, family, weAre, mtu) => {
    test.each(sizesFor(link, family, mtu))('%d bytes', async (size) => {
      const run: Run = { transport: 'RC', size, mtu, family, iters: size > 65_536 ? 4 : 10 };
      const report = await withStock(environment.guest, run, weAre, () => inProcess(link, run, weAre));
      const bytes = 2 * size * run.iters;
      expect(report).toMatchObject({ ok: true, role: weAre, link, bytes, checked: run.iters, invalid: 0 });
    });
  });

  async function reported(command: Running): Promise<Report> {
    const { status, stdout, stderr } = await command.ended;
    expect({ status, stderr: status === 0 ? '' : stderr }).toEqual({ status: 0, stderr: '' });
    return JSON.parse(stdout);
  }

  /** Runs a pingpong by the command line, in a process of its own. */
  async function throughCommand(link: LinkKind, family: Family, weAre: 'client' | 'server', more: string[] = []) {
    const run: Run = { transport: 'RC', size: 5000, iters: 20, mtu: 1024, family };
    const words = ['pingpong', '--link', link, '-s', '5000', '-n', '20', '-c', '--json', '--timeout', '16', ...more];
    if (weAre === 'client') {
      const { host, gidIndex } = clientOf(family);
      const ours = () => reported(start([...words, '-g', String(gidIndex), host]));
      return withStock(environment.guest, run, weAre, ours);
    }
    const server = start([...words, '-d', CARD.interface]);
    await server.says('waiting for a client');
    return withStock(environment.guest, run, weAre, () => reported(server));
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
