// A closed device leaves nothing behind, before the event loop goes on or garbage is collected.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { openDevice } from '../../src/index.js';
import { openFds } from '../kit/processes.js';
import { loopback } from './pair.js';

const MIB = 2 ** 20;
/** Resident bytes of this process. */
const resident = () => Number(readFileSync('/proc/self/statm', 'utf8').split(' ')[1]) * 4096;

test('a closed device has closed its file descriptors at once', async () => {
  const open = () => openDevice({ ...loopback(), memoryBytes: 16 * MIB });
  await (await open()).close();
  await new Promise((resolve) => setTimeout(resolve, 20));
  const device = await open();
  const during = openFds();
  await device.close();
  // the socket, and the epoll instance and timer that wait for it
  expect(during - openFds()).toBeGreaterThanOrEqual(3);
});

test('a closed device has returned the memory of its card to the system', async () => {
  const device = await openDevice({ link: 'memory', memoryBytes: 256 * MIB });
  const pd = await device.allocPd();
  const mr = await pd.regMr(192 * MIB);
  mr.buffer.fill(1);
  const full = resident();
  await device.close({ force: true });
  await Promise.resolve();
  expect(full - resident()).toBeGreaterThan(150 * MIB);
});
