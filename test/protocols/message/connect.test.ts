// Connections by address and port: listen, accept, connect; rejections, disconnects, peers that vanish.
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { afterEach, expect, test } from 'vitest';
import { type Connection, createCmId, type Device, MemoryHub, type Server } from '../../../src/index.js';
import { eventually } from '../../kit/eventually.js';
import { families, openOn } from '../../verbs/pair.js';

const PORT = 7471;
const devices: Device[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) await device.close({ force: true });
});

async function twoDevices(): Promise<readonly [Device, Device]> {
  const hub = new MemoryHub();
  const pair = [await openOn(hub), await openOn(hub, { seed: 2 })] as const;
  devices.push(...pair);
  return pair;
}

const address = (device: Device, family = 4) =>
  device.gids.find((gid) => gid.address.includes(':') === (family === 6))?.address as string;

/** Serves every request with the same function, until the server is closed. */
function serve(server: Server, work: (connection: Connection) => unknown): Promise<void> {
  return (async () => {
    for await (const request of server) void request.accept().then(work);
  })();
}

test.each(families)('messages are echoed over IPv%d, with private data both ways', async (family) => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const serving = (async () => {
    for await (const request of server) {
      expect(Buffer.from(request.privateData).toString('latin1', 0, 5)).toBe('knock');
      const connection = await request.accept({ privateData: Buffer.from('come in') });
      expect(connection.remoteAddress).toBe(address(a, family));
      for await (const { data } of connection) await connection.send(data);
      await connection.close();
    }
  })();
  const connection = await a.connect({ host: address(b, family), port: PORT, privateData: Buffer.from('knock') });
  expect(Buffer.from(connection.privateData).toString('latin1', 0, 7)).toBe('come in');
  expect([connection.remoteAddress, connection.remotePort]).toEqual([address(b, family), PORT]);
  for (const text of ['one', 'two']) {
    await connection.send(Buffer.from(text));
    expect((await connection.receive())?.data.toString()).toBe(text);
  }
  await connection.close();
  await server.close();
  await serving;
});

test('a peer’s memory is used after a message has named it', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: 0 });
  void serve(server, async (connection) => {
    const mr = await connection.share(4096);
    mr.buffer.write('to be read');
    await connection.send(Buffer.from(JSON.stringify(mr.remote)));
  });
  await using connection = await a.connect({ host: address(b), port: server.address.port });
  const remote = JSON.parse(`${(await connection.receive())?.data}`);
  expect((await connection.read(remote, { length: 10 })).toString()).toBe('to be read');
  await connection.write(remote, Buffer.from('written'), { offset: 100 });
  expect(await connection.fetchAdd(remote, 3n, { offset: 200 })).toBe(0n);
  expect((await connection.read(remote, { offset: 100, length: 7 })).toString()).toBe('written');
  await server.close();
});

test('streams in a pipeline end, and both connections close', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const served = new Promise<unknown>((done) => {
    void serve(server, async (connection) => {
      const closed = once(connection, 'close');
      const stream = connection.stream();
      await pipeline(stream, stream);
      done(closed);
    });
  });
  const connection = await a.connect({ host: address(b), port: PORT });
  const stream = connection.stream();
  stream.end(Buffer.alloc(300_000, 7));
  let bytes = 0;
  for await (const chunk of stream) bytes += chunk.length;
  expect(bytes).toBe(300_000);
  expect(await served).toEqual([undefined]);
  await server.close();
});

test('connect fails without a listener, after a refusal, and for an impossible port', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  await expect(a.connect({ host: address(b), port: PORT + 1 })).rejects.toMatchObject({
    code: 'ECONNREFUSED',
    reason: 'INVALID_SERVICE_ID',
  });
  void (async () => {
    for await (const request of server) await request.reject({ privateData: Buffer.from('not you') });
  })();
  const refused = a.connect({ host: address(b), port: PORT });
  await expect(refused).rejects.toMatchObject({ code: 'ECONNREFUSED', reason: 'CONSUMER_DEFINED' });
  const error = await refused.catch((error) => error);
  expect(Buffer.from(error.privateData).toString('latin1', 0, 7)).toBe('not you');
  await expect(a.connect({ host: address(b), port: 0 })).rejects.toThrow(RangeError);
  await server.close();
});

test('a connect that is given up leaves nothing', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  await expect(a.connect({ host: address(b), port: PORT, timeout: 20 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  await server.close();
  await a.close();
});

test('at any of its steps', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  for (let steps = 0; steps < 100; steps++) {
    const abort = new AbortController();
    const dialing = a.connect({ host: address(b), port: PORT, signal: abort.signal });
    for (let step = 0; step < steps; step++) await undefined;
    abort.abort(new Error('enough'));
    await expect(dialing).rejects.toThrow('enough');
    // At most queue pair 1 is left.
    expect(a.qps().every(({ qpNum }) => qpNum === 1)).toBe(true);
  }
  await server.close();
  // Without force: no object is open.
  await a.close();
});

test('wrong options leave nothing behind, at either end', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const wrong = { receives: 1 };
  await expect(a.connect({ host: address(b), port: PORT, ...wrong })).rejects.toThrow(RangeError);
  const connecting = a.connect({ host: address(b), port: PORT });
  const refused = expect(connecting).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  await expect((await server.next())?.accept(wrong)).rejects.toThrow(RangeError);
  await refused;
  await server.close();
  await a.close();
  await b.close();
});

test('the wait for a request can be given up, and ends with the server', async () => {
  const [, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  await expect(server.next({ timeout: 5 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  await expect(server.next({ signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow('enough');
  const next = server.next();
  await server.close();
  expect([await next, await server.next()]).toEqual([undefined, undefined]);
});

test('after the other end’s close its messages are read, then the end', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  void serve(server, async (connection) => {
    for (const text of ['a', 'b', 'c']) void connection.send(Buffer.from(text));
    await connection.close();
  });
  const connection = await a.connect({ host: address(b), port: PORT });
  const closed = once(connection, 'close');
  let heard = '';
  for await (const { data } of connection) heard += data;
  expect(heard).toBe('abc');
  expect(await closed).toEqual([undefined]);
  await server.close();
});

test('a hundred connections in a row leave nothing at either end', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  void serve(server, async (connection) => {
    for await (const { data } of connection) await connection.send(data);
    await connection.close();
  });
  const free = () => [a, b].map((device) => device.card.exports.memAvailable());
  let before: number[] = [];
  for (let i = 0; i < 100; i++) {
    const connection = await a.connect({ host: address(b), port: PORT });
    await connection.send(Buffer.from([i]));
    expect((await connection.receive())?.data[0]).toBe(i);
    await connection.close();
    if (i === 50) {
      await eventually(() => expect(b.qps().length).toBe(1));
      before = free();
    }
  }
  await eventually(() => expect(b.qps().length).toBe(1));
  expect(a.qps().length).toBe(1);
  // The connection manager keeps both ends in TIMEWAIT for a while.
  await eventually(() => expect(free()).toEqual(before));
  await server.close();
});

test('a program of rdma_cm is a peer', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const accepted = new Promise<Connection>((done) => void serve(server, done));
  const id = createCmId(a);
  const pd = await a.allocPd();
  const cq = await a.createCq();
  const mr = await pd.regMr(4096);
  await id.resolveAddr(address(b), PORT);
  await id.resolveRoute();
  const qp = await id.createQp(pd, { sendCq: cq });
  await id.connect();
  qp.postSend({ opcode: 'SEND', sgList: mr.sge(0, 5) });
  expect((await (await accepted).receive())?.data.length).toBe(5);
  await id.disconnect();
  expect(await (await accepted).receive()).toBeUndefined();
  await id.close();
  await server.close();
});
