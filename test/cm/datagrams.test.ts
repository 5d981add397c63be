/** Datagram services and groups of programs: two devices. */
import { expect, test } from 'vitest';
import { createCmId, UDP_QKEY } from '../../src/cm/index.js';
import { GRH_BYTES, throwIfFailed } from '../../src/index.js';
import { eventsOf, Pair, PORT } from './sides.js';

const bytes = (text: string) => Buffer.from(text);

test.each([4, 6] as const)(
  'IPv%d: a service is asked for, a datagram is sent, and answered from where it came',
  async (family) => {
    const pair = await Pair.ofTest();
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
    throwIfFailed(await client.cq.next({ timeout: 5000 }));
    const wc = await server.cq.next({ timeout: 5000 });
    throwIfFailed(wc);
    expect(server.mr.buffer.toString('utf8', GRH_BYTES, wc.byteLen)).toBe('hello');
    const back = await server.pd.createAhFromWc(wc, server.mr.buffer);
    server.qp.postSend({ opcode: 'SEND', sgList: bytes('you'), ah: back, remoteQpn: wc.immData, remoteQkey: UDP_QKEY });
    throwIfFailed(await server.cq.next({ timeout: 5000 }));
    throwIfFailed(await client.cq.next({ timeout: 5000 }));
    expect(client.mr.buffer.toString('utf8', GRH_BYTES, GRH_BYTES + 3)).toBe('you');
    await back.close();
    await client.id.disconnect();
    for (const { id } of [client, server]) await id.close();
    expect(ah.isClosed).toBe(true);
  },
);

test('no such service', async () => {
  const pair = await Pair.ofTest();
  await (await pair.listen()).close();
  const { id } = await pair.resolved({ space: 'UDP' });
  await expect(id.connect()).rejects.toMatchObject({
    code: 'ECONNREFUSED',
    event: 'UNREACHABLE',
    reason: 'UNSUPPORTED',
    message: `ECONNREFUSED: ${pair.addressOf(pair.server)} port 7471 has no such datagram service: nobody listens there, status 1 (UNSUPPORTED)`,
  });
  expect(eventsOf(id)).toEqual(['ADDR_RESOLVED', 'ROUTE_RESOLVED', 'UNREACHABLE']);
});

test('the program says no', async () => {
  const pair = await Pair.ofTest();
  const listener = await pair.listen({ space: 'UDP' });
  const { id } = await pair.resolved({ space: 'UDP' });
  const connecting = id.connect();
  await (await listener.getRequest()).reject({ privateData: bytes('no') });
  const error = await connecting.catch((reason) => reason);
  expect(error).toMatchObject({ code: 'ECONNREFUSED', reason: 'REJECT' });
  expect(Buffer.from(error.privateData).toString('utf8', 0, 2)).toBe('no');
});

test('a Q_Key of the program’s, and a service without a queue pair of the id’s', async () => {
  const pair = await Pair.ofTest();
  const listener = await pair.listen({ space: 'UDP' });
  const id = createCmId(pair.client.device, { space: 'UDP' });
  await id.resolveAddr(pair.addressOf(pair.server), PORT);
  await id.resolveRoute();
  const connecting = id.connect();
  await (await listener.getRequest()).accept({ qpNum: 0x77, qkey: 0x1234 });
  expect((await connecting).datagram).toEqual({ ah: undefined, qpNum: 0x77, qkey: 0x1234 });
});

test('a group: joined, sent to, left', async () => {
  const pair = await Pair.ofTest();
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
    throwIfFailed(await client.cq.next({ timeout: 5000 }));
  };
  await send('all of you');
  const wc = await server.cq.next({ timeout: 5000 });
  expect(server.mr.buffer.toString('utf8', GRH_BYTES, wc.byteLen)).toBe('all of you');
  await member.leaveMulticast(group);
  await send('nobody');
  await expect(server.cq.next({ timeout: 20 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  await expect(member.leaveMulticast(group)).rejects.toMatchObject({ code: 'ENOENT' });
  await expect(sender.joinMulticast(group)).rejects.toMatchObject({ code: 'EINVAL' });
  await expect(sender.joinMulticast('10.0.0.1')).rejects.toThrow();
  for (const id of [member, sender]) await id.close();
});
