// Discovery by a probe on a host with rxe, and the traces that it leaves there.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { discover } from '../../src/cli/probe/discovery.js';
import { candidatesOf } from '../../src/cli/probe/services.js';
import { type Device, openDevice } from '../../src/index.js';
import { PacketLink } from '../../src/link/packet.js';
import { describeWithRxe } from './environment.js';
import { CARD, GUEST } from './guest/network.js';

describeWithRxe('discovery', 1500, (environment) => {
  let device: Device;
  beforeAll(async () => {
    device = await openDevice({ link: PacketLink.open({ interface: CARD.interface }) });
  });
  afterAll(() => device?.close({ force: true }));

  test('a server of rping is found again and again, and holds no connection', async () => {
    const { guest } = environment;
    const server = guest.spawn(['rping', '-s', '-P', '-a', '0.0.0.0']);
    await guest.listening(7174, 'rdma');
    const candidates = candidatesOf(GUEST.ipv4, 5000, 64);
    for (let i = 0; i < 3; i++) {
      const found: Record<string, string | undefined> = {};
      for await (const { candidate, why } of discover(candidates, { device, host: GUEST.ipv4, timeoutMs: 5000 }))
        found[candidate.name] = why;
      expect(found).toEqual({
        regions: expect.stringContaining('INVALID_SERVICE_ID'),
        traffic: expect.stringContaining('INVALID_SERVICE_ID'),
        perftest: expect.stringContaining('ECONNREFUSED'),
        'perftest -R': expect.stringContaining('INVALID_SERVICE_ID'),
        rping: undefined,
        ucmatose: expect.stringContaining('INVALID_SERVICE_ID'),
      });
    }
    const left = 'rdma resource show qp | grep -v "type GSI\\|type SMI"';
    await guest.run(`for i in $(seq 100); do [ -z "$(${left})" ] && exit 0; sleep 0.05; done; ${left}; exit 1`);
    server.kill();
    await server.exited;
  }, 60_000);
});
