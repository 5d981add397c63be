// Buffers of rsockets grow when they move much data.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { createMemoryHub, type Device, openDevice } from '../../../src/index.js';
import { connect, createServer, type Socket, type SocketOptions } from '../../../src/net.js';
import { eventually } from '../../kit/eventually.js';
import { device, HOST, OWN_HOST, peer, useDevices } from '../devices.js';

useDevices();

const PORT = 7000;
/** Bytes of a buffer that has grown, and those that do not make one grow. */
const LARGE = 2 ** 20;
const LITTLE = LARGE;
/** More than a buffer has to carry before it grows. */
const MUCH = 8 * 2 ** 20;

const free = (of: Device): number => of.query().memoryAvailable;

interface Ends {
  readonly socket: Socket;
  readonly accepted: Socket;
  close(): Promise<void>;
}

async function connected(own: Device, other: Device, options: SocketOptions = {}): Promise<Ends> {
  const server = createServer({ ...options, device: other }).listen(PORT);
  await once(server, 'listening');
  const accepting = once(server, 'connection');
  const socket = connect({ ...options, device: own, host: HOST, port: PORT });
  const [accepted] = (await accepting) as [Socket];
  if (socket.pending) await once(socket, 'connect');
  const close = async () => {
    socket.destroy();
    await Promise.all([socket, accepted].map((end) => end.closed || once(end, 'close')));
    await new Promise((resolve) => server.close(resolve));
  };
  return { socket, accepted, close };
}

/** Sends random bytes from one end to the other one. @returns memory that the devices of both have used for that */
async function send(bytes: number, own: Device, other: Device, { socket, accepted }: Ends): Promise<[number, number]> {
  const before = [own, other].map(free) as [number, number];
  const data = randomBytes(bytes);
  const hash = createHash('sha256');
  let read = 0;
  accepted.on('data', (chunk: Buffer) => {
    hash.update(chunk);
    read += chunk.length;
  });
  for (let at = 0; at < bytes; at += 100_000)
    if (!socket.write(data.subarray(at, at + 100_000))) await once(socket, 'drain');
  await eventually(() => expect(read).toBe(bytes));
  expect(hash.digest('hex')).toBe(createHash('sha256').update(data).digest('hex'));
  return [before[0] - free(own), before[1] - free(other)];
}

test('both ends get larger buffers for much data, and free them when they close', async () => {
  await (await connected(device, peer)).close(); // the connection manager keeps some memory
  const before = [device, peer].map(free) as [number, number];
  const ends = await connected(device, peer);
  const [sent, received] = await send(MUCH, device, peer, ends);
  expect(sent).toBeGreaterThanOrEqual(LARGE);
  expect(received).toBeGreaterThanOrEqual(LARGE);
  await ends.close();
  expect(free(device)).toBeGreaterThan(before[0] - LARGE / 2);
  expect(free(peer)).toBeGreaterThan(before[1] - LARGE / 2);
});

test('buffers do not grow for little data', async () => {
  const ends = await connected(device, peer);
  expect(Math.max(...(await send(LITTLE, device, peer, ends)))).toBeLessThan(LARGE);
  await ends.close();
});

test('buffers of a size that the program has chosen keep it', async () => {
  const ends = await connected(device, peer, { receiveBytes: 262_144, sendBytes: 262_144 });
  expect(Math.max(...(await send(MUCH, device, peer, ends)))).toBeLessThan(LARGE);
  await ends.close();
});

test('buffers do not grow when less than half of the memory would be left', async () => {
  const hub = createMemoryHub();
  await using own = await openDevice({ hub, addresses: [OWN_HOST], memoryBytes: 2 ** 24 });
  await using other = await openDevice({ hub, addresses: [HOST], memoryBytes: 2 ** 24 });
  const fill = async (of: Device) => (await of.allocPd()).regMr(free(of) - 2 ** 23);
  await Promise.all([own, other].map(fill));
  const ends = await connected(own, other);
  expect(Math.max(...(await send(MUCH, own, other, ends)))).toBeLessThan(LARGE);
  await ends.close();
});
