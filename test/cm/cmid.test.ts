/** Connections through the API: two devices, from resolving an address to the end of timewait. */
import { expect, describe as group, test } from 'vitest';
import { type ConnParam, createCmId } from '../../src/cm/index.js';
import { MadAgent } from '../../src/cm/madagent.js';
import { type Qp, throwIfFailed } from '../../src/index.js';
import { families } from '../verbs/pair.js';
import { DevicePair, eventsOf, PORT, type SideWithId } from './devicepair.js';

const bytes = (text: string) => Buffer.from(text);

/** Sends a message from one end to the other. */
async function say(from: SideWithId, to: SideWithId, text: string): Promise<void> {
  from.mr.buffer.write(text, 2048);
  from.qp.postSend({ opcode: 'SEND', sgList: from.mr.sge(2048, text.length) });
  throwIfFailed(await from.cq.next({ timeout: 20_000 }));
  const wc = await to.cq.next({ timeout: 20_000 });
  throwIfFailed(wc);
  expect(to.mr.buffer.toString('utf8', 0, wc.byteLen)).toBe(text);
  to.qp.postRecv({ wrId: 1, sgList: to.mr.sge(0, 1024) });
}

group('a connection by CmId', () => {
  test.each(families)(
    'IPv%d: two ids connect, exchange messages and memory, and get the events of both ends',
    async (family) => {
      const pair = await DevicePair.forTest();
      const address = pair.addressOf(pair.server, family);
      const { listener, client, server } = await pair.connected({}, { address });
      await say(client, server, 'hello');
      await say(server, client, 'and back');
      server.mr.buffer.write('to be read', 100);
      client.qp.postSend({
        opcode: 'RDMA_READ',
        sgList: client.mr.sge(3000, 10),
        remoteAddr: Number(server.mr.iova) + 100,
        rkey: server.mr.rkey,
      });
      throwIfFailed(await client.cq.next({ timeout: 20_000 }));
      expect(client.mr.buffer.toString('utf8', 3000, 3010)).toBe('to be read');
      expect(client.id.remoteAddress).toEqual({ address, port: PORT });
      expect(server.id.remoteAddress).toEqual(client.id.localAddress);
      expect(server.id.localAddress).toEqual({ address, port: PORT });

      await client.id.disconnect();
      expect([client.qp.state, client.id.state]).toEqual(['ERR', 'DISCONNECTED']);
      const end = await server.id.channel.next({ timeout: 20_000 });
      expect(end.type).toBe('ESTABLISHED');
      expect((await server.id.channel.next({ timeout: 20_000 })).type).toBe('DISCONNECTED');
      expect(server.qp.state).toBe('ERR');
      await server.id.disconnect();
      expect((await server.id.channel.next({ timeout: 20_000 })).type).toBe('TIMEWAIT_EXIT');
      const names = eventsOf(client.id).filter((name) => name !== 'TIMEWAIT_EXIT');
      expect(names).toEqual(['ADDR_RESOLVED', 'ROUTE_RESOLVED', 'ESTABLISHED', 'DISCONNECTED']);
      expect(eventsOf(listener)).toEqual([]);
      for (const { id } of [client, server]) await id.close();
      expect([client.qp.isClosed, server.qp.isClosed]).toEqual([true, true]);
    },
  );

  test('both queue pairs get what both ends have offered', async () => {
    const pair = await DevicePair.forTest();
    const { client, server } = await pair.connected(
      {},
      {
        connect: { responderResources: 9, initiatorDepth: 5, retryCnt: 3, rnrRetry: 2 },
        accept: { responderResources: 4, initiatorDepth: 6, rnrRetry: 1 },
      },
    );
    const [c, s] = [client.qp.query(), server.qp.query()];
    expect([c.maxRdAtomic, c.maxDestRdAtomic]).toEqual([4, 6]);
    expect([s.maxRdAtomic, s.maxDestRdAtomic]).toEqual([6, 4]);
    expect([c.retryCnt, s.retryCnt]).toEqual([3, 3]);
    // each end sets the RNR retries of the other
    expect([c.rnrRetry, s.rnrRetry]).toEqual([1, 2]);
    expect([c.timeout, s.timeout]).toEqual([17, 17]);
    expect([c.destQpNum, s.destQpNum]).toEqual([s.qpNum, c.qpNum]);
    expect([c.pathMtu, s.pathMtu]).toEqual([4096, 4096]);
    expect([c.minRnrTimer, s.minRnrTimer]).toEqual([0, 0]);
    const { port } = client.id.localAddress ?? { port: 0 };
    expect(c.ahAttr?.grh.flowLabel).toBe((port * 31 + PORT) & 0xfffff);
    expect(s.ahAttr?.grh.flowLabel).toBe(c.ahAttr?.grh.flowLabel);
    const rights = ['remoteWrite', 'remoteRead', 'remoteAtomic', 'flushGlobal'];
    expect([c.qpAccessFlags, s.qpAccessFlags]).toEqual([rights, rights]);
  });

  test.each([
    ['what every adapter can, when nothing is said', undefined, 16],
    ['as much as the card can, on request', 128, 128],
  ])('%s', async (_, depth, has) => {
    const pair = await DevicePair.forTest();
    const connect = depth === undefined ? {} : { responderResources: depth, initiatorDepth: depth };
    const { client, server } = await pair.connected({}, { connect });
    const [c, s] = [client.qp.query(), server.qp.query()];
    expect([c.maxRdAtomic, c.maxDestRdAtomic, s.maxRdAtomic, s.maxDestRdAtomic]).toEqual([has, has, has, has]);
    expect([c.retryCnt, c.rnrRetry]).toEqual([7, 7]);
  });

  test('a server that asks for 255 responder resources gets as many as the card has', async () => {
    const pair = await DevicePair.forTest();
    const listener = await pair.listen();
    const { core } = await MadAgent.of(pair.server.device);
    const accept = core.accept.bind(core);
    core.accept = (id, param, now) => accept(id, { ...param, responderResources: 255, initiatorDepth: 255 }, now);
    const client = await pair.resolved();
    const connecting = client.id.connect();
    void (await pair.withQp(pair.server, await listener.getRequest())).id.accept();
    await connecting;
    expect(client.qp.query()).toMatchObject({ maxRdAtomic: 128, maxDestRdAtomic: 128 });
  });

  test('ECE options of an mlx5 client reach the server, and those of the server the client', async () => {
    const pair = await DevicePair.forTest();
    const ece = { vendorId: 0x02c9, options: 0x3000_0001 };
    const { client, server } = await pair.connected({}, { connect: { ece } });
    expect(server.id.request?.ece).toEqual(ece);
    expect(client.id.request).toBeUndefined();
    await expect(client.id.connect({ ece: { vendorId: 1 << 24, options: 0 } })).rejects.toThrow();
  });

  test('a server without responder resources gives its client no right to read', async () => {
    const pair = await DevicePair.forTest();
    const { server } = await pair.connected({}, { accept: { responderResources: 0 } });
    expect(server.qp.query().qpAccessFlags).toEqual(['remoteWrite']);
  });

  test('type of service, ACK timeout and RNR timer of the options reach both queue pairs', async () => {
    const pair = await DevicePair.forTest();
    const { client, server } = await pair.connected({ tos: 0x20, ackTimeout: 19, minRnrTimer: 12 });
    for (const { qp } of [client, server]) {
      const { timeout, ahAttr, minRnrTimer } = qp.query();
      expect([timeout, ahAttr?.grh.trafficClass, minRnrTimer]).toEqual([19, 0x20, 12]);
    }
  });

  test.each([
    ['the upper bits of the type of service', { tos: 0x68 }, 3],
    ['what the client says', { tos: 0x68, sl: 6 }, 6],
  ])('the service level is that of the options at both ends: %s', async (_, options, sl) => {
    const pair = await DevicePair.forTest();
    const listener = await pair.listen();
    const client = await pair.resolved(options);
    const connecting = client.id.connect();
    const server = await pair.withQp(pair.server, await listener.getRequest());
    await Promise.all([connecting, server.id.accept()]);
    expect([client.qp.query().ahAttr?.sl, server.qp.query().ahAttr?.sl]).toEqual([sl, sl]);
  });

  test('private data arrives in both directions', async () => {
    const pair = await DevicePair.forTest();
    const listener = await pair.listen();
    const client = await pair.resolved();
    const connecting = client.id.connect({ privateData: bytes('may I?') });
    const server = await pair.withQp(pair.server, await listener.getRequest());
    expect(server.id.request?.privateData.length).toBe(56);
    expect(Buffer.from(server.id.request?.privateData ?? []).toString('utf8', 0, 6)).toBe('may I?');
    const accepted = server.id.accept({ privateData: bytes('you may') });
    const { privateData } = await connecting;
    expect([privateData.length, Buffer.from(privateData).toString('utf8', 0, 7)]).toEqual([196, 'you may']);
    await accepted;
    await Promise.all([client.id.disconnect({ privateData: bytes('bye') }), server.id.channel.next()]);
    const end = await server.id.channel.next();
    expect(end.type === 'DISCONNECTED' && Buffer.from(end.privateData).toString('utf8', 0, 3)).toBe('bye');
  });

  test('a UC connection is established', async () => {
    const pair = await DevicePair.forTest();
    const { client, server } = await pair.connected({ qpType: 'UC' });
    expect(client.qp.type).toBe('UC');
    await say(client, server, 'it may arrive');
  });

  test.each<[string, ConnParam, ConnParam, boolean[]]>([
    ['the client asks, the server does as it is asked', { flowControl: true }, {}, [true, true]],
    ['the server will not', { flowControl: true }, { flowControl: false }, [false, false]],
    ['the server has them for itself', {}, { flowControl: true }, [false, true]],
    ['nobody asks', {}, {}, [false, false]],
  ])('credits are used when both ends want them: %s', async (_, connect, accept, have) => {
    const pair = await DevicePair.forTest();
    const { client, server } = await pair.connected({}, { connect, accept });
    expect(server.id.request?.flowControl).toBe(connect.flowControl === true);
    expect([client.qp.flowControl, server.qp.flowControl]).toEqual(have);
    await say(client, server, 'with or without');
  });

  test('credits that a queue pair has switched on before count as an offer', async () => {
    const pair = await DevicePair.forTest();
    const listener = await pair.listen();
    const client = await pair.resolved();
    client.qp.flowControl = true;
    const connecting = client.id.connect();
    const server = await pair.withQp(pair.server, await listener.getRequest());
    expect(server.id.request?.flowControl).toBe(true);
    await Promise.all([connecting, server.id.accept()]);
    expect([client.qp.flowControl, server.qp.flowControl]).toEqual([true, true]);
  });

  test('a shared receive queue is announced to the peer', async () => {
    const pair = await DevicePair.forTest();
    const listener = await pair.listen();
    const client = createCmId(pair.client.device);
    await client.resolveAddr(pair.addressOf(pair.server), PORT);
    await client.resolveRoute();
    const srq = await pair.client.pd.createSrq();
    await client.createQp(pair.client.pd, { sendCq: pair.client.cq, srq });
    void client.connect();
    expect((await listener.getRequest()).request?.srq).toBe(true);
  });

  test('both ends disconnect at the same time', async () => {
    const pair = await DevicePair.forTest();
    const { client, server } = await pair.connected();
    await Promise.all([client.id.disconnect(), server.id.disconnect()]);
    expect([client.id.state, server.id.state]).toEqual(['DISCONNECTED', 'DISCONNECTED']);
  });

  test('an id connects with an id of the same device', async () => {
    const pair = await DevicePair.forTest();
    const { device, cq, pd } = pair.server;
    const listener = await pair.listen();
    const id = createCmId(device);
    await id.resolveAddr(pair.addressOf(pair.server), PORT);
    await id.resolveRoute();
    await id.createQp(pd, { sendCq: cq });
    const connecting = id.connect();
    const server = await pair.withQp(pair.server, await listener.getRequest());
    await Promise.all([connecting, server.id.accept()]);
    await id.disconnect();
    expect(id.state).toBe('DISCONNECTED');
  });

  test('an id connects to the second address of a device', async () => {
    const pair = await DevicePair.forTest();
    const listener = await pair.listen({}, 16, pair.otherAddressOf(pair.server));
    const refused = (await pair.resolved()).id.connect();
    await expect(refused).rejects.toMatchObject({ reason: 'CONSUMER_DEFINED' });
    const client = await pair.resolved({}, pair.otherAddressOf(pair.server));
    const connecting = client.id.connect();
    const server = await pair.withQp(pair.server, await listener.getRequest());
    await Promise.all([connecting, server.id.accept()]);
  });
});

group('a program that brings its queue pairs up itself', () => {
  test('the program uses CONNECT_RESPONSE, acceptAttributes and establish', async () => {
    const pair = await DevicePair.forTest();
    const listener = await pair.listen();
    const own = async ({ pd, cq }: DevicePair['client']): Promise<Qp> => pd.createQp({ sendCq: cq });
    const [a, b] = [await own(pair.client), await own(pair.server)];
    const id = createCmId(pair.client.device);
    await id.resolveAddr(pair.addressOf(pair.server), PORT);
    await id.resolveRoute();
    const connecting = id.connect({ qpNum: a.qpNum });
    const server = await listener.getRequest();
    const param = { qpNum: b.qpNum };
    await bringUp(b, server.acceptAttributes(param));
    const accepted = server.accept(param);
    for (;;) {
      const event = await id.channel.next({ timeout: 20_000 });
      if (event.type !== 'CONNECT_RESPONSE') continue;
      expect(event.reply.qpNum).toBe(b.qpNum);
      await bringUp(a, event.reply.attributes);
      break;
    }
    await id.establish();
    await Promise.all([connecting, accepted]);
    expect([a.state, b.state]).toEqual(['RTS', 'RTS']);
    await server.disconnect();
    // the application's queue pairs stay open
    expect([a.state, b.state]).toEqual(['RTS', 'RTS']);
    await Promise.all([id.close(), server.close()]);
    expect([a.isClosed, b.isClosed]).toEqual([false, false]);
  });

  test('a server whose RTU is lost is in RTR until data arrives, which stand for the RTU', async () => {
    const pair = await DevicePair.forTest();
    const listener = await pair.listen();
    const qp = await pair.client.pd.createQp({ sendCq: pair.client.cq });
    const id = createCmId(pair.client.device);
    await id.resolveAddr(pair.addressOf(pair.server), PORT);
    await id.resolveRoute();
    id.connect({ qpNum: qp.qpNum }).catch(() => {});
    const server = await pair.withQp(pair.server, await listener.getRequest());
    const accepted = server.id.accept();
    for (;;) {
      const event = await id.channel.next({ timeout: 20_000 });
      if (event.type !== 'CONNECT_RESPONSE') continue;
      await bringUp(qp, event.reply.attributes);
      break;
    }
    expect([server.id.state, server.qp.state]).toEqual(['CONNECTING', 'RTR']);
    await say({ ...pair.client, id, qp }, server, 'not established yet');
    await accepted;
    expect([server.id.state, server.qp.state]).toEqual(['ESTABLISHED', 'RTS']);
    const counters = (await MadAgent.of(pair.server.device)).counters();
    expect(counters).not.toHaveProperty('cm_tx_retries.rep');
    expect(counters).not.toHaveProperty('cm_rx_msgs.rtu');
  });

  async function bringUp(qp: Qp, { init, rtr, rts, route }: ReturnType<CmIdAttributes>): Promise<void> {
    const { sgid, ...grh } = route;
    const sgidIndex = qp.device.gids.findIndex(({ gid }) => gid === sgid);
    await qp.modify(init);
    await qp.modify({ ...rtr, ahAttr: { grh: { ...grh, sgidIndex } } });
    await qp.modify(rts);
  }
  type CmIdAttributes = import('../../src/cm/index.js').CmId['acceptAttributes'];

  test('useQp: the id uses the program’s queue pair, which outlives it', async () => {
    const pair = await DevicePair.forTest();
    const { client, server } = await (async () => {
      const listener = await pair.listen();
      const id = createCmId(pair.client.device);
      await id.resolveAddr(pair.addressOf(pair.server), PORT);
      await id.resolveRoute();
      const qp = await pair.client.pd.createQp({ sendCq: pair.client.cq });
      await id.useQp(qp);
      expect(qp.state).toBe('INIT');
      await expect(id.useQp(qp)).rejects.toThrow('already');
      const connecting = id.connect();
      const other = await pair.withQp(pair.server, await listener.getRequest());
      await Promise.all([connecting, other.id.accept()]);
      return { client: { ...pair.client, id, qp }, server: other };
    })();
    await say(client, server, 'mine');
    await client.id.close();
    expect(client.qp.isClosed).toBe(false);
    await client.qp.close();
  });

  test('createQp: a queue pair whose id is closed meanwhile is closed too', async () => {
    const { client } = await DevicePair.forTest();
    for (let turns = 0; turns < 8; turns++) {
      const id = createCmId(client.device);
      const created = id.createQp(client.pd, { sendCq: client.cq }).catch(() => {});
      for (let i = 0; i < turns; i++) await Promise.resolve();
      await id.close();
      await created;
    }
    // EBUSY while a queue pair uses it
    await client.cq.close();
  });
});
