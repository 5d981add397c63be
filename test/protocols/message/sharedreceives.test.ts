// Connections share receive buffers and send memory: an idle one costs little, a slow reader stops its own peer only.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { type Connection, type ConnectionOptions, type Device, MemoryHub, type Server } from '../../../src/index.js';
import { openOn } from '../../verbs/pair.js';

const PORT = 7471;
const devices: Device[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) await device.close({ force: true });
});

async function twoDevices(memoryBytes = 2 ** 26): Promise<readonly [Device, Device]> {
  const hub = new MemoryHub();
  const pair = [await openOn(hub, { memoryBytes }), await openOn(hub, { memoryBytes, seed: 2 })] as const;
  devices.push(...pair);
  return pair;
}

const hostOf = (device: Device) => device.gids[0]?.address as string;
const free = (device: Device) => device.card.exports.memAvailable();
const bytes = (length: number, value = 0) => Buffer.alloc(length, value);

/** Returns the bytes in memory that cannot be registered, so that a request copies them. */
function copied(data: Uint8Array): Uint8Array {
  const memory = Reflect.construct(ArrayBuffer, [data.length, { maxByteLength: data.length + 1 }]) as ArrayBuffer;
  const copy = new Uint8Array(memory);
  copy.set(data);
  return copy;
}

/** Connects clients, and returns both ends of each in the same order. */
async function connectedTo(server: Server, count: number, from: Device, to: Device, options: Options = {}) {
  const ends: (readonly [Connection, Connection])[] = [];
  for (let n = 0; n < count; n++) {
    const connecting = from.connect({ host: hostOf(to), port: PORT, ...options.client });
    const accepted = (await (await server.next())?.accept(options.server)) as Connection;
    ends.push([await connecting, accepted]);
  }
  return ends;
}
interface Options {
  readonly client?: ConnectionOptions;
  readonly server?: ConnectionOptions;
}

async function expectEcho([client, served]: readonly [Connection, Connection]): Promise<void> {
  await client.send('hello');
  const message = await served.receive({ timeout: 20_000 });
  await served.send(message?.data as Buffer);
  expect((await client.receive({ timeout: 20_000 }))?.data.toString()).toBe('hello');
}

test('an idle connection takes less than 8 KiB of the device, however it was used before', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const all = await connectedTo(server, 20, a, b);
  const before = [a, b].map(free);
  const more = await connectedTo(server, 200, a, b);
  for (const [i, device] of [a, b].entries())
    expect(((before[i] as number) - free(device)) / more.length).toBeLessThan(8192);
  // Requests take memory only while they are in flight; what is kept for the next ones is a small share.
  const used = free(b);
  for (const ends of more) await expectEcho(ends);
  expect(used - free(b)).toBeLessThan(2 ** 26 / 32);
  for (const [client, served] of [...all, ...more]) {
    await client.close();
    await served.close();
  }
  // The buffers of all are freed with the last one: 16 MiB would be a quarter.
  expect(free(b)).toBeGreaterThan((before[1] as number) + 2 ** 22);
});

test('a client that does not get ready takes no buffers', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const options = { messageBytes: 2 ** 20, ownReceives: true };
  const connecting = a.connect({ host: hostOf(b), port: PORT });
  const request = await server.next();
  const before = free(b);
  const served = (await request?.accept(options)) as Connection;
  const halfOpen = before - free(b);
  const client = await connecting;
  await client.send('x');
  await served.receive({ timeout: 20_000 });
  expect(halfOpen).toBeLessThan(16_384);
  expect(before - free(b)).toBeGreaterThan(32 * 2 ** 20);
});

test('a connection without memory for its own buffers ends with the reason', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const options = { messageBytes: 2 ** 22, ownReceives: true };
  const [ends] = await connectedTo(server, 1, a, b, { server: options });
  await expect(ends?.[1].receive({ timeout: 20_000 })).rejects.toMatchObject({ code: 'ENOMEM' });
  expect(await ends?.[0].receive({ timeout: 20_000 })).toBeUndefined();
  // With fewer receives it fits, beside the other clients.
  const [next] = await connectedTo(server, 1, a, b, { server: { ...options, receives: 8 } });
  await expectEcho(next as readonly [Connection, Connection]);
});

test('readers that take nothing stop their own peers only, and lose nothing', async () => {
  const [a, b] = await twoDevices();
  // 64 buffers for 20 connections, each of which could hold 8: one for each is left to those that hold none.
  const server = await b.listen({ port: PORT, receivePoolBytes: 64 * 1024 });
  const options = { client: { messageBytes: 1024 }, server: { messageBytes: 1024, receives: 8 } };
  const all = await connectedTo(server, 20, a, b, options);
  const [honest, ...slow] = all.reverse() as [readonly [Connection, Connection], ...typeof all];
  const sent = slow.map(([client]) => Promise.all(Array.from({ length: 12 }, (_, i) => client.send(bytes(1024, i)))));
  const sending = Promise.all(sent);
  for (let i = 0; i < 20; i++) await expectEcho(honest);
  let isSent = false;
  void sending.then(() => (isSent = true));
  await sleep(5);
  expect(isSent).toBe(false);
  await Promise.all(
    slow.map(async ([, served]) => {
      for (let i = 0; i < 12; i++) expect((await served.receive())?.data).toEqual(bytes(1024, i));
    }),
  );
  await sending;
});

test('a message that is unread when its connection is destroyed gives its buffer back', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT, receivePoolBytes: 8 * 1024 });
  const options = { client: { messageBytes: 1024 }, server: { messageBytes: 1024, receives: 8 } };
  const [keeper] = await connectedTo(server, 1, a, b, options);
  for (let round = 0; round < 4; round++) {
    const [[client, served]] = (await connectedTo(server, 1, a, b, options)) as [[Connection, Connection]];
    const stream = round % 2 === 1 ? served.stream() : undefined;
    if (stream !== undefined)
      client
        .stream()
        .on('error', () => {})
        .write(bytes(3000));
    else for (let i = 0; i < 4; i++) await client.send(bytes(1024));
    await sleep(2);
    stream?.destroy();
    served.destroy();
    await served.close();
    await client.close();
  }
  // All eight are there again for the one that is left.
  const [client, served] = keeper as readonly [Connection, Connection];
  const sent = Array.from({ length: 8 }, () => client.send(bytes(1024)));
  await Promise.all(sent);
  await served.close();
});

test('sends wait for memory, and go on in order when it is there', async () => {
  const [a, b] = await twoDevices(2 ** 24);
  const server = await b.listen({ port: PORT });
  const options = { client: { messageBytes: 2 ** 19, receives: 8 }, server: { messageBytes: 2 ** 19, receives: 8 } };
  const all = await connectedTo(server, 3, a, b, options);
  const pd = await a.allocPd();
  const mr = await pd.regMr(free(a) - 2 ** 20);
  const send = (client: Connection, i: number) => client.send(copied(bytes(2 ** 19, i)));
  const sent = all.map(([client]) => Promise.all(Array.from({ length: 10 }, (_, i) => send(client, i))));
  await Promise.all(
    all.map(async ([, served]) => {
      for (let i = 0; i < 10; i++) expect((await served.receive())?.data[2 ** 17]).toBe(i);
    }),
  );
  await Promise.all(sent);
  // Without any, and without requests whose end could help, there is nothing to wait for.
  const rest = [];
  for (let size = 2 ** 20; size >= 256; )
    try {
      rest.push(await pd.regMr(size));
    } catch {
      size >>= 1;
    }
  await expect(send(all[0]?.[0] as Connection, 0)).rejects.toMatchObject({ code: 'ENOMEM' });
  for (const one of [...rest, mr]) await one.close();
  await expectEcho(all[0] as readonly [Connection, Connection]);
});

test('successive connections use the buffers of the first, within a small share of the memory', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  // The connection manager has its buffers from now on.
  await (await a.listen({ port: PORT })).close();
  /** Connects, sends a message, and closes both ends. @returns the receive queues of both */
  const once = async (options: Options) => {
    const [ends] = (await connectedTo(server, 1, a, b, options)) as [[Connection, Connection]];
    await expectEcho(ends);
    const queues = ends.map(({ qp }) => qp.srq);
    for (const end of ends) await end.close();
    return queues;
  };
  const small = { client: { messageBytes: 1024 }, server: { messageBytes: 1024 } };
  const before = [a, b].map(free);
  const queues = await once(small);
  const kept = [a, b].map(free);
  for (const [i, bytes] of kept.entries()) expect((before[i] as number) - bytes).toBeLessThan(2 ** 26 / 32);
  expect(await once(small)).toEqual(queues);
  expect([a, b].map(free)).toEqual(kept);
  // 4 MiB
  const large = { client: { messageBytes: 2 ** 19, receives: 8 }, server: { messageBytes: 2 ** 19, receives: 8 } };
  const largeQueues = await once(large);
  expect([a, b].map(free)).toEqual(kept);
  for (const [i, queue] of (await once(large)).entries()) expect(queue).not.toBe(largeQueues[i]);
  // Those of a server go with it.
  await server.close();
  expect(free(b)).toBeGreaterThan(kept[1] as number);
});

test('a larger receivePoolBytes counts when no connection has the buffers that were kept', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const echo = async (options: ConnectionOptions & { receivePoolBytes?: number }) => {
    const ends = await connectedTo(server, 1, a, b, { client: { messageBytes: 1024, receives: 8, ...options } });
    const [client, served] = ends[0] as [Connection, Connection];
    const srq = client.qp.srq;
    await client.close();
    await served.close();
    return srq;
  };
  const first = await echo({ receivePoolBytes: 2 ** 14 });
  expect(await echo({ receivePoolBytes: 2 ** 14 })).toBe(first);
  expect(await echo({ receivePoolBytes: 2 ** 24 })).not.toBe(first);
});
