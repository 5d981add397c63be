/** Connections of programs: two devices, from resolving an address to the end of timewait. */
import { afterEach, expect, describe as group, test } from 'vitest';
import { CmError, createCmId, EventChannel } from '../../src/cm/index.js';
import { type Qp, throwIfFailed } from '../../src/index.js';
import { eventsOf, type Joined, Pair, PORT } from './sides.js';

const open: Pair[] = [];
afterEach(async () => {
  for (const pair of open.splice(0)) await pair[Symbol.asyncDispose]();
});

async function pairOf(options = {}): Promise<Pair> {
  const pair = await Pair.open(options);
  open.push(pair);
  return pair;
}

const bytes = (text: string) => Buffer.from(text);

/** A message from one end to the other. */
async function say(from: Joined, to: Joined, text: string): Promise<void> {
  from.mr.buffer.write(text, 2048);
  from.qp.postSend({ opcode: 'SEND', sgList: from.mr.slice(2048, text.length) });
  throwIfFailed(await from.cq.next({ timeout: 5000 }));
  const wc = await to.cq.next({ timeout: 5000 });
  throwIfFailed(wc);
  expect(to.mr.buffer.toString('utf8', 0, wc.byteLen)).toBe(text);
  to.qp.postRecv({ wrId: 1, sgList: to.mr.slice(0, 1024) });
}

group('a connection', () => {
  test.each([4, 6] as const)('IPv%d: messages, the peer’s memory, the events of both ends', async (family) => {
    const pair = await pairOf();
    const address = pair.addressOf(pair.server, family);
    const { listener, client, server } = await pair.connected({}, { address });
    await say(client, server, 'hello');
    await say(server, client, 'and back');
    server.mr.buffer.write('to be read', 100);
    client.qp.postSend({
      opcode: 'RDMA_READ',
      sgList: client.mr.slice(3000, 10),
      remoteAddr: Number(server.mr.iova) + 100,
      rkey: server.mr.rkey,
    });
    throwIfFailed(await client.cq.next({ timeout: 5000 }));
    expect(client.mr.buffer.toString('utf8', 3000, 3010)).toBe('to be read');
    expect(client.id.remoteAddress).toEqual({ address, port: PORT });
    expect(server.id.remoteAddress).toEqual(client.id.localAddress);
    expect(server.id.localAddress).toEqual({ address, port: PORT });

    await client.id.disconnect();
    expect([client.qp.state, client.id.state]).toEqual(['ERR', 'DISCONNECTED']);
    const end = await server.id.channel.next({ timeout: 5000 });
    expect(end.type).toBe('ESTABLISHED');
    expect((await server.id.channel.next({ timeout: 5000 })).type).toBe('DISCONNECTED');
    expect(server.qp.state).toBe('ERR');
    await server.id.disconnect();
    expect((await server.id.channel.next({ timeout: 5000 })).type).toBe('TIMEWAIT_EXIT');
    const names = eventsOf(client.id).filter((name) => name !== 'TIMEWAIT_EXIT');
    expect(names).toEqual(['ADDR_RESOLVED', 'ROUTE_RESOLVED', 'ESTABLISHED', 'DISCONNECTED']);
    expect(eventsOf(listener)).toEqual([]);
    for (const { id } of [client, server]) await id.close();
    expect([client.qp.isClosed, server.qp.isClosed]).toEqual([true, true]);
  });

  test('what both ends offer becomes what both queue pairs have', async () => {
    const pair = await pairOf();
    const { client, server } = await pair.connected(
      {},
      {
        connect: { responderResources: 9, initiatorDepth: 5, retryCount: 3, rnrRetryCount: 2 },
        accept: { responderResources: 4, initiatorDepth: 6, rnrRetryCount: 1 },
      },
    );
    const [c, s] = [client.qp.query(), server.qp.query()];
    expect([c.maxRdAtomic, c.maxDestRdAtomic]).toEqual([4, 6]);
    expect([s.maxRdAtomic, s.maxDestRdAtomic]).toEqual([6, 4]);
    expect([c.retryCnt, s.retryCnt]).toEqual([3, 3]);
    // the one says how patient the other is with it
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

  test('as much as the card can, when nothing is said', async () => {
    const pair = await pairOf();
    const { client, server } = await pair.connected();
    const [c, s] = [client.qp.query(), server.qp.query()];
    expect([c.maxRdAtomic, c.maxDestRdAtomic, s.maxRdAtomic, s.maxDestRdAtomic]).toEqual([128, 128, 128, 128]);
    expect([c.retryCnt, c.rnrRetry]).toEqual([7, 7]);
  });

  test('who serves no reads lets nobody read', async () => {
    const pair = await pairOf();
    const { server } = await pair.connected({}, { accept: { responderResources: 0 } });
    expect(server.qp.query().qpAccessFlags).toEqual(['remoteWrite']);
  });

  test('type of service, ACK timeout, RNR timer', async () => {
    const pair = await pairOf();
    const { client, server } = await pair.connected({ tos: 0x20, ackTimeout: 19, minRnrTimer: 12 });
    for (const { qp } of [client, server]) {
      const { timeout, ahAttr, minRnrTimer } = qp.query();
      expect([timeout, ahAttr?.grh.trafficClass, minRnrTimer]).toEqual([19, 0x20, 12]);
    }
  });

  test('private data, both ways', async () => {
    const pair = await pairOf();
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

  test('unreliable', async () => {
    const pair = await pairOf();
    const { client, server } = await pair.connected({ qpType: 'UC' });
    expect(client.qp.type).toBe('UC');
    await say(client, server, 'it may arrive');
  });

  test('flow control by credits, where a side asks for it', async () => {
    const pair = await pairOf();
    const { client, server } = await pair.connected({}, { connect: { flowControl: true } });
    expect([client.qp.flowControl, server.qp.flowControl]).toEqual([true, false]);
    expect(server.id.request?.flowControl).toBe(true);
  });

  test('a shared receive queue is told of', async () => {
    const pair = await pairOf();
    const listener = await pair.listen();
    const client = createCmId(pair.client.device);
    await client.resolveAddr(pair.addressOf(pair.server), PORT);
    await client.resolveRoute();
    const srq = await pair.client.pd.createSrq();
    await client.createQp(pair.client.pd, { sendCq: pair.client.cq, srq });
    void client.connect();
    expect((await listener.getRequest()).request?.srq).toBe(true);
  });

  test('both ends say farewell at a time', async () => {
    const pair = await pairOf();
    const { client, server } = await pair.connected();
    await Promise.all([client.id.disconnect(), server.id.disconnect()]);
    expect([client.id.state, server.id.state]).toEqual(['DISCONNECTED', 'DISCONNECTED']);
  });

  test('with one’s own card', async () => {
    const pair = await pairOf();
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

  test('on another address of ours than the first', async () => {
    const pair = await pairOf({ addresses: undefined });
    const listener = await pair.listen({}, 16, pair.addressOf(pair.server, 6));
    const refused = (await pair.resolved()).id.connect();
    await expect(refused).rejects.toMatchObject({ reason: 'CONSUMER_DEFINED' });
    const client = await pair.resolved({}, pair.addressOf(pair.server, 6));
    const connecting = client.id.connect();
    const server = await pair.withQp(pair.server, await listener.getRequest());
    await Promise.all([connecting, server.id.accept()]);
  });
});

group('no connection', () => {
  test('nobody listens', async () => {
    const pair = await pairOf();
    // the other card has its queue pair 1
    await (await pair.listen()).close();
    const { id } = await pair.resolved();
    const error = await id.connect().catch((reason) => reason);
    expect(error).toBeInstanceOf(CmError);
    expect(error).toMatchObject({ code: 'ECONNREFUSED', event: 'REJECTED', reason: 'INVALID_SERVICE_ID' });
    expect(error.message).toBe(
      `ECONNREFUSED: ${pair.addressOf(pair.server)} port 7471 refused the connection: nobody listens there, reason 8 (INVALID_SERVICE_ID)`,
    );
    expect(id.state).toBe('FAILED');
    expect(eventsOf(id)).toEqual(['ADDR_RESOLVED', 'ROUTE_RESOLVED', 'REJECTED']);
  });

  test('the program says no, and why', async () => {
    const pair = await pairOf();
    const listener = await pair.listen();
    const { id } = await pair.resolved();
    const connecting = id.connect();
    const request = await listener.getRequest();
    await request.reject({ privateData: bytes('not today') });
    const error = await connecting.catch((reason) => reason);
    expect(error).toMatchObject({ reason: 'CONSUMER_DEFINED' });
    expect(Buffer.from(error.privateData).toString('utf8', 0, 9)).toBe('not today');
    await request.close();
  });

  test('a request that is closed is refused', async () => {
    const pair = await pairOf();
    const listener = await pair.listen();
    const { id } = await pair.resolved();
    const connecting = id.connect();
    await (await listener.getRequest()).close();
    await expect(connecting).rejects.toMatchObject({ reason: 'CONSUMER_DEFINED' });
  });

  test('a listener that closes refuses those whom nobody has looked at', async () => {
    const pair = await pairOf();
    const listener = await pair.listen();
    const { id } = await pair.resolved();
    const connecting = id.connect();
    while (eventsOf(id).length < 0 || pair.server.device.counters().rcvd_pkts === 0)
      await new Promise((resolve) => setImmediate(resolve));
    await new Promise((resolve) => setTimeout(resolve, 20));
    await listener.close();
    await expect(connecting).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    await pair.server.mr.close();
    await pair.server.cq.close();
    await pair.server.pd.close();
    await pair.server.device.close();
  });

  test('the listener wants another type of queue pair', async () => {
    const pair = await pairOf();
    await pair.listen({ qpType: 'UC' });
    const { id } = await pair.resolved();
    await expect(id.connect()).rejects.toMatchObject({ reason: 'INVALID_TRANSPORT_TYPE' });
  });

  test('more than may wait', async () => {
    const pair = await pairOf();
    await pair.listen({}, 1);
    const first = await pair.resolved();
    void first.id.connect();
    const second = await pair.resolved();
    await expect(second.id.connect()).rejects.toMatchObject({ reason: 'NO_RESOURCES' });
  });

  test('the queue pair cannot be brought up', async () => {
    const pair = await pairOf();
    const listener = await pair.listen();
    const { id, qp } = await pair.resolved();
    const connecting = id.connect();
    const server = await pair.withQp(pair.server, await listener.getRequest());
    await qp.modify({ state: 'ERR' });
    const accepted = server.id.accept().catch((error) => error);
    await expect(connecting).rejects.toMatchObject({ code: 'EINVAL' });
    expect(eventsOf(id)).toEqual(['ADDR_RESOLVED', 'ROUTE_RESOLVED', 'CONNECT_ERROR']);
    expect(await accepted).toMatchObject({ event: 'REJECTED', reason: 'CONSUMER_DEFINED' });
  });

  test('given up while it is being asked for', async () => {
    const pair = await pairOf();
    const listener = await pair.listen();
    const { id } = await pair.resolved();
    const connecting = id.connect();
    const request = await listener.getRequest();
    await id.close();
    await expect(connecting).rejects.toMatchObject({ code: 'ECANCELED' });
    expect((await request.channel.next({ timeout: 5000 })).type).toBe('REJECTED');
    await expect(request.accept()).rejects.toThrow('is in state FAILED, accept needs REQUESTED');
  });

  test('no such address', async () => {
    const pair = await pairOf();
    const id = createCmId(pair.client.device);
    await expect(id.resolveAddr('10.0.0.99', 1)).rejects.toMatchObject({ code: 'EHOSTUNREACH' });
    expect(eventsOf(id)).toEqual(['ADDR_ERROR']);
    expect(id.state).toBe('IDLE');
  });
});

group('a program that brings its queue pairs up itself', () => {
  test('CONNECT_RESPONSE, acceptAttributes, establish', async () => {
    const pair = await pairOf();
    const listener = await pair.listen();
    const own = async ({ pd, cq }: Pair['client']): Promise<Qp> => pd.createQp({ sendCq: cq });
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
      const event = await id.channel.next({ timeout: 5000 });
      if (event.type !== 'CONNECT_RESPONSE') continue;
      expect(event.reply.qpNum).toBe(b.qpNum);
      await bringUp(a, event.reply.attributes);
      break;
    }
    await id.establish();
    await Promise.all([connecting, accepted]);
    expect([a.state, b.state]).toEqual(['RTS', 'RTS']);
    await server.disconnect();
    // they stay the program's
    expect([a.state, b.state]).toEqual(['RTS', 'RTS']);
    await Promise.all([id.close(), server.close()]);
    expect([a.isClosed, b.isClosed]).toEqual([false, false]);
  });

  async function bringUp(qp: Qp, { init, rtr, rts, route }: ReturnType<CmIdAttributes>): Promise<void> {
    const { sgid, ...grh } = route;
    const sgidIndex = qp.device.gids.findIndex(({ gid }) => gid === sgid);
    await qp.modify(init);
    await qp.modify({ ...rtr, ahAttr: { grh: { ...grh, sgidIndex } } });
    await qp.modify(rts);
  }
  type CmIdAttributes = import('../../src/cm/index.js').CmId['acceptAttributes'];

  test('useQp: a queue pair of the program’s, which outlives the id', async () => {
    const pair = await pairOf();
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
});

group('closing', () => {
  test('an id: the peer hears farewell', async () => {
    const pair = await pairOf();
    const { client, server } = await pair.connected();
    await client.id.close();
    await server.id.channel.next();
    expect((await server.id.channel.next({ timeout: 5000 })).type).toBe('DISCONNECTED');
  });

  test('a device: ids keep it open, the manager does not; forced, all peers hear farewell', async () => {
    const pair = await pairOf();
    const { server, client } = await pair.connected();
    await expect(client.device.close()).rejects.toThrow(/EBUSY: device wasm-mem0 has 1 cm id \(\d+\) and 1 cq/);
    await client.device.close({ force: true });
    await server.id.channel.next();
    expect((await server.id.channel.next({ timeout: 5000 })).type).toBe('DISCONNECTED');
    await server.id.close();
    for (const id of [server.mr, server.cq, server.pd]) await id.close().catch(() => {});
  });

  test('twice, and after the device', async () => {
    const pair = await pairOf();
    const { client } = await pair.connected();
    await client.device.close({ force: true });
    await client.id.close();
    await expect(client.id.disconnect()).rejects.toThrow('is closed');
  });
});

group('channels', () => {
  test('shared: events of all its ids, of requests too, in order', async () => {
    const pair = await pairOf();
    const channel = new EventChannel();
    const listener = await pair.listen({ channel });
    const client = await pair.resolved();
    const connecting = client.id.connect();
    const seen: string[] = [];
    for await (const event of channel) {
      seen.push(`${event.type} ${event.id === listener ? 'listener' : 'request'}`);
      if (event.type === 'CONNECT_REQUEST') {
        expect(event.listenId).toBe(listener);
        const { id } = await pair.withQp(pair.server, event.id);
        void id.accept();
      }
      if (event.type === 'ESTABLISHED') void client.id.disconnect();
      if (event.type === 'DISCONNECTED') channel.close();
    }
    await connecting;
    expect(seen).toEqual(['CONNECT_REQUEST request', 'ESTABLISHED request', 'DISCONNECTED request']);
  });

  test('waiting ends by time, signal and close', async () => {
    const channel = new EventChannel();
    await expect(channel.next({ timeout: 5 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
    const abort = new AbortController();
    const waiting = channel.next({ signal: abort.signal });
    abort.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    await expect(channel.next({ signal: abort.signal })).rejects.toThrow('enough');
    const last = channel.next();
    channel.close();
    await expect(last).rejects.toMatchObject({ code: 'ECANCELED' });
    await expect(channel.next()).rejects.toMatchObject({ code: 'ECANCELED' });
  });
});

test('what is wrong with a call', async () => {
  const pair = await pairOf();
  const id = createCmId(pair.client.device);
  expect(() => createCmId(pair.client.device, { tos: 256 })).toThrow('tos is 256, must be from 0 to 255');
  await expect(id.connect()).rejects.toThrow('is in state IDLE, connect needs ROUTE_RESOLVED');
  await expect(id.bindAddr('10.9.9.9')).rejects.toThrow('EADDRNOTAVAIL: 10.9.9.9 is no address of');
  await expect(id.bindAddr('nonsense')).rejects.toThrow(TypeError);
  await expect(id.resolveAddr('10.0.0.2', 0)).rejects.toThrow(RangeError);
  await expect(id.disconnect()).rejects.toThrow('disconnect needs ESTABLISHED');
  await expect(id.accept()).rejects.toThrow('accept needs REQUESTED');
  await id.resolveAddr(pair.addressOf(pair.server), PORT);
  await id.resolveRoute();
  await expect(id.connect()).rejects.toThrow('qpNum is undefined');
  const { qp } = await pair.withQp(pair.client, id);
  await expect(id.connect({ privateData: new Uint8Array(57) })).rejects.toThrow('57 bytes, there is room for 56');
  await expect(id.connect({ initiatorDepth: 129 })).rejects.toThrow('initiatorDepth is 129');
  await expect(id.connect({ qpNum: qp.qpNum + 1 })).rejects.toThrow('but the id has');
  const listener = await pair.listen();
  await expect(pair.listen()).rejects.toMatchObject({ code: 'EADDRINUSE' });
  await expect(listener.listen()).rejects.toThrow('is in state LISTENING');
});
