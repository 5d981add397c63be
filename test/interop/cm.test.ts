/** rdma_cm against stock programs of rdma-core in either role: rping, rdma_client and rdma_server, udaddy, mckey. */
import { expect, describe as group, test } from 'vitest';
import { type ConnParam, createCmId, GRH_BYTES, readGrh } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { type LinkKind, OurDevice } from './card.js';
import { ADDRESSES, asked, CmEnd, listening, PATIENCE, resolved } from './cm-end.js';
import { rxeCounters } from './counters.js';
import {
  describeLinks,
  describeWithRxe,
  type Environment,
  FAMILY_NAMES,
  LINKS,
  matrix,
  xdpRows,
} from './environment.js';
import { CARD, GUEST } from './guest/network.js';
import { mckeyReceives } from './mckey.js';
import type { Family } from './pair.js';
import { INBOX, MESSAGE, ping, pong } from './rping.js';

const COUNT = 10;
const BYTES = 100;
const OUTBOX = 4096;

/** Posts receives for datagrams with their GRH. */
function receiveDatagrams(end: CmEnd, count = COUNT): void {
  for (let i = 0; i < count; i++) end.receive(i * 256, BYTES + GRH_BYTES);
}

async function member(our: OurDevice): Promise<CmEnd> {
  const id = createCmId(our.device, { space: 'UDP' });
  await id.bindAddr(CARD.ipv4);
  return CmEnd.on(id);
}

/**
 * Runs mckey as a sender. It posts its messages and destroys the queue pair without waiting for them, so messages that
 * rxe has not sent by then are lost: often all of ten messages. Of a thousand, each posted by a system call of its own,
 * all are lost only if the sending thread of rxe gets no processor meanwhile. Every message that rxe sends arrives.
 * @returns the number of messages that rxe sent
 */
async function sendFromMckey({ guest }: Environment, { device }: OurDevice, to: string): Promise<number> {
  // more datagrams arrive than receives are posted
  const counts = async () => {
    const { rcvd_pkts = 0, drop_no_receive = 0 } = device.counters();
    return [(await rxeCounters(guest)).sent_pkts ?? 0, rcvd_pkts + drop_no_receive] as const;
  };
  const before = await counts();
  await guest.run(['mckey', '-s', '-m', to, '-b', GUEST.ipv4, '-C', '1000'], PATIENCE);
  // the last datagrams are still in flight when mckey has ended
  return await eventually(async () => {
    const after = await counts();
    const left = after[0] - before[0];
    expect({ arrived: after[1] - before[1] }).toEqual({ arrived: left });
    return left;
  });
}

async function rpingServes(
  { guest }: Environment,
  our: OurDevice,
  family: Family,
  param: ConnParam = {},
): Promise<CmEnd> {
  const { guest: address, any } = ADDRESSES[family];
  const server = guest.spawn(['rping', '-s', '-a', any, '-v', '-V', '-C', '5']);
  await guest.listening(7174, 'rdma');
  const end = await resolved(our, address, 7174);
  end.receive(INBOX, MESSAGE);
  await end.id.connect({ responderResources: 1, initiatorDepth: 1, ...param });
  await ping(end, 5);
  await end.id.disconnect();
  const { status, stdout } = await server.exited;
  expect([status, stdout.match(/server ping data: rdma-ping-\d/g)?.length]).toEqual([0, 5]);
  return end;
}

async function rpingAsks(
  { guest }: Environment,
  our: OurDevice,
  family: Family,
  param: ConnParam = {},
): Promise<CmEnd> {
  const listener = await listening(our, 7174);
  const client = guest.run(['rping', '-c', '-a', ADDRESSES[family].card, '-v', '-V', '-C', '5'], PATIENCE);
  const end = await asked(listener);
  expect(end.id.request).toMatchObject({ responderResources: 1, initiatorDepth: 1, retryCnt: 7 });
  end.receive(INBOX, MESSAGE);
  await end.id.accept(param);
  await pong(end, 5);
  await end.event('DISCONNECTED');
  expect((await client).match(/ping data: rdma-ping-\d/g)?.length).toBe(5);
  return end;
}

describeWithRxe('rdma_cm', 1500, (environment) => {
  group.each<LinkKind>(LINKS)('link %s', (link) => {
    test.each(FAMILY_NAMES)('rping serves our client, %s', async (family) => {
      await using our = await OurDevice.open(link);
      await rpingServes(environment, our, family);
    });

    test.each(FAMILY_NAMES)('rping connects to our server, %s', async (family) => {
      await using our = await OurDevice.open(link);
      await rpingAsks(environment, our, family);
    });

    test.each(FAMILY_NAMES)('udaddy serves our client, %s', async (family) => {
      await using our = await OurDevice.open(link);
      const { guest } = ADDRESSES[family];
      const server = environment.guest.spawn(['udaddy', '-b', guest]);
      await environment.guest.listening(7174, 'rdma');
      const end = await resolved(our, guest, 7174, { space: 'UDP' });
      receiveDatagrams(end);
      const { datagram } = await end.id.connect();
      if (datagram?.ah === undefined) throw new Error('no address handle');
      const { ah, qpNum: remoteQpn, qkey: remoteQkey } = datagram;
      const to = { ah, remoteQpn, remoteQkey, immData: end.qp.qpNum, sgList: end.mr.sge(OUTBOX, BYTES) };
      for (let i = 0; i < COUNT; i++) end.qp.postSend({ opcode: 'SEND_WITH_IMM', ...to });
      await end.completions(2 * COUNT);
      expect((await server.exited).status).toBe(0);
    });

    test.each(FAMILY_NAMES)('udaddy connects to our service, %s', async (family) => {
      await using our = await OurDevice.open(link);
      const listener = await listening(our, 7174, { space: 'UDP' });
      const client = environment.guest.run(['udaddy', '-s', ADDRESSES[family].card], PATIENCE);
      const end = await asked(listener);
      receiveDatagrams(end);
      await end.id.accept();
      const first = await end.completion();
      for (let i = 1; i < COUNT; i++) await end.completion();
      const ah = await end.pd.createAhFromWc(first, end.mr.buffer.subarray(first.wrId));
      const to = { ah, remoteQpn: first.immData, remoteQkey: 0x01234567, sgList: end.mr.sge(OUTBOX, BYTES) };
      for (let i = 0; i < COUNT; i++) end.qp.postSend({ opcode: 'SEND', ...to });
      await end.completions(COUNT);
      await client;
    });

    // IPv4 only: rdma_cm of Linux refuses to join IPv6 groups on RoCE v2 (ENOTSUPP). mckey waits three seconds between
    // joining and sending or polling, so both directions are one test.
    test('mckey receives our datagrams, and we receive those of mckey', async () => {
      await using our = await OurDevice.open(link);
      const [toMckey, toUs] = ['239.77.0.1', '239.77.0.2'];
      await using end = await member(our);
      receiveDatagrams(end, 1);
      await end.id.joinMulticast(toUs);
      const { ah, qpNum, qkey } = await end.id.joinMulticast(toMckey, { sendOnly: true });
      if (ah === undefined) throw new Error('no address handle');
      const to = {
        ah,
        remoteQpn: qpNum,
        remoteQkey: qkey,
        immData: end.qp.qpNum,
        sgList: end.mr.sge(OUTBOX, BYTES),
      };
      await mckeyReceives(environment, toMckey, COUNT, () => {
        end.qp.postSend({ opcode: 'SEND_WITH_IMM', ...to });
        return end.completions(1);
      });
      while ((await sendFromMckey(environment, our, toUs)) === 0);
      const { wrId, byteLen, immData, srcQp } = await end.completion();
      expect({ byteLen, immData }).toEqual({ byteLen: BYTES + GRH_BYTES, immData: srcQp });
      const { source, destination } = readGrh(end.mr.buffer.subarray(wrId));
      expect([source, destination]).toEqual([GUEST.ipv4, toUs]);
    });
  });

  const rows = [
    ...matrix(['worker'] as const).filter(([link, family]) => (link === 'packet') === (family === 'IPv4')),
    ...xdpRows<'inline' | 'worker'>('inline', 'worker'),
  ];
  describeLinks(rows, 'link %s, %s, mode %s', ([link, family, mode]) => {
    test('rping serves our client, and connects to our server', async () => {
      await using our = await OurDevice.open(link, { mode });
      await rpingServes(environment, our, family);
      await rpingAsks(environment, our, family);
    });
  });

  test('credits, which rxe does not know, do no harm', async () => {
    await using our = await OurDevice.open('packet');
    const calling = await rpingServes(environment, our, 'IPv4', { flowControl: true });
    // rping has announced that it does not support flow control
    expect(calling.qp.flowControl).toBe(false);
    const asking = await rpingAsks(environment, our, 'IPv4', { flowControl: true });
    expect([asking.id.request?.flowControl, asking.qp.flowControl]).toEqual([false, true]);
  });

  test('rdma_server serves our client', async () => {
    await using our = await OurDevice.open('packet');
    const server = environment.guest.spawn(['rdma_server']);
    await environment.guest.listening(7471, 'rdma');
    const end = await resolved(our, GUEST.ipv4, 7471);
    end.receive(INBOX, MESSAGE);
    await end.id.connect();
    end.send(OUTBOX, MESSAGE);
    await end.completions(2);
    await end.id.disconnect();
    expect((await server.exited).status).toBe(0);
  });

  test('rdma_client connects to our server', async () => {
    await using our = await OurDevice.open('packet');
    const listener = await listening(our, 7471);
    const client = environment.guest.run(['rdma_client', '-s', CARD.ipv4], PATIENCE);
    const end = await asked(listener);
    end.receive(INBOX, MESSAGE);
    await end.id.accept();
    await end.completion();
    end.send(OUTBOX, MESSAGE);
    await end.event('DISCONNECTED');
    await client;
  });
});
