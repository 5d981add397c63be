/** rdma_cm against stock programs of rdma-core in either role: rping, rdma_client and rdma_server, udaddy, mckey. */
import { expect, describe as group, test, vi } from 'vitest';
import { type ConnParam, createCmId, GRH_BYTES, readGrh } from '../../src/index.js';
import { type LinkKind, OurDevice } from './card.js';
import { rxeCounters } from './counters.js';
import { CARD, GUEST } from './guest/network.js';
import type { Family } from './pair.js';
import { INBOX, MESSAGE, ping, pong } from './rping.js';
import { ADDRESSES, asked, listening, PATIENCE, resolved, Side } from './side.js';
import { describeLinks, describeWithRxe, FAMILY_NAMES, LINKS, matrix, type World, xdpRows } from './world.js';

const COUNT = 10;
const BYTES = 100;
const OUTBOX = 4096;

/** Receives for datagrams, each with its header. */
function receiveDatagrams(side: Side, count = COUNT): void {
  for (let i = 0; i < count; i++) side.receive(i * 256, BYTES + GRH_BYTES);
}

async function member(our: OurDevice): Promise<Side> {
  const id = createCmId(our.device, { space: 'UDP' });
  await id.bindAddr(CARD.ipv4);
  return Side.on(id);
}

/**
 * mckey posts its messages and destroys the queue pair without waiting for them, so what rxe has not sent by then is lost: of
 * ten often all, of a thousand, each a system call of its own, all where the thread of rxe that sends them gets no processor
 * meanwhile. What has left arrives.
 * @returns how many have left
 */
async function speak({ guest }: World, { device }: OurDevice, to: string): Promise<number> {
  // there are more datagrams than receives
  const counts = async () => {
    const { rcvd_pkts = 0, drop_no_receive = 0 } = device.counters();
    return [(await rxeCounters(guest)).sent_pkts ?? 0, rcvd_pkts + drop_no_receive] as const;
  };
  const before = await counts();
  await guest.run(['mckey', '-s', '-m', to, '-b', GUEST.ipv4, '-C', '1000'], PATIENCE);
  // the last are still on the way when mckey has ended
  return await vi.waitFor(
    async () => {
      const after = await counts();
      const left = after[0] - before[0];
      expect({ arrived: after[1] - before[1] }).toEqual({ arrived: left });
      return left;
    },
    { timeout: 10_000, interval: 100 },
  );
}

async function rpingServes({ guest }: World, our: OurDevice, family: Family, param: ConnParam = {}): Promise<Side> {
  const { guest: address, any } = ADDRESSES[family];
  const server = guest.spawn(['rping', '-s', '-a', any, '-v', '-V', '-C', '5']);
  await guest.listening(7174, 'rdma');
  const side = await resolved(our, address, 7174);
  side.receive(INBOX, MESSAGE);
  await side.id.connect({ responderResources: 1, initiatorDepth: 1, ...param });
  await ping(side, 5);
  await side.id.disconnect();
  const { status, stdout } = await server.exited;
  expect([status, stdout.match(/server ping data: rdma-ping-\d/g)?.length]).toEqual([0, 5]);
  return side;
}

async function rpingAsks({ guest }: World, our: OurDevice, family: Family, param: ConnParam = {}): Promise<Side> {
  const listener = await listening(our, 7174);
  const client = guest.run(['rping', '-c', '-a', ADDRESSES[family].card, '-v', '-V', '-C', '5'], PATIENCE);
  const side = await asked(listener);
  expect(side.id.request).toMatchObject({ responderResources: 1, initiatorDepth: 1, retryCount: 7 });
  side.receive(INBOX, MESSAGE);
  await side.id.accept(param);
  await pong(side, 5);
  await side.event('DISCONNECTED');
  expect((await client).match(/ping data: rdma-ping-\d/g)?.length).toBe(5);
  return side;
}

describeWithRxe('rdma_cm', 1500, (world) => {
  group.each<LinkKind>(LINKS)('link %s', (link) => {
    test.each(FAMILY_NAMES)('rping serves us, %s', async (family) => {
      await using our = await OurDevice.open(link);
      await rpingServes(world, our, family);
    });

    test.each(FAMILY_NAMES)('rping asks us, %s', async (family) => {
      await using our = await OurDevice.open(link);
      await rpingAsks(world, our, family);
    });

    test.each(FAMILY_NAMES)('udaddy serves us, %s', async (family) => {
      await using our = await OurDevice.open(link);
      const { guest } = ADDRESSES[family];
      const server = world.guest.spawn(['udaddy', '-b', guest]);
      await world.guest.listening(7174, 'rdma');
      const side = await resolved(our, guest, 7174, { space: 'UDP' });
      receiveDatagrams(side);
      const { datagram } = await side.id.connect();
      if (datagram?.ah === undefined) throw new Error('no address handle');
      const { ah, qpNum: remoteQpn, qkey: remoteQkey } = datagram;
      const to = { ah, remoteQpn, remoteQkey, immData: side.qp.qpNum, sgList: side.mr.slice(OUTBOX, BYTES) };
      for (let i = 0; i < COUNT; i++) side.qp.postSend({ opcode: 'SEND_WITH_IMM', ...to });
      await side.completions(2 * COUNT);
      expect((await server.exited).status).toBe(0);
    });

    test.each(FAMILY_NAMES)('udaddy asks us, %s', async (family) => {
      await using our = await OurDevice.open(link);
      const listener = await listening(our, 7174, { space: 'UDP' });
      const client = world.guest.run(['udaddy', '-s', ADDRESSES[family].card], PATIENCE);
      const side = await asked(listener);
      receiveDatagrams(side);
      await side.id.accept();
      const first = await side.completion();
      for (let i = 1; i < COUNT; i++) await side.completion();
      const ah = await side.pd.createAhFromWc(first, side.mr.buffer.subarray(first.wrId));
      const to = { ah, remoteQpn: first.immData, remoteQkey: 0x01234567, sgList: side.mr.slice(OUTBOX, BYTES) };
      for (let i = 0; i < COUNT; i++) side.qp.postSend({ opcode: 'SEND', ...to });
      await side.completions(COUNT);
      await client;
    });

    // Only IPv4: Linux' rdma_cm refuses to join IPv6 groups on RoCE v2 (ENOTSUPP). mckey waits three seconds between joining
    // and sending or looking, so both directions are one test.
    test('mckey hears us, and we hear mckey', async () => {
      await using our = await OurDevice.open(link);
      const [toMckey, toUs] = ['239.77.0.1', '239.77.0.2'];
      const hearer = world.guest.spawn(['mckey', '-m', toMckey, '-b', GUEST.ipv4, '-C', String(COUNT)]);
      await using side = await member(our);
      receiveDatagrams(side, 1);
      await side.id.joinMulticast(toUs);
      const { ah, qpNum, qkey } = await side.id.joinMulticast(toMckey, { sendOnly: true });
      if (ah === undefined) throw new Error('no address handle');
      const to = {
        ah,
        remoteQpn: qpNum,
        remoteQkey: qkey,
        immData: side.qp.qpNum,
        sgList: side.mr.slice(OUTBOX, BYTES),
      };
      await world.guest.run('until grep -q 01004DEF /proc/net/igmp; do sleep 0.05; done', PATIENCE);
      for (let i = 0; i < COUNT; i++) side.qp.postSend({ opcode: 'SEND_WITH_IMM', ...to });
      await side.completions(COUNT);
      while ((await speak(world, our, toUs)) === 0);
      const { wrId, byteLen, immData, srcQp } = await side.completion();
      expect({ byteLen, immData }).toEqual({ byteLen: BYTES + GRH_BYTES, immData: srcQp });
      const { source, destination } = readGrh(side.mr.buffer.subarray(wrId));
      expect([source, destination]).toEqual([GUEST.ipv4, toUs]);
      expect((await hearer.exited).status).toBe(0);
    });
  });

  const rows = [
    ...matrix(['worker'] as const).filter(([link, family]) => (link === 'packet') === (family === 'IPv4')),
    ...xdpRows<'inline' | 'worker'>('inline', 'worker'),
  ];
  describeLinks(rows, 'link %s, %s, mode %s', ([link, family, mode]) => {
    test('rping serves us, and asks us', async () => {
      await using our = await OurDevice.open(link, { mode });
      await rpingServes(world, our, family);
      await rpingAsks(world, our, family);
    });
  });

  test('credits, of which rxe knows nothing, do no harm', async () => {
    await using our = await OurDevice.open('packet');
    const calling = await rpingServes(world, our, 'IPv4', { flowControl: true });
    // it has said that it has none
    expect(calling.qp.flowControl).toBe(false);
    const asking = await rpingAsks(world, our, 'IPv4', { flowControl: true });
    expect([asking.id.request?.flowControl, asking.qp.flowControl]).toEqual([false, true]);
  });

  test('rdma_server serves us', async () => {
    await using our = await OurDevice.open('packet');
    const server = world.guest.spawn(['rdma_server']);
    await world.guest.listening(7471, 'rdma');
    const side = await resolved(our, GUEST.ipv4, 7471);
    side.receive(INBOX, MESSAGE);
    await side.id.connect();
    side.send(OUTBOX, MESSAGE);
    await side.completions(2);
    await side.id.disconnect();
    expect((await server.exited).status).toBe(0);
  });

  test('rdma_client asks us', async () => {
    await using our = await OurDevice.open('packet');
    const listener = await listening(our, 7471);
    const client = world.guest.run(['rdma_client', '-s', CARD.ipv4], PATIENCE);
    const side = await asked(listener);
    side.receive(INBOX, MESSAGE);
    await side.id.accept();
    await side.completion();
    side.send(OUTBOX, MESSAGE);
    await side.event('DISCONNECTED');
    await client;
  });
});
