/** The peers of a datagram socket. */

import { setImmediate } from 'node:timers/promises';
import { afterEach, expect, test, vi } from 'vitest';
import { performance } from '../../../src/base/timers.js';
import { AhCache } from '../../../src/cm/ahcache.js';
import type { AddressHandle, Pd } from '../../../src/index.js';
import type { LocalEnd } from '../../../src/protocols/rsocket/datagram/localends.js';
import { Peers } from '../../../src/protocols/rsocket/datagram/peers.js';

const PEER = ['10.0.0.2', 7000] as const;

afterEach(() => {
  vi.restoreAllMocks();
});

/** Peers whose addresses are resolved when the test says so, at times that it sets. */
function peers() {
  const clock = vi.spyOn(performance, 'now').mockReturnValue(0);
  const lookups: (() => void)[] = [];
  const createAh = () =>
    new Promise<AddressHandle>((resolve) => lookups.push(() => resolve({ [Symbol.dispose]() {} } as AddressHandle)));
  const own = { index: 0, gid: '::ffff:10.0.0.1', address: '10.0.0.1' };
  const device = { gids: [own], chooseGid: () => own };
  const ahs = new AhCache({ createAh, device } as unknown as Pd);
  const all = new Peers();
  const end = { device, port: { ahs } } as unknown as LocalEnd;
  return {
    lookups,
    at: (ms: number) => void clock.mockReturnValue(ms),
    async answer() {
      lookups.at(-1)?.();
      await setImmediate();
    },
    destination: () => all.destinationOf(...PEER)?.qpNum,
    introduced: (qpNum: number) => all.introduced(end, ...PEER, qpNum),
  };
}

test.each([0, 5, 1999, 1e9])('the first introduction is used in a process that has run for %s ms', async (ms) => {
  const { at, introduced, answer, destination } = peers();
  at(ms);
  introduced(0x11);
  expect(destination()).toBeUndefined();
  await answer();
  expect(destination()).toBe(0x11);
});

test('a peer that was silent for 2 s is introduced to again, and its address is resolved again', async () => {
  const { at, introduced, answer, destination, lookups } = peers();
  introduced(0x11);
  // the answer of the look-up comes late, and is no newer for that
  at(900);
  await answer();
  at(1999);
  expect(destination()).toBe(0x11);
  at(2000);
  expect(destination()).toBeUndefined();
  expect(destination()).toBe(0x11);
  introduced(0x22);
  expect(destination()).toBe(0x22);
  expect(lookups.length).toBe(2);
});

test('introductions that follow each other within 2 s have the address resolved once', async () => {
  const { at, introduced, answer, destination, lookups } = peers();
  introduced(0x11);
  await answer();
  at(1999);
  introduced(0x22);
  expect(destination()).toBe(0x22);
  expect(lookups.length).toBe(1);
});
