/** Failed connection attempts, closed ids, event channels, and invalid calls. */
import { expect, describe as group, test } from 'vitest';
import { CmError, type CmId, createCmId, EventChannel } from '../../src/cm/index.js';
import { DevicePair, eventsOf, PORT } from './devicepair.js';

const bytes = (text: string) => Buffer.from(text);

group('a connection that is not established', () => {
  test('connect fails with ECONNREFUSED when no listener has the port', async () => {
    const pair = await DevicePair.forTest();
    // opens queue pair 1 of the other card
    await (await pair.listen()).close();
    const { id } = await pair.resolved();
    const error = await id.connect().catch((reason) => reason);
    expect(error).toBeInstanceOf(CmError);
    expect(error).toMatchObject({ code: 'ECONNREFUSED', event: 'REJECTED', reason: 'INVALID_SERVICE_ID' });
    expect(error.message).toBe(
      `ECONNREFUSED: ${pair.addressOf(pair.server)} port 7471 refused the connection: no listener on that port, reason 8 (INVALID_SERVICE_ID)`,
    );
    expect(id.state).toBe('FAILED');
    expect(eventsOf(id)).toEqual(['ADDR_RESOLVED', 'ROUTE_RESOLVED', 'REJECTED']);
  });

  test('the client gets the reason and the private data of the server’s rejection', async () => {
    const pair = await DevicePair.forTest();
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
    const pair = await DevicePair.forTest();
    const listener = await pair.listen();
    const { id } = await pair.resolved();
    const connecting = id.connect();
    await (await listener.getRequest()).close();
    await expect(connecting).rejects.toMatchObject({ reason: 'CONSUMER_DEFINED' });
  });

  test('a listener that closes refuses the requests that wait', async () => {
    const pair = await DevicePair.forTest();
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

  test('a request for another type of queue pair than the listener’s is refused', async () => {
    const pair = await DevicePair.forTest();
    await pair.listen({ qpType: 'UC' });
    const { id } = await pair.resolved();
    await expect(id.connect()).rejects.toMatchObject({ reason: 'INVALID_TRANSPORT_TYPE' });
  });

  test('a request beyond the backlog is refused with NO_RESOURCES', async () => {
    const pair = await DevicePair.forTest();
    await pair.listen({}, 1);
    const first = await pair.resolved();
    void first.id.connect();
    const second = await pair.resolved();
    await expect(second.id.connect()).rejects.toMatchObject({ reason: 'NO_RESOURCES' });
  });

  group('a client that offers more READs than a server takes', () => {
    const most = { responderResources: 128, initiatorDepth: 20 };
    const few = { reason: 'INSUFFICIENT_RESP_RESOURCES' } as const;

    /** Refuses requests in these ways, and returns the depths that they ask for; the last one is accepted. */
    async function refuse(pair: DevicePair, listener: CmId, ways: readonly Parameters<CmId['reject']>[0][]) {
      const asked: number[][] = [];
      for (const way of [...ways, 'accept'] as const) {
        const request = await listener.getRequest({ timeout: 20_000 });
        asked.push([request.request?.initiatorDepth ?? -1, request.request?.responderResources ?? -1]);
        if (way === 'accept') void (await pair.withQp(pair.server, request)).id.accept();
        else await request.reject(way);
      }
      return asked;
    }

    test.each([
      [
        'without a word',
        [{}],
        [
          [128, 20],
          [16, 16],
        ],
      ],
      [
        'for want of resources, and again',
        [few, few],
        [
          [128, 20],
          [16, 16],
          [1, 1],
        ],
      ],
    ])('offers fewer after a refusal %s', async (_, ways, offers) => {
      const pair = await DevicePair.forTest();
      const listener = await pair.listen();
      const { id, qp } = await pair.resolved();
      const connecting = id.connect(most);
      expect(await refuse(pair, listener, ways)).toEqual(offers);
      await connecting;
      expect(eventsOf(id)).toEqual(['ADDR_RESOLVED', 'ROUTE_RESOLVED', 'ESTABLISHED']);
      expect(qp.query()).toMatchObject({ maxRdAtomic: offers.at(-1)?.[1], maxDestRdAtomic: offers.at(-1)?.[0] });
    });

    test.each([
      ['with a word', most, { privateData: bytes('no') }],
      ['for another reason', most, { reason: 'NO_RESOURCES' } as const],
      ['without a word, and it was not many', {}, {}],
      ['for want of resources, and there is no less', { responderResources: 1, initiatorDepth: 0 }, few],
    ])('does not ask again after a refusal %s', async (_, param, way) => {
      const pair = await DevicePair.forTest();
      const listener = await pair.listen();
      const { id } = await pair.resolved();
      const connecting = id.connect(param);
      await (await listener.getRequest()).reject(way);
      await expect(connecting).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    });
  });

  test('a client whose queue pair cannot be brought up rejects the REP', async () => {
    const pair = await DevicePair.forTest();
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

  test('the server of a request that the client gives up gets REJECTED', async () => {
    const pair = await DevicePair.forTest();
    const listener = await pair.listen();
    const { id } = await pair.resolved();
    const connecting = id.connect();
    const request = await listener.getRequest();
    await id.close();
    await expect(connecting).rejects.toMatchObject({ code: 'ECANCELED' });
    expect((await request.channel.next({ timeout: 20_000 })).type).toBe('REJECTED');
    const gone = { code: 'ECONNRESET', event: 'REJECTED', reason: 'TIMEOUT' };
    await expect(request.accept({ qpNum: 5 })).rejects.toMatchObject(gone);
    expect(() => request.acceptAttributes({ qpNum: 5 })).toThrow('ECONNRESET');
    await expect(request.reject()).rejects.toThrow('is in state FAILED, reject needs REQUESTED');
    await request.close();
    await expect(request.accept()).rejects.toThrow('is closed');
  });

  test('resolveAddr fails for an address that nobody has', async () => {
    const pair = await DevicePair.forTest();
    const id = createCmId(pair.client.device);
    await expect(id.resolveAddr('10.0.0.99', 1)).rejects.toMatchObject({ code: 'EHOSTUNREACH' });
    expect(eventsOf(id)).toEqual(['ADDR_ERROR']);
    expect(id.state).toBe('IDLE');
  });
});

group('closing', () => {
  test('closing an established id sends a DREQ', async () => {
    const pair = await DevicePair.forTest();
    const { client, server } = await pair.connected();
    await client.id.close();
    await server.id.channel.next();
    expect((await server.id.channel.next({ timeout: 20_000 })).type).toBe('DISCONNECTED');
  });

  test('open ids keep a device open, its MAD agent does not; a forced close sends a DREQ for each connection', async () => {
    const pair = await DevicePair.forTest();
    const { server, client } = await pair.connected();
    await expect(client.device.close()).rejects.toThrow(/EBUSY: device wasm-mem0 has 1 cm id \(\d+\) and 1 cq/);
    await client.device.close({ force: true });
    await server.id.channel.next();
    expect((await server.id.channel.next({ timeout: 20_000 })).type).toBe('DISCONNECTED');
    await server.id.close();
    for (const id of [server.mr, server.cq, server.pd]) await id.close().catch(() => {});
  });

  test('a second close, and one after the device’s, does nothing', async () => {
    const pair = await DevicePair.forTest();
    const { client } = await pair.connected();
    await client.device.close({ force: true });
    await client.id.close();
    await expect(client.id.disconnect()).rejects.toThrow('is closed');
  });
});

group('channels', () => {
  test('a shared channel gets the events of all its ids and requests, in order', async () => {
    const pair = await DevicePair.forTest();
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

  test('a wait for an event ends by timeout, signal and close', async () => {
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

test('calls with wrong arguments throw', async () => {
  const pair = await DevicePair.forTest();
  const id = createCmId(pair.client.device);
  expect(() => createCmId(pair.client.device, { tos: 256 })).toThrow('tos is 256, must be from 0 to 255');
  await expect(id.connect()).rejects.toThrow('is in state IDLE, connect needs ROUTE_RESOLVED');
  await expect(id.bindAddr('10.9.9.9')).rejects.toThrow('EADDRNOTAVAIL: 10.9.9.9 is not an address of');
  await expect(id.bindAddr('nonsense')).rejects.toThrow(TypeError);
  await expect(id.resolveAddr('10.0.0.2', 65536)).rejects.toThrow(RangeError);
  await expect(id.disconnect()).rejects.toThrow('disconnect needs ESTABLISHED');
  await expect(id.accept()).rejects.toThrow('accept needs REQUESTED');
  await id.resolveAddr(pair.addressOf(pair.server), PORT);
  await id.resolveRoute();
  await expect(id.connect()).rejects.toThrow('qpNum is undefined');
  const portless = createCmId(pair.client.device);
  await portless.resolveAddr(pair.addressOf(pair.server), 0);
  await portless.resolveRoute();
  await expect(portless.connect({ qpNum: 2 })).rejects.toThrow(/^EINVAL: cm id \d+ was resolved without a port$/);
  const { qp } = await pair.withQp(pair.client, id);
  await expect(id.connect({ privateData: new Uint8Array(57) })).rejects.toThrow('57 bytes, must have at most 56');
  await expect(id.connect({ initiatorDepth: 129 })).rejects.toThrow('initiatorDepth is 129');
  await expect(id.connect({ qpNum: qp.qpNum + 1 })).rejects.toThrow('but the id has');
  const listener = await pair.listen();
  await expect(pair.listen()).rejects.toMatchObject({ code: 'EADDRINUSE' });
  await expect(listener.listen()).rejects.toThrow('is in state LISTENING');
});
