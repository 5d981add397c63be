/**
 * Many connections with stock programs of rdma-core, at once and one after another: all of them work, and in the end neither
 * side holds more than before.
 */
import { expect, describe as group, test, vi } from 'vitest';
import { CmPort } from '../../src/cm/port.js';
import type { CmId, ConnParam } from '../../src/index.js';
import { OurDevice } from './card.js';
import { CMTIME_PORT, CmtimeLine, rounds, Step } from './cmtime.js';
import { INBOX, MESSAGE, ping } from './rping.js';
import { ADDRESSES, asked, listening, PATIENCE, resolved, type Side } from './side.js';
import { describeWithRxe, LINKS, type World } from './world.js';

/** What there is of each kind: queue pairs and connections of the card, rxe's own account. */
async function holdings({ guest }: World, { device }: OurDevice) {
  const { core } = await CmPort.of(device);
  const rxe = (await guest.run(['rdma', 'resource', 'show'])).trim();
  return { qps: device.stat().qps.length, connections: core.size, rxe };
}

/** Of the card's memory: the connection manager keeps the way to each peer. A queue pair, ring or region is more. */
const FEW_BYTES = 1024;

/** Runs `what`; afterwards both ends hold what they held before, once the last connections have left timewait. */
async function withoutLeak(world: World, our: OurDevice, what: () => Promise<void>): Promise<void> {
  const free = () => our.device.card.exports.memAvailable();
  const { core } = await CmPort.of(our.device);
  // what was before may be in timewait
  await vi.waitFor(() => expect(core.size).toBe(0), { timeout: 10_000 });
  const [before, freeBefore] = [await holdings(world, our), free()];
  await what();
  const patience = { timeout: 10_000, interval: 100 };
  await vi.waitFor(async () => expect(await holdings(world, our)).toEqual(before), patience);
  expect(freeBefore - free()).toBeLessThan(FEW_BYTES);
}

async function closeAll(sides: readonly Side[]): Promise<void> {
  for (const side of sides) await side[Symbol.asyncDispose]();
}

const times = (count: number) => Array.from({ length: count }, (_, i) => i);

/** Clients of ours, all connecting at the same time. */
async function connected(our: OurDevice, address: string, port: number, count: number, prepare = (_: Side) => {}) {
  const sides = await Promise.all(times(count).map(() => resolved(our, address, port)));
  const param: ConnParam = { responderResources: 1, initiatorDepth: 1, retryCount: 5, rnrRetryCount: 7 };
  for (const side of sides) prepare(side);
  await Promise.all(sides.map(({ id }) => id.connect(param)));
  return sides;
}

/** Servers of ours for so many clients. */
async function accepted(listener: CmId, count: number, prepare = (_: Side) => {}) {
  const sides: Side[] = [];
  const established: Promise<unknown>[] = [];
  while (sides.length < count) {
    const side = await asked(listener);
    prepare(side);
    established.push(side.id.accept());
    sides.push(side);
  }
  await Promise.all(established);
  return sides;
}

/** Both links and both families. */
const ROWS = [
  ['packet', 'IPv6'],
  ['udp', 'IPv4'],
] as const;

describeWithRxe('many connections', 1500, (world) => {
  group.each(LINKS)('cmtime, link %s', (link) => {
    const COUNT = 50;

    test('its client connects to us', async () => {
      await using our = await OurDevice.open(link);
      const { card } = ADDRESSES.IPv4;
      const listener = await listening(our, CMTIME_PORT);
      await withoutLeak(world, our, async () => {
        const { line: dialled } = await CmtimeLine.listen(card);
        const client = world.guest.run(['cmtime', '-s', card, '-c', String(COUNT)], PATIENCE);
        using line = await dialled;
        for (const count of rounds(COUNT)) {
          await line.await(Step.BEGIN);
          line.answer(Step.BEGIN);
          const sides = await accepted(listener, count);
          await line.await(Step.CONNECTED);
          line.answer(Step.CONNECTED);
          await Promise.all(sides.map((side) => side.event('DISCONNECTED')));
          await line.await(Step.DISCONNECTED);
          line.answer(Step.DISCONNECTED);
          await closeAll(sides);
        }
        expect(await client).toMatch(new RegExp(`^cm_conn +${COUNT}$`, 'm'));
      });
    });

    test('its server serves us', async () => {
      await using our = await OurDevice.open(link);
      await CmPort.of(our.device);
      const { guest } = ADDRESSES.IPv4;
      await withoutLeak(world, our, async () => {
        const server = world.guest.spawn(['cmtime', '-c', String(COUNT)]);
        await world.guest.listening(CMTIME_PORT);
        using line = await CmtimeLine.dial(guest);
        for (const count of rounds(COUNT)) {
          await line.reach(Step.BEGIN);
          const sides = await connected(our, guest, CMTIME_PORT, count);
          await line.reach(Step.CONNECTED);
          await Promise.all(sides.map(({ id }) => id.disconnect()));
          await line.reach(Step.DISCONNECTED);
          await closeAll(sides);
        }
        expect((await server.exited).status).toBe(0);
      });
    });
  });

  group.each(ROWS)('ucmatose, link %s, %s', (link, family) => {
    const [COUNT, MESSAGES, BYTES] = [50, 3, 300];
    const options = ['-c', String(COUNT), '-C', String(MESSAGES), '-S', String(BYTES)];
    const { guest, card } = ADDRESSES[family];
    const receive = (side: Side) => {
      for (const i of times(MESSAGES)) side.receive(i * 512, BYTES);
    };
    const send = (side: Side) => {
      for (const _ of times(MESSAGES)) side.send(4096, BYTES);
    };

    test('its client connects to us', async () => {
      await using our = await OurDevice.open(link);
      const listener = await listening(our, 7471);
      await withoutLeak(world, our, async () => {
        const client = world.guest.run(['ucmatose', '-s', card, ...options], PATIENCE);
        const sides = await accepted(listener, COUNT, receive);
        for (const side of sides) send(side);
        await Promise.all(sides.map((side) => side.completions(2 * MESSAGES)));
        await Promise.all(sides.map(({ id }) => id.disconnect()));
        await client;
        await closeAll(sides);
      });
    });

    test('its server serves us', async () => {
      await using our = await OurDevice.open(link);
      await CmPort.of(our.device);
      await withoutLeak(world, our, async () => {
        const server = world.guest.spawn(['ucmatose', '-b', guest, ...options]);
        await world.guest.listening(7471, 'rdma');
        const sides = await connected(our, guest, 7471, COUNT, receive);
        await Promise.all(sides.map((side) => side.completions(MESSAGES)));
        for (const side of sides) send(side);
        await Promise.all(sides.map((side) => side.event('DISCONNECTED')));
        expect((await server.exited).status).toBe(0);
        await closeAll(sides);
      });
    });
  });

  // a process for each connection takes its time in the guest: one link and family for each role
  group('a hundred in a row', () => {
    const COUNT = 100;

    test('to rping, link udp, IPv4', async () => {
      await using our = await OurDevice.open('udp');
      const { guest, any } = ADDRESSES.IPv4;
      const server = world.guest.spawn(['rping', '-s', '-P', '-a', any]);
      await world.guest.listening(7174, 'rdma');
      const once = async () => {
        await using side = await resolved(our, guest, 7174);
        side.receive(INBOX, MESSAGE);
        await side.id.connect({ responderResources: 1, initiatorDepth: 1 });
        await ping(side, 1);
        await side.id.disconnect();
      };
      // with the first one rping opens its device
      await once();
      await withoutLeak(world, our, async () => {
        for (const _ of times(COUNT)) await once();
      });
      await server.kill();
    });

    test('from rdma_client, link packet, IPv6', async () => {
      await using our = await OurDevice.open('packet');
      const listener = await listening(our, 7471);
      await withoutLeak(world, our, async () => {
        const { card } = ADDRESSES.IPv6;
        const loop = `i=0; while [ $i -lt ${COUNT} ]; do rdma_client -s ${card} || exit; i=$((i + 1)); done`;
        const clients = world.guest.run(loop, { timeout: 110_000 });
        for (const _ of times(COUNT)) {
          await using side = await asked(listener);
          side.receive(INBOX, MESSAGE);
          await side.id.accept();
          await side.completion();
          side.send(64, MESSAGE);
          await side.event('DISCONNECTED');
        }
        await clients;
      });
    });
  });
});
