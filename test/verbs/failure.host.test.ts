// A card whose thread fails: all pending calls are rejected, and all resources are freed.
import { once } from 'node:events';
import { expect, test } from 'vitest';
import {
  type AsyncEvent,
  type ConnectionRequest,
  createCmId,
  type Device,
  openDevice,
  publishedDevices,
} from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { breakTurns } from './brokencard.js';
import { endOn, loopback } from './pair.js';
import { processResources } from './processresources.js';

const WAIT = { timeout: 20_000 };
/** The error of all calls from then on. */
const failed = { code: 'EIO', message: expect.stringMatching(/the card of device wasm-lo has failed/) };

/** Makes the card's thread fail. */
function break_(device: Device): void {
  breakTurns(device);
  device.engine.schedule();
}

test('a failed device rejects waits, throws the reason from every call, and can be closed', async () => {
  const before = await processResources();
  const device = await openDevice({ mode: 'worker', ...loopback(), memoryBytes: 2 ** 25 });
  const { qp, cq, pd, mr } = await endOn(device);
  const told = once(device, 'event') as Promise<AsyncEvent[]>;
  const waiting = cq.next();
  break_(device);
  const why = {
    code: 'EIO',
    message: expect.stringMatching(/device wasm-lo has failed: memory access out of bounds/),
  };
  await expect(waiting).rejects.toMatchObject(why);
  const [event] = await told;
  expect(event?.type === 'DEVICE_FATAL' && event.device === device && event.reason).toMatch(/out of bounds/);
  await expect(cq.next()).rejects.toMatchObject(why);
  await expect(pd.regMr(4096)).rejects.toMatchObject(why);
  await expect(qp.modify({ state: 'INIT' })).rejects.toMatchObject(why);
  expect(() => qp.postSend({ opcode: 'SEND' })).toThrow(/has failed/);
  expect(() => cq.poll(cq.createWcs(1))).toThrow(/has failed/);
  expect(() => device.counters()).toThrow(/has failed/);
  expect(mr.isClosed).toBe(false);
  await device.close({ force: true });
  expect(await processResources()).toEqual(before);
});

test('a failed device throws the reason from poll', async () => {
  await using device = await openDevice({ mode: 'worker', ...loopback(), memoryBytes: 2 ** 25 });
  const { cq } = await endOn(device);
  const wcs = cq.createWcs(1);
  break_(device);
  const until = performance.now() + WAIT.timeout;
  expect(() => {
    while (performance.now() < until) cq.poll(wcs);
  }).toThrow(/EIO: the card of device wasm-lo has failed: memory access/);
});

test('a failed device rejects all waits of the connection manager', async () => {
  const before = await processResources();
  const device = await openDevice({ mode: 'worker', ...loopback(), memoryBytes: 2 ** 25 });
  const listener = createCmId(device);
  await listener.listen();
  const server = await device.listen({ port: 0 });
  const id = createCmId(device);
  const [nobody] = loopback().addresses as [string];
  await id.resolveAddr(nobody, 7471);
  await id.resolveRoute();
  await id.createQp(await device.allocPd(), { sendCq: await device.createCq() });
  const waiting = [
    id.connect(),
    listener.getRequest(),
    server.next(),
    device.connect({ host: nobody, port: 7471 }),
  ].map((promise) => expect(promise).rejects.toMatchObject(failed));
  // One of the connection manager, and two of the connections in progress.
  await eventually(() => expect(device.qps().length).toBe(3));
  break_(device);
  await Promise.all(waiting);
  expect(id.state).toBe('FAILED');
  const events = Array.from({ length: 3 }, () => id.channel.poll());
  expect(events.map((event) => event?.type)).toEqual(['ADDR_RESOLVED', 'ROUTE_RESOLVED', 'DEVICE_REMOVAL']);
  await expect(id.connect()).rejects.toMatchObject(failed);
  await id.close();
  await device.close({ force: true });
  expect(device.isClosed).toBe(true);
  expect(await processResources()).toEqual(before);
});

test('a failed device ends its connections, servers and streams', async () => {
  // with the broker a device opens sockets for the programs that it sends to
  const options = { mode: 'worker', memoryBytes: 2 ** 25, broker: false } as const;
  await using b = await openDevice({ ...loopback(), ...options });
  const server = await b.listen({ port: 0 });
  const before = await processResources();
  const a = await openDevice({ ...loopback(), ...options });
  const host = b.gids[0]?.address as string;
  const connected = async () => {
    const connecting = a.connect({ host, port: server.address.port, keepAlive: 5 });
    const theirs = await ((await server.next(WAIT)) as ConnectionRequest).accept();
    const mine = await connecting;
    return { mine, theirs, closed: once(mine, 'close') };
  };
  const [waiting, full] = [await connected(), await connected()];
  const receiving = waiting.mine.receive();
  await full.theirs.send(Buffer.from('nobody takes this'));
  await new Promise((resolve) => setTimeout(resolve, 20));
  // This message arrives while the program is busy, which then sees it together with the failure.
  full.theirs.send(Buffer.from('nor this')).catch(() => {});
  const busy = (milliseconds: number, isOver = () => false) => {
    for (const end = performance.now() + milliseconds; !isOver() && performance.now() < end; );
  };
  busy(20);
  break_(a);
  busy(WAIT.timeout, () => a.engine.failure !== undefined);
  await expect(receiving).rejects.toMatchObject(failed);
  for (const { mine, closed } of [waiting, full]) {
    expect(await closed).toMatchObject([failed]);
    expect(mine.isOpen).toBe(false);
    const all = async () => {
      for await (const _ of mine);
    };
    await expect(all()).rejects.toMatchObject(failed);
  }
  for (const { theirs } of [waiting, full]) theirs.destroy();
  // No other object belongs to the device.
  await a.close();
  expect(await processResources()).toEqual(before);
  await server.close();
});

test('a failed device is published no more', async () => {
  await using device = await openDevice({ mode: 'worker', ...loopback(), memoryBytes: 2 ** 25 });
  const name = `failing-${process.pid}`;
  await device.publish(name);
  const told = once(device, 'event');
  break_(device);
  await told;
  expect((await publishedDevices()).filter((other) => other.name === name)).toEqual([]);
});
