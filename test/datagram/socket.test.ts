// Datagram sockets: two devices over the memory link; in worker mode, some over the udp link.
import { once } from 'node:events';
import { inspect } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import {
  createCmId,
  createMemoryHub,
  type DatagramSocket,
  type DatagramSocketOptions,
  type Device,
  GRH_BYTES,
  openDevice,
  UDP_QKEY,
} from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { loopback, mode } from '../verbs/pair.js';

const PORT = 7471;

/** Two devices that are closed after the current test. */
async function devices(link: 'memory' | 'udp' = 'memory'): Promise<[Device, Device]> {
  const hub = createMemoryHub();
  const open = () =>
    openDevice({ memoryBytes: 24 * 2 ** 20, ...(link === 'udp' ? loopback() : { link: 'memory', hub }) });
  const pair: [Device, Device] = [await open(), await open()];
  onTestFinished(async () => {
    for (const device of pair) await device.close({ force: true });
  });
  return pair;
}

const addressOf = ({ gids }: Device, family: 4 | 6 = 4) =>
  gids.find(({ address }) => address.includes(':') === (family === 6) && !address.startsWith('fe80'))
    ?.address as string;

/** A socket of the second device that listens on the port, and one of the first. */
async function sockets(options: DatagramSocketOptions = {}): Promise<{
  client: DatagramSocket;
  server: DatagramSocket;
  host: string;
}> {
  const [a, b] = await devices();
  const server = await b.createSocket(options).bind(PORT);
  return { client: a.createSocket(options), server, host: addressOf(b) };
}

/** The address handle of the way from one device to another, and a UD queue pair, for foreign datagrams. */
async function foreignPeer(device: Device, host: string) {
  const pd = await device.allocPd();
  const cq = await device.createCq();
  const mr = await pd.regMr(8192);
  const id = createCmId(device, { space: 'UDP' });
  await id.resolveAddr(host, PORT);
  await id.resolveRoute();
  const qp = await id.createQp(pd, { sendCq: cq, maxSendWr: 64, maxRecvWr: 8 });
  return { id, pd, cq, mr, qp };
}

describe.each([mode === 'worker' ? 'udp' : 'memory'] as const)('datagram sockets over the %s link', (link) => {
  test.each(link === 'memory' ? ([4, 6] as const) : ([4] as const))(
    'IPv%d: a message arrives at a port, its reply at the sender, and a message at the port of the reply',
    async (family) => {
      const [a, b] = await devices(link);
      const server = b.createSocket();
      const listening = once(server, 'listening');
      expect(await server.bind(PORT)).toBe(server);
      await listening;
      expect(server.address()).toEqual({ address: '::', family: 'IPv6', port: PORT });
      server.on('message', (data, rinfo) => void server.send(`${data}, ${rinfo.size}, ${rinfo.port}`, rinfo));
      const client = a.createSocket();
      const host = addressOf(b, family);
      await client.send('grüße', PORT, host);
      const message = await client.receive();
      expect(`${message?.data}`).toBe('grüße, 7, 0');
      // The queue pair of a port that the socket has sent to is known.
      expect(message?.rinfo).toEqual({
        address: host,
        family: `IPv${family}`,
        port: PORT,
        size: 13,
        qpNum: server.qp.qpNum,
        localAddress: addressOf(a, family),
      });
      await client.send(Uint8Array.of(55), message?.rinfo.port ?? 0, message?.rinfo.address ?? '');
      expect(`${(await client.receive())?.data}`).toBe('7, 1, 0');
      await client.send('', PORT, host);
      expect(`${(await client.receive())?.data}`).toBe(', 0, 0');
      await client.close();
      await server.close();
      await a.close();
      await b.close();
    },
  );

  test('a multicast group: members get what any host sends to it, until they leave', async () => {
    const [a, b] = await devices(link);
    const [one, two] = [await b.createSocket().bind(PORT), await b.createSocket().bind(PORT + 1)];
    const group = `239.77.${(process.pid >>> 8) & 255}.${process.pid & 255}`;
    await one.addMembership(group);
    await two.addMembership(group);
    const sender = await a.createSocket().bind(0, addressOf(a));
    await sender.send('all of you', PORT, group);
    for (const member of [one, two]) {
      const { data, rinfo } = (await member.receive()) ?? {};
      expect([`${data}`, rinfo?.localAddress, rinfo?.address]).toEqual(['all of you', group, addressOf(a)]);
      await member.send('here', rinfo as NonNullable<typeof rinfo>);
      expect((await sender.receive())?.rinfo.address).toBe(addressOf(b));
    }
    await two.dropMembership(group);
    await sender.send('who is left?', PORT, group);
    expect(`${(await one.receive())?.data}`).toBe('who is left?');
    await expect(two.receive({ timeout: 20 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
    await expect(two.dropMembership(group)).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(one.addMembership(group)).rejects.toMatchObject({ code: 'EINVAL' });
    await expect(one.addMembership('10.0.0.1')).rejects.toThrow('no multicast group');
  });
});

test('send refuses a message longer than the path MTU', async () => {
  const { client, host } = await sockets();
  await client.send(Buffer.alloc(4096), PORT, host);
  await expect(client.send(Buffer.alloc(4097), PORT, host)).rejects.toMatchObject({
    code: 'EMSGSIZE',
    message: `EMSGSIZE: the message has 4097 bytes, at most the path MTU to ${host}, 4096, is allowed`,
    syscall: 'send',
    address: host,
    port: PORT,
  });
});

test('send to a port without a socket fails with ECONNREFUSED', async () => {
  const { client, host } = await sockets();
  await expect(client.send('hello', 9, host)).rejects.toMatchObject({
    code: 'ECONNREFUSED',
    syscall: 'send',
    address: host,
    port: 9,
    message: expect.stringContaining('no listener on that port'),
  });
});

test('bind refuses a taken port and a foreign address, and calls refuse wrong arguments', async () => {
  const [a, b] = await devices();
  await a.createSocket().bind(PORT);
  const socket = a.createSocket();
  const taken = { code: 'EADDRINUSE', syscall: 'bind', address: '::', port: PORT };
  await expect(socket.bind(PORT)).rejects.toMatchObject(taken);
  await expect(socket.bind(0, '10.9.9.9')).rejects.toMatchObject({ code: 'EADDRNOTAVAIL' });
  expect(() => socket.address()).toThrow('EINVAL: the socket is not bound');
  expect(() => socket.qp).toThrow('EINVAL: the socket is not bound');
  await socket.bind();
  expect(socket.address().port).toBeGreaterThan(1023);
  await expect(socket.bind()).rejects.toThrow('EINVAL: the socket is bound already');
  const host = addressOf(b);
  const wrong: [Promise<unknown>, string][] = [
    [socket.send(5 as never, PORT, host), 'the message is 5, must be text or bytes'],
    [socket.send('a'), 'port is undefined, must be an integer'],
    [socket.send('a', 0, host), 'port is 0, must be from 1 to 65535'],
    [socket.send('a', PORT, undefined as never), 'address is undefined, must be text'],
    [socket.send('a', PORT, host, { timoeut: 5 } as never), "no option 'timoeut'"],
    [socket.send('a', { address: host } as never), 'qpNum is undefined'],
    [socket.send('a', { address: host, qpNum: 2 ** 24 }), 'qpNum is 16777216, must be from 0 to 16777215'],
    [socket.send('a', { address: 'host', qpNum: 2 }), "'host' is no GID"],
    [socket.bind('7471' as never), "port is '7471', must be an integer"],
    [socket.connect(0, host), 'port is 0, must be from 1 to 65535'],
  ];
  for (const [call, message] of wrong) await expect(call).rejects.toThrow(message);
  for (const options of [{ recieves: 1 }, { receives: 0 }, { peers: 'all' }, { signal: 1 }])
    expect(() => a.createSocket(options as never)).toThrow(/recieves|receives is 0|peers is 'all'|signal is 1/);
});

test('a peer that restarts is found by its new queue pair', async () => {
  const [a, b] = await devices();
  const host = addressOf(b);
  const client = a.createSocket({ refreshInterval: 0 });
  let server = await b.createSocket().bind(PORT);
  await client.send('one', PORT, host);
  expect(`${(await server.receive())?.data}`).toBe('one');
  const old = server.qp.qpNum;
  await server.close();
  server = await b.createSocket().bind(PORT);
  expect(server.qp.qpNum).not.toBe(old);
  // The first goes to the old queue pair, and asks for the new one.
  const message = await eventually(async () => {
    await client.send('two', PORT, host);
    return server.receive({ timeout: 5 });
  });
  expect(`${message?.data}`).toBe('two');
  await server.close();
  // And one that is gone is reported.
  await eventually(() => expect(client.send('three', PORT, host)).rejects.toMatchObject({ code: 'ECONNREFUSED' }));
});

test('any number of destinations and senders takes a bounded amount of memory', async () => {
  const [a, b] = await devices();
  const host = addressOf(b);
  const server = await b.createSocket({ receives: 16 }).bind(PORT);
  const others = [server];
  for (let i = 1; i < 40; i++) others.push(await b.createSocket({ receives: 4, sends: 1 }).bind(PORT + i));
  const client = await a.createSocket({ peers: 8 }).bind();
  for (let round = 0; round < 2; round++) for (let i = 0; i < 40; i++) await client.send(`${i}`, PORT + i, host);
  for (const other of others) await eventually(() => expect(other.qp.counters().rdma_recvs).toBe(2));
  // Those that were used last are known.
  for (const [i, other] of others.entries()) {
    await other.send('x', { address: addressOf(a), qpNum: client.qp.qpNum });
    expect((await client.receive())?.rinfo.port).toBe(i < 32 ? 0 : PORT + i);
  }
  // More at once than may be asked at once.
  const sent = await Promise.allSettled(others.map((_, i) => client.send('y', PORT + i, host)));
  const failed = sent.filter(({ status }) => status === 'rejected');
  expect(failed.length).toBeGreaterThan(0);
  for (const { reason } of failed as PromiseRejectedResult[]) expect(reason).toMatchObject({ code: 'ENOMEM' });

  // Thousands of senders: each reply needs an address handle.
  const free = b.card.exports.memAvailable();
  for (let i = 0; i < 2000; i++) await server.send('reply', { address: `239.9.${i >> 8}.${i & 255}`, qpNum: 0x77 + i });
  const bytes = free - b.card.exports.memAvailable();
  for (let i = 2000; i < 4000; i++)
    await server.send('reply', { address: `239.9.${i >> 8}.${i & 255}`, qpNum: 0x77 + i });
  expect(free - b.card.exports.memAvailable()).toBe(bytes);
});

test('a message that arrives while all receives are in use is dropped and counted', async () => {
  const { client, server, host } = await sockets({ receives: 4 });
  for (let i = 0; i < 10; i++) await client.send(`${i}`, PORT, host);
  await eventually(() => expect(server.qp.counters().drop_no_receive).toBe(6));
  const got: string[] = [];
  server.on('message', (data) => got.push(`${data}`));
  await eventually(() => expect(got).toEqual(['0', '1', '2', '3']));
  await client.send('later', PORT, host);
  await eventually(() => expect(got.at(-1)).toBe('later'));
  server.removeAllListeners('message');
  await client.send('to the loop', PORT, host);
  for await (const { data } of server) {
    expect(`${data}`).toBe('to the loop');
    break;
  }
});

test('close fails pending sends and ends waiting readers, and the device closes without force', async () => {
  const [a, b] = await devices();
  const host = addressOf(b);
  const server = await b.createSocket().bind(PORT);
  const client = a.createSocket();
  // Nobody has this address.
  const lost = client.send('hello', PORT, '10.0.0.99').catch((error) => error);
  const unanswered = a.createSocket();
  const silent = createCmId(b, { space: 'UDP' });
  await silent.bindAddr('::', 9);
  await silent.listen();
  const asking = unanswered.send('hello', 9, host).catch((error) => error);
  await client.send('in time', PORT, host);
  const sent = client.send('still sent', PORT, host);
  const reading = client.receive();
  const closed = once(client, 'close');
  await Promise.all([client.close(), client.close(), unanswered.close()]);
  await closed;
  expect(await lost).toMatchObject({ code: expect.stringMatching(/ECANCELED|EHOSTUNREACH/) });
  expect(await asking).toMatchObject({ code: 'ECANCELED', message: 'ECANCELED: the socket was closed' });
  await sent.catch((error) => expect(error.code).toBe('ECANCELED'));
  expect(await reading).toBeUndefined();
  expect(await client.receive()).toBeUndefined();
  await expect(client.send('late', PORT, host)).rejects.toThrow('EINVAL: the socket is closed');
  await expect(client.bind()).rejects.toThrow('EINVAL: the socket is closed');
  await silent.close();
  // Closes the sockets that are left.
  await a.close();
  await b.close();
  expect(await server.receive()).toBeUndefined();
});

test('a socket may be closed while it is bound', async () => {
  const [a] = await devices();
  const socket = a.createSocket();
  const binding = socket.bind(PORT).catch((error) => error);
  await socket.close();
  expect(await binding).toMatchObject({ code: 'ECANCELED' });
  await a.createSocket().bind(PORT);
  const destroyed = a.createSocket();
  const other = destroyed.bind(PORT + 1).catch((error) => error);
  await a.close({ force: true });
  expect(await other).toBeInstanceOf(Error);
});

test('signals and timeouts end the calls of a socket', async () => {
  const [a, b] = await devices();
  const host = addressOf(b);
  const silent = createCmId(b, { space: 'UDP' });
  await silent.bindAddr('::', 9);
  await silent.listen();
  const socket = await a.createSocket().bind();
  const { signal } = new AbortController();
  await expect(socket.send('a', 9, host, { timeout: 5, signal })).rejects.toMatchObject({
    code: 'ETIMEDOUT',
    message: `ETIMEDOUT: no datagram sent to ${host} within 5 ms`,
    syscall: 'send',
  });
  const reason = new Error('enough');
  await expect(socket.send('a', 9, host, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  await expect(socket.connect(9, host, { timeout: 5 })).rejects.toMatchObject({
    code: 'ETIMEDOUT',
    syscall: 'connect',
  });
  const abort = new AbortController();
  const bySignal = await a.createSocket({ signal: abort.signal }).bind(PORT);
  const closed = once(bySignal, 'close');
  abort.abort();
  await closed;
  const early = a.createSocket({ signal: abort.signal });
  await once(early, 'close');
});

test('a connected socket sends without a destination, and receives messages of its peer only', async () => {
  const { client, server, host } = await sockets();
  const connected = once(client, 'connect');
  expect(() => client.remoteAddress()).toThrow('EINVAL: the socket is not connected');
  await client.connect(PORT, host);
  await connected;
  expect(client.remoteAddress()).toEqual({ address: host, family: 'IPv4', port: PORT });
  await client.send('hello');
  const { rinfo } = (await server.receive()) ?? {};
  if (rinfo === undefined) throw new Error('no message');
  await expect(client.send('x', PORT, host)).rejects.toThrow('the socket is connected');
  await server.send('you', rinfo);
  expect(`${(await client.receive())?.data}`).toBe('you');
  client.disconnect();
  expect(() => client.disconnect()).toThrow('not connected');
  await expect(client.send('hello')).rejects.toThrow('port is undefined');
});

test('a connected socket drops messages of others', async () => {
  const [a, b] = await devices();
  const server = await b.createSocket().bind(PORT);
  const other = await b.createSocket().bind(PORT + 1);
  const client = await a.createSocket().bind();
  await client.connect(PORT, addressOf(b));
  const to = { address: addressOf(a), qpNum: client.qp.qpNum };
  await other.send('I am another', to);
  await server.send('it is me', to);
  expect(`${(await client.receive())?.data}`).toBe('it is me');
});

test('a queue pair of rdma_cm is a peer in either role', async () => {
  const [a, b] = await devices();
  const host = addressOf(b);
  const server = await b.createSocket().bind(PORT);
  const foreign = await foreignPeer(a, host);
  const { datagram } = await foreign.id.connect();
  expect([datagram?.qpNum, datagram?.qkey]).toEqual([server.qp.qpNum, UDP_QKEY]);
  const { ah, qpNum: remoteQpn = 0, qkey: remoteQkey = 0 } = datagram ?? {};
  foreign.qp.postRecv({ wrId: 1, sgList: foreign.mr.sge(0, 1024) });
  foreign.qp.postSend({ opcode: 'SEND', sgList: Buffer.from('hello'), ...(ah && { ah }), remoteQpn, remoteQkey });
  const { data, rinfo } = (await server.receive()) ?? {};
  expect([`${data}`, rinfo?.qpNum]).toEqual(['hello', foreign.qp.qpNum]);
  await server.send('and you', rinfo as NonNullable<typeof rinfo>);
  await foreign.cq.next();
  const wc = await foreign.cq.next();
  expect(foreign.mr.buffer.toString('utf8', GRH_BYTES, wc.byteLen)).toBe('and you');
  // As udaddy and mckey expect it.
  expect(wc.immData).toBe(server.qp.qpNum);
});

test('random datagrams do not disturb a socket', async () => {
  const [a, b] = await devices();
  const host = addressOf(b);
  const server = await b.createSocket({ receives: 8 }).bind(PORT);
  const { qp, pd, mr, cq } = await foreignPeer(a, host);
  const ah = await pd.createAh({ grh: { dgid: host } });
  const to = { ah, remoteQpn: server.qp.qpNum };
  const send = async (bytes: number, remoteQkey: number, remoteQpn = to.remoteQpn) => {
    qp.postSend({ opcode: 'SEND', sgList: mr.sge(0, bytes), ...to, remoteQpn, remoteQkey, signaled: true });
    await cq.next();
  };
  await send(100, 0x1111);
  // to queue pair 1: no MADs
  for (const bytes of [0, 1, 255, 256, 1000]) await send(bytes, 0x80010000, 1);
  await send(4096, UDP_QKEY);
  expect((await server.receive())?.data.length).toBe(4096);
  await expect(server.receive({ timeout: 5 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  // a flood
  for (let i = 0; i < 100; i++) await send(0, UDP_QKEY);
  expect((await server.receive())?.data.length).toBe(0);
  const client = a.createSocket();
  server.on('message', () => {});
  await client.send('still there?', PORT, host);
});

test('an exception of a listener stops neither the others nor the socket', async () => {
  const { client, server, host } = await sockets();
  const uncaught: unknown[] = [];
  const listeners = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException').on('uncaughtException', (error) => uncaught.push(error));
  onTestFinished(() => {
    process.removeAllListeners('uncaughtException');
    for (const listener of listeners) process.on('uncaughtException', listener);
  });
  const got: string[] = [];
  server.on('message', (data) => {
    got.push(`${data}`);
    if (got.length === 1) throw new Error('of the listener');
  });
  await client.send('one', PORT, host);
  await client.send('two', PORT, host);
  await eventually(() => expect(got).toEqual(['one', 'two']));
  expect(uncaught).toEqual([new Error('of the listener')]);
});

test('a device has one listener for all of its sockets', async () => {
  const [a] = await devices();
  const before = a.listenerCount('event');
  for (let i = 0; i < 12; i++) await a.createSocket({ receives: 1, sends: 1 }).bind();
  // One is that of the connection manager.
  expect(a.listenerCount('event') - before).toBe(2);
});

test('a failed device gives its error to the reader, or to the event', async () => {
  const [a] = await devices();
  const [one, two] = [await a.createSocket().bind(), await a.createSocket().bind()];
  const reading = one.receive().catch((error) => error);
  const failed = once(two, 'error');
  const closed = [one, two].map((socket) => new Promise<void>((resolve) => socket.on('close', resolve)));
  (a as unknown as { fail(why: string): void }).fail('test');
  expect(await reading).toMatchObject({ code: 'EIO' });
  expect(await failed).toMatchObject([{ code: 'EIO' }]);
  await Promise.all(closed);
});

test('a socket describes itself to the console and to JSON', async () => {
  const { client, server, host } = await sockets();
  expect(inspect(client)).toBe('DatagramSocket { isBound: false }');
  await client.connect(PORT, host);
  const remote = { address: host, family: 'IPv4', port: PORT };
  expect(JSON.parse(JSON.stringify(client))).toMatchObject({ qpNum: client.qp.qpNum, remote });
  await server.close();
  expect(inspect(server)).toBe('DatagramSocket { isClosed: true }');
});
