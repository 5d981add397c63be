/**
 * Many connections with stock programs of rdma-core, at once and one after another: all of them work, and afterwards
 * both ends hold the same resources as before.
 */
import { expect, describe as group, test } from 'vitest';
import { MadAgent } from '../../src/cm/madagent.js';
import type { CmId, ConnParam } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { OurDevice } from './card.js';
import { ADDRESSES, asked, type CmEnd, listening, resolved } from './cm-end.js';
import { CMTIME_PORT, CmtimeLine, connectRow, hasLine, rounds, Step } from './cmtime.js';
import { describeWithRxe, type Environment, LINKS } from './environment.js';
import { GUEST_IS } from './guest/differences.js';
import { INBOX, MESSAGE, ping } from './rping.js';

/** Returns the resources of both ends: queue pairs and connections of the card, and the list of rxe's objects. */
async function resources({ guest }: Environment, { device }: OurDevice) {
  const { core } = await MadAgent.of(device);
  const rxe = (await guest.run(['rdma', 'resource', 'show'])).trim();
  return { qps: device.stat().qps.length, connections: core.size, rxe };
}

/** Card memory that the AH cache may keep for each peer. A queue pair, ring or region is larger. */
const FEW_BYTES = 1024;

/** Runs `what`, and expects the same resources as before once the last connections have left timewait. */
async function withoutLeak(environment: Environment, our: OurDevice, what: () => Promise<void>): Promise<void> {
  const free = () => our.device.card.exports.memAvailable();
  const { core } = await MadAgent.of(our.device);
  // connections of earlier tests may be in timewait
  await eventually(() => expect(core.size).toBe(0));
  const [before, freeBefore] = [await resources(environment, our), free()];
  await what();
  await eventually(async () => expect(await resources(environment, our)).toEqual(before));
  expect(freeBefore - free()).toBeLessThan(FEW_BYTES);
}

async function closeAll(ends: readonly CmEnd[]): Promise<void> {
  for (const end of ends) await end[Symbol.asyncDispose]();
}

const times = (count: number) => Array.from({ length: count }, (_, i) => i);

/** Connects `count` clients of ours at the same time. */
async function connected(our: OurDevice, address: string, port: number, count: number, prepare = (_: CmEnd) => {}) {
  const ends = await Promise.all(times(count).map(() => resolved(our, address, port)));
  const param: ConnParam = { responderResources: 1, initiatorDepth: 1, retryCnt: 5, rnrRetry: 7 };
  for (const end of ends) prepare(end);
  await Promise.all(ends.map(({ id }) => id.connect(param)));
  return ends;
}

/** Accepts `count` clients. */
async function accepted(listener: CmId, count: number, prepare = (_: CmEnd) => {}) {
  const ends: CmEnd[] = [];
  const established: Promise<unknown>[] = [];
  while (ends.length < count) {
    const end = await asked(listener);
    prepare(end);
    established.push(end.id.accept());
    ends.push(end);
  }
  await Promise.all(established);
  return ends;
}

/** Both links and both families. */
const ROWS = [
  ['packet', 'IPv6'],
  ['udp', 'IPv4'],
] as const;

describeWithRxe('many connections', 1500, (environment) => {
  const controlled = GUEST_IS.cmtime === 'controller' ? ' [skipped: this cmtime needs a controller]' : '';
  group.skipIf(controlled).each(LINKS)(`cmtime, link %s${controlled}`, (link) => {
    const COUNT = 50;

    test('the guest’s client connects to us', async () => {
      await using our = await OurDevice.open(link);
      const { card } = ADDRESSES.IPv4;
      const listener = await listening(our, CMTIME_PORT);
      await withoutLeak(environment, our, async () => {
        using server = hasLine ? await CmtimeLine.listen(card) : undefined;
        await using client = environment.guest.spawn(['cmtime', '-s', card, '-c', String(COUNT)]);
        using line = await server?.line;
        for (const count of rounds(COUNT)) {
          await line?.await(Step.BEGIN);
          line?.answer(Step.BEGIN);
          const ends = await accepted(listener, count);
          await line?.await(Step.CONNECTED);
          line?.answer(Step.CONNECTED);
          await Promise.all(ends.map((end) => end.event('DISCONNECTED')));
          await line?.await(Step.DISCONNECTED);
          line?.answer(Step.DISCONNECTED);
          await closeAll(ends);
        }
        expect(await client.exited).toMatchObject({ status: 0, stdout: expect.stringMatching(connectRow(COUNT)) });
      });
    });

    test('the guest’s server serves us', async () => {
      await using our = await OurDevice.open(link);
      await MadAgent.of(our.device);
      const { guest } = ADDRESSES.IPv4;
      await withoutLeak(environment, our, async () => {
        await using server = environment.guest.spawn(['cmtime', '-c', String(COUNT)]);
        await environment.guest.listening(CMTIME_PORT, hasLine ? 'tcp' : 'rdma');
        using line = hasLine ? await CmtimeLine.dial(guest) : undefined;
        for (const count of rounds(COUNT)) {
          await line?.reach(Step.BEGIN);
          const ends = await connected(our, guest, CMTIME_PORT, count);
          await line?.reach(Step.CONNECTED);
          await Promise.all(ends.map(({ id }) => id.disconnect()));
          await line?.reach(Step.DISCONNECTED);
          await closeAll(ends);
        }
        expect(await (hasLine ? server.exited : server.kill())).toMatchObject({ status: hasLine ? 0 : 128 + 9 });
      });
    });
  });

  group.each(ROWS)('ucmatose, link %s, %s', (link, family) => {
    const [COUNT, MESSAGES, BYTES] = [50, 3, 300];
    const options = ['-c', String(COUNT), '-C', String(MESSAGES), '-S', String(BYTES)];
    const { guest, card } = ADDRESSES[family];
    const receive = (end: CmEnd) => {
      for (const i of times(MESSAGES)) end.receive(i * 512, BYTES);
    };
    const send = (end: CmEnd) => {
      for (const _ of times(MESSAGES)) end.send(4096, BYTES);
    };

    test('the guest’s client connects to us', async () => {
      await using our = await OurDevice.open(link);
      const listener = await listening(our, 7471);
      await withoutLeak(environment, our, async () => {
        await using client = environment.guest.spawn(['ucmatose', '-s', card, ...options]);
        const ends = await accepted(listener, COUNT, receive);
        for (const end of ends) send(end);
        await Promise.all(ends.map((end) => end.completions(2 * MESSAGES)));
        await Promise.all(ends.map(({ id }) => id.disconnect()));
        expect((await client.exited).status).toBe(0);
        await closeAll(ends);
      });
    });

    test('the guest’s server serves us', async () => {
      await using our = await OurDevice.open(link);
      await MadAgent.of(our.device);
      await withoutLeak(environment, our, async () => {
        await using server = environment.guest.spawn(['ucmatose', '-b', guest, ...options]);
        await environment.guest.listening(7471, 'rdma');
        const ends = await connected(our, guest, 7471, COUNT, receive);
        await Promise.all(ends.map((end) => end.completions(MESSAGES)));
        for (const end of ends) send(end);
        await Promise.all(ends.map((end) => end.event('DISCONNECTED')));
        expect((await server.exited).status).toBe(0);
        await closeAll(ends);
      });
    });
  });

  // The guest starts a process for each connection, which takes long: one link and family for each role.
  group('a hundred connections in a row', () => {
    const COUNT = 100;

    test('to rping, link udp, IPv4', async () => {
      await using our = await OurDevice.open('udp');
      const { guest, any } = ADDRESSES.IPv4;
      await using server = environment.guest.spawn(['rping', '-s', '-P', '-a', any]);
      await environment.guest.listening(7174, 'rdma');
      const once = async () => {
        await using end = await resolved(our, guest, 7174);
        end.receive(INBOX, MESSAGE);
        await end.id.connect({ responderResources: 1, initiatorDepth: 1 });
        await ping(end, 1);
        await end.id.disconnect();
      };
      // the first connection makes rping open its device
      await once();
      await withoutLeak(environment, our, async () => {
        for (const _ of times(COUNT)) await once();
      });
      expect((await server.kill()).status).toBe(128 + 9);
    });

    test('from rdma_client, link packet, IPv6', async () => {
      await using our = await OurDevice.open('packet');
      const listener = await listening(our, 7471);
      await withoutLeak(environment, our, async () => {
        const { card } = ADDRESSES.IPv6;
        const loop = `i=0; while [ $i -lt ${COUNT} ]; do rdma_client -s ${card} || exit; i=$((i + 1)); done`;
        await using clients = environment.guest.spawn(loop);
        for (const _ of times(COUNT)) {
          await using end = await asked(listener);
          end.receive(INBOX, MESSAGE);
          await end.id.accept();
          await end.completion();
          end.send(64, MESSAGE);
          await end.event('DISCONNECTED');
        }
        expect((await clients.exited).status).toBe(0);
      });
    });
  });
});
