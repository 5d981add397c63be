// Closing a device with servers and connections: in order, or by force, and then nothing waits any more.
import { once } from 'node:events';
import { afterEach, expect, test, vi } from 'vitest';
import { type Connection, createCmId, type Device, EventChannel, MemoryHub } from '../../../src/index.js';
import { eventually } from '../../kit/eventually.js';
import { openOn } from '../../verbs/pair.js';

const PORT = 7471;
const devices: Device[] = [];
afterEach(async () => {
  vi.useRealTimers();
  for (const device of devices.splice(0)) await device.close({ force: true });
});

async function twoDevices(): Promise<readonly [Device, Device]> {
  const hub = new MemoryHub();
  const pair = [await openOn(hub), await openOn(hub, { seed: 2 })] as const;
  devices.push(...pair);
  return pair;
}

/** A server that accepts everything; its loop, and both ends of a connection to it. */
async function connected(a: Device, b: Device) {
  const server = await b.listen({ port: PORT });
  const accepted: Connection[] = [];
  const serving = (async () => {
    for await (const request of server) accepted.push(await request.accept());
  })();
  const host = b.gids[0]?.address as string;
  const client = await a.connect({ host, port: PORT });
  await eventually(() => expect(accepted.length).toBe(1));
  return { server, serving, client, host, served: accepted[0] as Connection };
}

const named = (connection: Connection) => {
  const events: unknown[] = [];
  for (const name of ['end', 'close'] as const) connection.on(name, (error?: Error) => events.push(error ?? name));
  return events;
};

const closings: [string, (device: Device) => Promise<void>][] = [
  ['by force', (device) => device.close({ force: true })],
  ['in order', (device) => device.close()],
];

test.each(closings)('%s: loops, readers and listeners get the end', async (_, close) => {
  const [a, b] = await twoDevices();
  const { serving, client, served } = await connected(a, b);
  const events = named(served);
  const readers = [served.receive(), client.receive()];
  await close(b);
  await serving;
  expect(await Promise.all(readers)).toEqual([undefined, undefined]);
  await eventually(() => expect(events).toEqual(['end', 'close']));
  await expect(served.send(Buffer.from('late'))).rejects.toMatchObject({ code: 'ECONNRESET' });
  await a.close();
});

test.each(closings)('%s: a stream closes, without an error here', async (_, close) => {
  const [a, b] = await twoDevices();
  const { client, served } = await connected(a, b);
  const [here, there] = [served.stream(), client.stream()];
  const failed = once(there, 'error');
  const closed = once(here, 'close');
  here.resume();
  await close(b);
  await closed;
  expect((await failed)[0]).toMatchObject({ code: 'ECONNRESET' });
});

test.each(closings)('%s: an attempt to connect and a request without an answer end', async (_, close) => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const host = b.gids[0]?.address as string;
  const connecting = a.connect({ host, port: PORT });
  const refused = expect(connecting).rejects.toMatchObject({ code: 'ECANCELED' });
  const request = await server.next();
  await close(a);
  await refused;
  await close(b);
  // The loop of a server must not fail because of a device that is closed meanwhile.
  const late = (await request?.accept()) as Connection;
  await expect(late.receive()).rejects.toThrow();
});

test('in order, although a channel of the application waits for events: by force it does not stay awake', async () => {
  const [a] = await twoDevices();
  const channel = new EventChannel();
  const id = createCmId(a, { channel });
  const intervals = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
  const before = intervals();
  const next = channel.next();
  expect(intervals()).toBe(before + 1);
  await a.close({ force: true });
  expect(id.isClosed).toBe(true);
  // timers of earlier tests may have ended meanwhile
  expect(intervals()).toBeLessThanOrEqual(before);
  channel.close();
  await expect(next).rejects.toMatchObject({ code: 'ECANCELED' });
});

test('in order, after the peer has closed the connection', async () => {
  const [a, b] = await twoDevices();
  const { client, served } = await connected(a, b);
  const ended = once(served, 'end');
  await client.close();
  await ended;
  await b.close();
  expect(b.isClosed).toBe(true);
});

test('in order: messages that were sent arrive, and objects of the program are named', async () => {
  const [a, b] = await twoDevices();
  const { client, served } = await connected(a, b);
  for (let i = 0; i < 20; i++) void served.send(Buffer.from([i]));
  const pd = await b.allocPd();
  await expect(b.close()).rejects.toThrow(/^EBUSY: device \S+ has 1 pd \(\d+\): close them first$/);
  const heard: (number | undefined)[] = [];
  for await (const { data } of client) heard.push(data[0]);
  expect(heard).toEqual(Array.from({ length: 20 }, (_, i) => i));
  await pd.close();
  await b.close();
});

test('a region of the program outlives the connection, whose domain is closed with it', async () => {
  const [a, b] = await twoDevices();
  const { client } = await connected(a, b);
  const { pd } = client;
  const mr = await pd.regMr(64);
  const other = await pd.regMr(64);
  mr.buffer.fill('x');
  await client.close();
  await mr.close();
  expect([client.toJSON().state, pd.isClosed, other.buffer.length]).toEqual(['closed', false, 64]);
  await other.close();
  expect(pd.isClosed).toBe(true);
});

test('the error of a block with a region is not masked by the end of its connection', async () => {
  const [a, b] = await twoDevices();
  const { client } = await connected(a, b);
  const failing = async () => {
    await client.pd.regMr(64);
    try {
      throw new Error('the first');
    } finally {
      await client.close();
    }
  };
  await expect(failing()).rejects.toThrow('the first');
});

test('in order: a region of the program in the domain of a connection does not keep the device open', async () => {
  const [a, b] = await twoDevices();
  const { served } = await connected(a, b);
  await served.pd.regMr(64);
  await b.close();
});

test('in order, for five seconds at most: then a peer that reads nothing is left', async () => {
  const [a, b] = await twoDevices();
  const { served } = await connected(a, b);
  const sends = Array.from({ length: 60 }, (_, i) => served.send(Buffer.from([i])).catch((error) => error.code));
  await b.close();
  expect((await Promise.all(sends)).at(-1)).toBe('ECONNRESET');
});
