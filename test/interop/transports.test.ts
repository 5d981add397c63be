// `wasm-roce uc-pingpong`, `ud-pingpong` and `srq-pingpong` with the stock programs, each as client and as server of
// the other, and the behaviour of our end when the stock program exits and its last ACK is lost.
import { describe, expect, test } from 'vitest';
import { corners, describeWithRxe, matrix } from './environment.js';
import { inProcess, type Run, withStock } from './stock-pingpong.js';

const SIZES = {
  UC: [1, 64, 1023, 1024, 1025, 65_536],
  UD: [1, 63, 1024, 4096],
  SRQ: [1, 1024, 1025, 65_536],
} as const;
const ITERS = 40;

describeWithRxe('the other stock pingpongs', 9000, (environment) => {
  const cells = matrix(['client', 'server'] as const);
  for (const transport of ['UC', 'UD', 'SRQ'] as const)
    describe.each(cells)(`${transport}: link %s, %s, we are the %s`, (link, family, weAre) => {
      test.each(corners<number>(SIZES[transport], (_, i) => i % 2 === (weAre === 'client' ? 0 : 1)))(
        '%d bytes',
        async (size) => {
          const run: Run = { transport, size, family, mtu: 1024, iters: ITERS };
          const report = await withStock(environment.guest, run, weAre, () => inProcess(link, run, weAre));
          const bytes = 2 * size * ITERS;
          expect(report).toMatchObject({ ok: true, role: weAre, link, transport, bytes, invalid: 0 });
          expect(report.checked).toBeGreaterThanOrEqual(ITERS);
        },
      );
    });

  test.each([256, 512, 2048, 4096])('UC with path MTU %d', async (mtu) => {
    const run: Run = { transport: 'UC', size: 10_001, family: 'IPv4', mtu, iters: ITERS };
    for (const weAre of ['client', 'server'] as const)
      expect(await withStock(environment.guest, run, weAre, () => inProcess('packet', run, weAre))).toMatchObject({
        ok: true,
      });
  });

  test.each([1, 2, 64])('SRQ with %d queue pairs', async (qps) => {
    const run: Run = { transport: 'SRQ', size: 2000, family: 'IPv4', mtu: 1024, iters: 2 * qps + 5, qps };
    for (const weAre of ['client', 'server'] as const)
      expect(await withStock(environment.guest, run, weAre, () => inProcess('packet', run, weAre))).toMatchObject({
        ...{ ok: true, queuePairs: qps },
      });
  });

  // The stock program exits after its last message, and does not send a lost ACK again.
  describe.each(['client', 'server'] as const)(
    'the network loses 5 %% of what we send and receive, we are the %s',
    (weAre) => {
      test.each([
        ['RC', 1],
        ['RC', 2],
        ['RC', 3],
        ['SRQ', 1],
        ['SRQ', 2],
      ] as const)('%s, seed %d', async (transport, seed) => {
        const attempt = async (faultSeed: number) => {
          const faults = { seed: faultSeed, both: { drop: 0.05 } };
          const run: Run = {
            transport,
            size: 3000,
            family: 'IPv4',
            mtu: 1024,
            iters: 15,
            timeout: 14,
            idleMs: 8000,
            faults,
          };
          const report = await withStock(environment.guest, run, weAre, () => inProcess('packet', run, weAre));
          expect(report).toMatchObject({ ok: true, invalid: 0 });
        };
        try {
          await attempt(seed);
        } catch (error) {
          // rxe 6.12 stops for good when an ACK arrives in the middle of a message that it retransmits, and the next
          // ACK is lost: its queue pair has sent everything, none of its timers runs, and its program continues to poll
          if (!String(error).includes('nothing from the peer for 8 s')) throw error;
          await attempt(seed + 100);
        }
      });
    },
  );

  test('UC under loss ends with an error that says so', async () => {
    const faults = { seed: 1, rx: { drop: 1 } };
    const run: Run = { transport: 'UC', size: 3000, family: 'IPv4', mtu: 1024, iters: ITERS, idleMs: 500, faults };
    await expect(withStock(environment.guest, run, 'client', () => inProcess('packet', run, 'client'))).rejects.toThrow(
      /nothing from the peer for 0.5 s: it has stopped, or packets are lost/,
    );
  });
});
