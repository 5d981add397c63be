/** Datagram services and multicast groups through the API: two devices. */
import { expect, describe as group, test } from 'vitest';
import { type CmId, createCmId, UDP_QKEY } from '../../src/cm/index.js';
import { GRH_BYTES, type Pd, type Qp, throwIfFailed } from '../../src/index.js';
import { DevicePair, eventsOf, PORT } from './devicepair.js';

const bytes = (text: string) => Buffer.from(text);

test.each([4, 6] as const)('IPv%d: a service is resolved, gets a datagram, and answers it', async (family) => {
  const pair = await DevicePair.forTest();
  const listener = await pair.listen({ space: 'UDP' });
  const client = await pair.resolved({ space: 'UDP' }, pair.addressOf(pair.server, family));
  expect([client.qp.type, client.qp.state]).toEqual(['UD', 'RTS']);
  const connecting = client.id.connect({ privateData: bytes('who?') });
  const request = await listener.getRequest();
  expect(Buffer.from(request.request?.privateData ?? []).toString('utf8', 0, 4)).toBe('who?');
  expect(request.request?.privateData.length).toBe(180);
  const server = await pair.withQp(pair.server, request);
  await server.id.accept({ privateData: bytes('me') });
  const { datagram, privateData } = await connecting;
  expect([datagram?.qpNum, datagram?.qkey]).toEqual([server.qp.qpNum, UDP_QKEY]);
  expect([privateData.length, Buffer.from(privateData).toString('utf8', 0, 2)]).toEqual([136, 'me']);

  if (datagram?.ah === undefined) throw new Error('no address handle');
  const { ah, qpNum, qkey } = datagram;
  client.qp.postSend({
    opcode: 'SEND_WITH_IMM',
    sgList: bytes('hello'),
    ah,
    remoteQpn: qpNum,
    remoteQkey: qkey,
    immData: client.qp.qpNum,
  });
  throwIfFailed(await client.cq.next({ timeout: 20_000 }));
  const wc = await server.cq.next({ timeout: 20_000 });
  throwIfFailed(wc);
  expect(server.mr.buffer.toString('utf8', GRH_BYTES, wc.byteLen)).toBe('hello');
  const back = await server.pd.createAhFromWc(wc, server.mr.buffer);
  server.qp.postSend({ opcode: 'SEND', sgList: bytes('you'), ah: back, remoteQpn: wc.immData, remoteQkey: UDP_QKEY });
  throwIfFailed(await server.cq.next({ timeout: 20_000 }));
  throwIfFailed(await client.cq.next({ timeout: 20_000 }));
  expect(client.mr.buffer.toString('utf8', GRH_BYTES, GRH_BYTES + 3)).toBe('you');
  await back.close();
  await client.id.disconnect();
  for (const { id } of [client, server]) await id.close();
  expect(ah.isClosed).toBe(true);
});

test('a request for a port without a service is refused', async () => {
  const pair = await DevicePair.forTest();
  await (await pair.listen()).close();
  const { id } = await pair.resolved({ space: 'UDP' });
  await expect(id.connect()).rejects.toMatchObject({
    code: 'ECONNREFUSED',
    event: 'UNREACHABLE',
    reason: 'UNSUPPORTED',
    message: `ECONNREFUSED: ${pair.addressOf(pair.server)} port 7471 has no such datagram service: no listener on that port, status 1 (UNSUPPORTED)`,
  });
  expect(eventsOf(id)).toEqual(['ADDR_RESOLVED', 'ROUTE_RESOLVED', 'UNREACHABLE']);
});

test('a service may refuse a request', async () => {
  const pair = await DevicePair.forTest();
  const listener = await pair.listen({ space: 'UDP' });
  const { id } = await pair.resolved({ space: 'UDP' });
  const connecting = id.connect();
  await (await listener.getRequest()).reject({ privateData: bytes('no') });
  const error = await connecting.catch((reason) => reason);
  expect(error).toMatchObject({ code: 'ECONNREFUSED', reason: 'REJECT' });
  expect(Buffer.from(error.privateData).toString('utf8', 0, 2)).toBe('no');
});

test('a service may have its own Q_Key, and no queue pair of the id', async () => {
  const pair = await DevicePair.forTest();
  const listener = await pair.listen({ space: 'UDP' });
  const id = createCmId(pair.client.device, { space: 'UDP' });
  await id.resolveAddr(pair.addressOf(pair.server), PORT);
  await id.resolveRoute();
  const connecting = id.connect();
  await (await listener.getRequest()).accept({ qpNum: 0x77, qkey: 0x1234 });
  expect((await connecting).datagram).toEqual({ ah: undefined, qpNum: 0x77, qkey: 0x1234 });
});

test('an id joins a multicast group, gets its datagrams, and leaves it', async () => {
  const pair = await DevicePair.forTest();
  const group = '239.77.0.1';
  const member = createCmId(pair.server.device, { space: 'UDP' });
  await member.bindAddr(pair.addressOf(pair.server));
  const server = await pair.withQp(pair.server, member);
  await member.joinMulticast(group);
  expect(eventsOf(member)).toEqual(['MULTICAST_JOIN']);

  const sender = createCmId(pair.client.device, { space: 'UDP' });
  await sender.bindAddr(pair.addressOf(pair.client));
  const client = await pair.withQp(pair.client, sender);
  const { ah, qpNum, qkey } = await sender.joinMulticast(group, { sendOnly: true });
  if (ah === undefined) throw new Error('no address handle');
  expect([qpNum, qkey]).toEqual([0xffffff, UDP_QKEY]);
  const send = async (text: string) => {
    client.qp.postSend({ opcode: 'SEND', sgList: bytes(text), ah, remoteQpn: qpNum, remoteQkey: qkey });
    throwIfFailed(await client.cq.next({ timeout: 20_000 }));
  };
  await send('all of you');
  const wc = await server.cq.next({ timeout: 20_000 });
  expect(server.mr.buffer.toString('utf8', GRH_BYTES, wc.byteLen)).toBe('all of you');
  await member.leaveMulticast(group);
  await send('nobody');
  await expect(server.cq.next({ timeout: 20 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  await expect(member.leaveMulticast(group)).rejects.toMatchObject({ code: 'ENOENT' });
  await expect(sender.joinMulticast(group)).rejects.toMatchObject({ code: 'EINVAL' });
  await expect(sender.joinMulticast('10.0.0.1')).rejects.toThrow();
  expect(ah.isClosed).toBe(false);
  await sender.leaveMulticast(group);
  expect(ah.isClosed).toBe(true);
  for (const id of [member, sender]) await id.close();
});

group('an id that is closed', () => {
  const GROUP = '239.77.0.2';

  /** An id for datagrams with its own protection domain, and a queue pair of the application. */
  async function lent(pair: DevicePair): Promise<{ id: CmId; pd: Pd; qp: Qp }> {
    const { device, cq } = pair.client;
    const pd = await device.allocPd();
    const qp = await pd.createQp({ type: 'UD', sendCq: cq });
    const id = createCmId(device, { space: 'UDP' });
    await id.bindAddr(pair.addressOf(pair.client));
    await id.useQp(qp);
    return { id, pd, qp };
  }

  /** Closes the id before its last datagram is sent. @returns the datagram's address handle */
  async function lastWord(id: CmId, qp: Qp) {
    const { ah, qpNum, qkey } = await id.joinMulticast(GROUP, { sendOnly: true });
    if (ah === undefined) throw new Error('no address handle');
    qp.postSend({ opcode: 'SEND', sgList: bytes('bye'), ah, remoteQpn: qpNum, remoteQkey: qkey });
    await id.close();
    return ah;
  }

  test('gives its address handles back, though a datagram is still to go there', async () => {
    const pair = await DevicePair.forTest();
    const { device, cq } = pair.client;
    const pd = await device.allocPd();
    const id = createCmId(device, { space: 'UDP' });
    await id.bindAddr(pair.addressOf(pair.client));
    const ah = await lastWord(id, await id.createQp(pd, { sendCq: cq }));
    expect(ah.isClosed).toBe(true);
    await pd.close();
  });

  test('keeps the address handles of the program’s queue pair until its datagrams are sent, or its domain is closed', async () => {
    const pair = await DevicePair.forTest();
    const [one, other] = [await lent(pair), await lent(pair)];
    const sent = await lastWord(one.id, one.qp);
    expect(sent.isClosed).toBe(false);
    throwIfFailed(await pair.client.cq.next({ timeout: 20_000 }));
    const unsent = await lastWord(other.id, other.qp);
    expect([sent.isClosed, unsent.isClosed]).toEqual([true, false]);
    for (const { qp, pd } of [one, other]) {
      await qp.close();
      await pd.close();
    }
    expect(unsent.isClosed).toBe(true);
  });

  test('joins no more groups', async () => {
    const pair = await DevicePair.forTest();
    for (let steps = 0; steps < 20; steps++) {
      const { id, pd, qp } = await lent(pair);
      const joining = id.joinMulticast(GROUP).catch((error) => error);
      for (let step = 0; step < steps; step++) await undefined;
      await id.close();
      const joined = await joining;
      // it joined before the close, or was rejected
      if (joined instanceof Error)
        expect(joined).toMatchObject({ code: 'ECANCELED', message: expect.stringMatching(/cm id \d+ was closed/) });
      else expect(joined.ah.isClosed).toBe(true);
      await expect(qp.detachMcast(GROUP)).rejects.toMatchObject({ code: 'ENOENT' });
      await qp.close();
      await pd.close();
    }
  });

  test('keeps nothing of a group whose join has failed', async () => {
    const pair = await DevicePair.forTest();
    const { id, qp } = await lent(pair);
    await qp.attachMcast(GROUP);
    const before = qp.device.card.exports.memAvailable();
    await expect(id.joinMulticast(GROUP)).rejects.toMatchObject({ code: 'EINVAL' });
    expect(qp.device.card.exports.memAvailable()).toBe(before);
  });
});
