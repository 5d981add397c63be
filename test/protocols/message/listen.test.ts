// The expectations of a Node program of devices, servers and connections.
import { getEventListeners, once } from 'node:events';
import { inspect } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Connection, createCmId, createMemoryHub, type Device, openDevice } from '../../../src/index.js';

const HOST = '10.0.0.1';
let device: Device;
let client: Device;

beforeEach(async () => {
  const hub = createMemoryHub();
  device = await openDevice({ hub });
  client = await openDevice({ hub });
});
afterEach(async () => {
  await client.close({ force: true });
  await device.close({ force: true });
});

test.each<[string, () => ReturnType<Device['listen']>, string]>([
  ['(port)', () => device.listen(7471), '::'],
  ['(port, host)', () => device.listen(7471, HOST), HOST],
  ['(port, host, options)', () => device.listen(7471, HOST, { backlog: 5 }), HOST],
  ['({ port })', () => device.listen({ port: 7471 }), '::'],
  ['({ port, host })', () => device.listen({ port: 7471, host: HOST }), HOST],
])('listen works with the arguments%s', async (_form, listen, address) => {
  const server = await listen();
  expect(server.address).toEqual({ address, port: 7471 });
});

test.each<[string, () => Promise<unknown>, string, RegExp]>([
  ["listen('7471')", () => device.listen('7471' as never), 'ERR_INVALID_ARG_TYPE', /options of listen are '7471'/],
  ['listen()', () => (device.listen as () => Promise<unknown>)(), 'ERR_INVALID_ARG_TYPE', /of listen are undefined/],
  ['listen({})', () => device.listen({} as never), 'ERR_INVALID_ARG_TYPE', /port is undefined/],
  ['listen(70000)', () => device.listen(70000), 'ERR_OUT_OF_RANGE', /port is 70000, must be from 0 to 65535/],
  ['listen(1, 2)', () => device.listen(1, 2 as never), 'ERR_INVALID_ARG_TYPE', /host is 2, must be text/],
  ['listen({ prot })', () => device.listen({ port: 1, prot: 2 } as never), 'ERR_INVALID_ARG_VALUE', /no option 'prot'/],
  [
    'listen(accept)',
    () => device.listen(1, HOST, { accept: { sned: 2 } as object }),
    'ERR_INVALID_ARG_VALUE',
    /'sned'/,
  ],
  ['connect({})', () => client.connect({} as never), 'ERR_INVALID_ARG_TYPE', /host is undefined/],
  ['connect(host)', () => client.connect(HOST as never), 'ERR_INVALID_ARG_TYPE', /options of connect are '10.0.0.1'/],
  ['connect(0, host)', () => client.connect(0, HOST), 'ERR_OUT_OF_RANGE', /port is 0, must be from 1 to 65535/],
  ['connect({ hsot })', () => client.connect({ port: 1, hsot: 1 } as never), 'ERR_INVALID_ARG_VALUE', /option 'hsot'/],
  [
    'connect(sends)',
    () => client.connect(1, HOST, { sends: 'all' as never }),
    'ERR_INVALID_ARG_TYPE',
    /sends is 'all'/,
  ],
  ['connect(pd)', () => client.connect(1, HOST, { pd: {} as never }), 'ERR_INVALID_ARG_TYPE', /pd is an object/],
])('%s is refused by name', async (_call, call, code, message) => {
  await expect(call()).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
});

test('createCmId refuses unknown options', () => {
  expect(() => createCmId(device, { spcae: 'UDP' } as object)).toThrow("createCmId has no option 'spcae'");
  expect(() => createCmId(device, { space: 'IB' } as object)).toThrow("space is 'IB', must be 'TCP' or 'UDP'");
});

test('errors name their call, address and port', async () => {
  const refused = { code: 'ECONNREFUSED', syscall: 'connect', address: HOST, port: 9 };
  await device.listen(1);
  await expect(client.connect(9, HOST)).rejects.toMatchObject(refused);
  const taken = { code: 'EADDRINUSE', syscall: 'listen', address: '::', port: 1 };
  await expect(device.listen(1)).rejects.toMatchObject(taken);
});

test('errors of rdma_cm and of opening a device name theirs, too', async () => {
  const id = createCmId(client);
  const foreign = { code: 'EADDRNOTAVAIL', syscall: 'bindAddr', address: '10.9.9.9', port: 5 };
  await expect(id.bindAddr('10.9.9.9', 5)).rejects.toMatchObject(foreign);
  const unknown = { syscall: 'resolveAddr', address: '10.9.9.9', port: 7 };
  await expect(id.resolveAddr('10.9.9.9', 7, { timeout: 1 })).rejects.toMatchObject(unknown);
  await expect(openDevice({ interface: 'no such' })).rejects.toMatchObject({ code: 'ENODEV', syscall: 'openDevice' });
  // As steps of other calls, they have these calls' names.
  const listen = { code: 'EADDRNOTAVAIL', syscall: 'listen', address: '10.9.9.9' };
  await expect(device.listen(5, '10.9.9.9')).rejects.toMatchObject(listen);
});

test('one-sided requests refuse unknown options', async () => {
  const server = await device.listen(7471);
  const connecting = client.connect(7471, HOST);
  const accepted = await (await server.next())?.accept();
  const connection = await connecting;
  const { remote } = (await accepted?.share(64)) ?? {};
  if (remote === undefined) throw new Error('nothing is shared');
  const wrong: [Promise<unknown>, string][] = [
    [connection.read(remote, { lenght: 4 } as object), "read has no option 'lenght', must be one of"],
    [connection.write(remote, Buffer.alloc(4), { ofset: 4 } as object), "write has no option 'ofset'"],
    [connection.write(remote, Buffer.alloc(4), { imm: -1 }), 'imm is -1'],
    [connection.fetchAdd(remote, 1n, { length: 8 } as object), "fetchAdd has no option 'length'"],
    [connection.compareSwap(remote, 1n, 2n, { imm: 8 } as object), "compareSwap has no option 'imm'"],
    [connection.read(remote, { signal: 1 } as object), 'signal is 1, must be an AbortSignal'],
  ];
  for (const [call, message] of wrong) await expect(call).rejects.toThrow(message);
});

test('a close with a limit destroys the connection when the time is over', async () => {
  const server = await device.listen(7471);
  const connecting = client.connect(7471, HOST);
  const accepted = await (await server.next())?.accept({ receives: 8 });
  const connection = await connecting;
  const closed = once(connection, 'close');
  // Nobody reads, so that the last ones wait for a receive of the peer.
  const sent = Array.from({ length: 20 }, () => connection.send('x').catch((error) => error.code));
  await expect(connection.close({ timeout: 20 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  expect(await closed).toEqual([undefined]);
  expect((await Promise.all(sent)).at(-1)).toBe('ECONNRESET');
  const reason = new Error('enough');
  await expect(accepted?.close({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
});

test('the event `connection` accepts every request, with the options of listen', async () => {
  const server = await device.listen(7471, HOST, { accept: { messageBytes: 128 } });
  server.on('connection', async (connection) => {
    for await (const { data } of connection) await connection.send(`${data}, ${connection.messageBytes}`);
  });
  for (const name of ['one', 'two']) {
    const connection = await client.connect(7471, HOST);
    await connection.send(name);
    expect(`${(await connection.receive())?.data}`).toBe(`${name}, 128`);
    await connection.close();
  }
  const closed = once(server, 'close');
  await server.close();
  expect(await closed).toEqual([]);
});

test('requests wait for `next` while `connection` has no listener', async () => {
  const server = await device.listen(7471);
  const onConnection = () => {};
  server.on('connection', onConnection);
  server.off('connection', onConnection);
  const connecting = client.connect(7471, HOST);
  const connection = await (await server.next({ timeout: 20_000 }))?.accept();
  expect(connection).toBeInstanceOf(Connection);
  await connecting;
});

test('a signal ends a server', async () => {
  const abort = new AbortController();
  const server = await device.listen({ port: 7471, signal: abort.signal });
  const waiting = server.next();
  abort.abort();
  expect(await waiting).toBeUndefined();
  await expect(device.listen({ port: 7471, signal: abort.signal })).rejects.toBe(abort.signal.reason);
});

test('a signal keeps no listener of servers and datagram sockets that are closed', async () => {
  const { signal } = new AbortController();
  const listeners = () => getEventListeners(signal, 'abort').length;
  const server = await device.listen({ port: 7471, signal });
  const socket = await device.createSocket({ signal }).bind(7471);
  expect(listeners()).toBe(2);
  await server.close();
  expect(listeners()).toBe(1);
  await socket.close();
  expect(listeners()).toBe(0);
});

test('text is sent as UTF-8, and other values are refused', async () => {
  const server = await device.listen(7471);
  const connecting = client.connect(7471, HOST);
  const there = await (await server.next())?.accept();
  const here = await connecting;
  await here.send('grüße');
  expect((await there?.receive())?.data).toEqual(Buffer.from('grüße', 'utf8'));
  await expect(here.send(7 as never)).rejects.toMatchObject({ code: 'ERR_INVALID_ARG_TYPE' });
  await expect(here.send('x', { im: 1 } as object)).rejects.toThrow("send has no option 'im', must be one of signal");
  await expect(here.send('x'.repeat(20_000))).rejects.toMatchObject({ code: 'EMSGSIZE' });
  expect(JSON.parse(JSON.stringify(here))).toMatchObject({ remoteAddress: HOST, remotePort: 7471, state: 'open' });
  expect(inspect(here)).toMatch(/^Connection \{.*remoteAddress: '10.0.0.1'/s);
  expect(JSON.parse(JSON.stringify(server))).toEqual({ address: '::', port: 7471, isListening: true });
});
