/** Address handles of queue pair 1: look-ups, their failures, and the limits of the cache. */
import { expect, onTestFinished, test, vi } from 'vitest';
import { AhCache } from '../../src/cm/ahcache.js';
import { createCmId } from '../../src/cm/index.js';
import { type Device, MemoryHub } from '../../src/index.js';
import { openOn } from '../verbs/pair.js';
import { DevicePair, PORT } from './devicepair.js';

async function cacheOn(): Promise<{ device: Device; cache: AhCache; local: string }> {
  const device = await openOn(new MemoryHub());
  onTestFinished(() => device.close({ force: true }));
  const local = device.gids.find(({ address }) => address.includes('.'))?.gid as string;
  return { device, cache: new AhCache(await device.allocPd()), local };
}

const mac = (n: number) => Uint8Array.of(2, 0, 0, 0, n >> 8, n & 255);

test('a reply goes to the neighbour that the message came from, without a look-up', async () => {
  const { device, cache, local } = await cacheOn();
  const resolve = vi.spyOn(device.link, 'resolve');
  const neighbour = { mac: mac(7), vlanTci: 5 };
  const onResolved = vi.fn();
  const route = { local, remote: '172.16.9.9', neighbour };
  cache.resolve(route, 0, onResolved, () => {});
  expect(onResolved).toHaveBeenCalledOnce();
  const ah = cache.get(route);
  expect(ah?.address).toMatchObject({ destination: '172.16.9.9', destMac: mac(7), vlanTci: 5 });
  expect(cache.get({ ...route, neighbour: { ...neighbour, mac: mac(7) } })).toBe(ah);
  expect(cache.get({ ...route, neighbour: { mac: mac(8), vlanTci: 5 } })).not.toBe(ah);
  expect(resolve).not.toHaveBeenCalled();
});

test('the number of handles in the cache and in the card is limited, whatever sources a peer invents', async () => {
  const { device, cache, local } = await cacheOn();
  const neighbour = { mac: mac(7), vlanTci: undefined };
  const free: number[] = [];
  for (let n = 0; n < 2000; n++) {
    cache.get({ local, remote: `172.16.${n >> 8}.${n & 255}`, neighbour });
    if (n % 500 === 499) {
      await undefined;
      free.push(device.card.exports.memAvailable());
    }
  }
  expect(cache.size).toBe(64);
  expect(new Set(free).size).toBe(1);
});

test('an unreachable destination is looked up once a second, however many messages it gets', async () => {
  const { device, cache, local } = await cacheOn();
  const resolve = vi.spyOn(device.link, 'resolve').mockRejectedValue(new Error('nobody'));
  const route = { local, remote: '10.0.0.99' };
  const onError = vi.fn();
  const ask = async (now: number) => {
    cache.resolve(route, now, () => {}, onError);
    await new Promise((resolve) => setImmediate(resolve));
  };
  for (const now of [0, 1, 500, 999]) await ask(now);
  expect([resolve.mock.calls.length, onError.mock.calls.length]).toEqual([1, 4]);
  await ask(1001);
  expect([resolve.mock.calls.length, onError.mock.calls.length]).toEqual([2, 5]);
});

test('the number of look-ups at a time is limited', async () => {
  const { device, cache, local } = await cacheOn();
  vi.spyOn(device.link, 'resolve').mockReturnValue(new Promise(() => {}));
  const onError = vi.fn();
  for (let n = 0; n < 200; n++) cache.resolve({ local, remote: `10.0.1.${n}` }, 0, () => {}, onError);
  expect([cache.size, onError.mock.calls.length]).toEqual([128, 72]);
});

test('a refused request costs the server no look-up', async () => {
  const pair = await DevicePair.forTest();
  const listener = await pair.listen();
  const resolve = vi.spyOn(pair.server.device.link, 'resolve');
  const client = createCmId(pair.client.device);
  await client.resolveAddr(pair.addressOf(pair.server), PORT + 1);
  await client.resolveRoute();
  await client.createQp(pair.client.pd, { sendCq: pair.client.cq });
  await expect(client.connect()).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  expect(resolve).not.toHaveBeenCalled();
  await listener.close();
});
