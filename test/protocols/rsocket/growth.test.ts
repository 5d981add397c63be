// Buffers of rsockets grow when they move much data.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { createMemoryHub, type Device, openDevice } from '../../../src/index.js';
import { connect, createServer, type Socket, type SocketOptions } from '../../../src/net.js';
import { eventually } from '../../kit/eventually.js';
import { device, HOST, OWN_HOST, peer, useDevices } from '../devices.js';

useDevices();

const PORT = 7000;
/** Bytes of a buffer that has grown. */
const LARGE = 2 ** 20;
/** More than what the rest of a connection takes. */
const SMALL = 2 ** 16;
/** More than a buffer has to carry before it grows. */
const MUCH = 8 * 2 ** 20;

const free = (of: Device): number => of.query().memoryAvailable;

interface Ends {
  readonly socket: Socket;
  readonly accepted: Socket;
  close(): Promise<void>;
}

async function connected(
  own: Device,
  other: Device,
  options: SocketOptions = {},
  onread?: SocketOptions['onread'],
): Promise<Ends> {
  const server = createServer({ ...options, device: other }).listen(PORT);
  await once(server, 'listening');
  const accepting = once(server, 'connection');
  const socket = connect({ ...options, ...(onread && { onread }), device: own, host: HOST, port: PORT });
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
  const take = (chunk: Buffer) => {
    hash.update(chunk);
    read += chunk.length;
  };
  accepted.on('data', take);
  for (let at = 0; at < bytes; at += 100_000)
    if (!socket.write(data.subarray(at, at + 100_000))) await once(socket, 'drain');
  await eventually(() => expect(read).toBe(bytes));
  accepted.off('data', take).resume();
  expect(hash.digest('hex')).toBe(createHash('sha256').update(data).digest('hex'));
  return [before[0] - free(own), before[1] - free(other)];
}

/** Returns the memory of both devices that each of 200 more connections takes. */
async function costOfEach(action: (ends: Ends) => Promise<void>): Promise<number[]> {
  const first = await connected(device, peer);
  await action(first);
  const before = [device, peer].map(free);
  const server = createServer({ device: peer }, (socket) => socket.pipe(socket)).listen(PORT + 1);
  const COUNT = 200;
  const all: Ends[] = [];
  await once(server, 'listening');
  for (let n = 0; n < COUNT; n++) {
    const accepting = once(server, 'connection');
    const socket = connect({ device, host: HOST, port: PORT + 1 });
    const [accepted] = (await accepting) as [Socket];
    if (socket.pending) await once(socket, 'connect');
    const ends = { socket, accepted, close: async () => void socket.destroy() };
    await action(ends);
    all.push(ends);
  }
  const cost = [device, peer].map((of, i) => ((before[i] as number) - free(of)) / COUNT);
  for (const { socket } of all) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
  await first.close();
  return cost;
}

test.each([
  ['is idle', async () => {}],
  [
    'has sent and received a message',
    async ({ socket, accepted }: Ends) => {
      socket.write('hello');
      if (accepted.listenerCount('data') === 0) accepted.pipe(accepted);
      await once(socket, 'data');
    },
  ],
] as const)('a socket that %s takes at most 32 KiB of the memory of its device', async (_, action) => {
  for (const cost of await costOfEach(action)) expect(cost).toBeLessThanOrEqual(32_768);
});

test('both ends get larger buffers for much data, and free them when they close', async () => {
  const first = await connected(device, peer);
  await send(MUCH, device, peer, first);
  await first.close(); // pools and the connection manager keep some memory
  const before = [device, peer].map(free) as [number, number];
  const ends = await connected(device, peer);
  const idle = [device, peer].map(free) as [number, number];
  const [, received] = await send(MUCH, device, peer, ends);
  expect(received).toBeGreaterThanOrEqual(LARGE);
  expect(free(peer)).toBeLessThan(idle[1] - LARGE / 2);
  await ends.close();
  expect(free(device)).toBeGreaterThan(before[0] - SMALL);
  expect(free(peer)).toBeGreaterThan(before[1] - SMALL);
});

test('buffers do not grow for data that comes slowly', async () => {
  const ends = await connected(device, peer);
  const before = free(peer);
  ends.accepted.resume();
  for (let n = 0; n < 100; n++) {
    ends.socket.write(Buffer.alloc(4000));
    await sleep(200);
  }
  expect(before - free(peer)).toBeLessThan(SMALL);
  await ends.close();
});

test('buffers that have grown are small again when data comes slowly', async () => {
  const ends = await connected(device, peer);
  const before = free(peer);
  await send(MUCH, device, peer, ends);
  expect(before - free(peer)).toBeGreaterThan(LARGE / 2);
  for (let n = 0; n < 300; n++) {
    ends.socket.write(Buffer.alloc(4000));
    await sleep(11_000);
  }
  expect(before - free(peer)).toBeLessThan(SMALL);
  await ends.close();
});

test('a peer that does not read takes some of what is written, and no more', async () => {
  const ends = await connected(device, peer);
  ends.accepted.pause();
  let taken = 0;
  const writeOn = () =>
    ends.socket.write(Buffer.alloc(10_000), () => {
      taken += 10_000;
      if (taken < 1_000_000) writeOn();
    });
  writeOn();
  await sleep(1000);
  // its buffer, and that of its stream
  expect(taken).toBeGreaterThan(2 ** 17);
  expect(taken).toBeLessThan(2 ** 18 + 2 ** 17);
  let read = 0;
  ends.accepted.on('data', ({ length }: Buffer) => (read += length)).resume();
  await eventually(() => expect(read).toBe(1_000_000));
  await ends.close();
});

test('buffers of a size that the program has chosen keep it', async () => {
  const ends = await connected(device, peer, { receiveBytes: 262_144, sendBytes: 262_144 });
  expect((await send(MUCH, device, peer, ends))[1]).toBeLessThan(SMALL);
  await ends.close();
});

test('buffers do not grow when less than half of the memory would be left', async () => {
  const hub = createMemoryHub();
  await using own = await openDevice({ hub, addresses: [OWN_HOST], memoryBytes: 2 ** 24 });
  await using other = await openDevice({ hub, addresses: [HOST], memoryBytes: 2 ** 24 });
  const fill = async (of: Device) => (await of.allocPd()).regMr(free(of) - 2 ** 23);
  await Promise.all([own, other].map(fill));
  const ends = await connected(own, other);
  expect((await send(MUCH, own, other, ends))[1]).toBeLessThan(SMALL);
  await ends.close();
});

test('a connection sends with what little memory is left', async () => {
  const hub = createMemoryHub();
  await using own = await openDevice({ hub, addresses: [OWN_HOST], memoryBytes: 2 ** 24 });
  await using other = await openDevice({ hub, addresses: [HOST] });
  const ends = await connected(own, other);
  const pd = await own.allocPd();
  for (let bytes = 2 ** 23; bytes >= 4096; bytes >>= 1)
    while (free(own) > bytes + 8192) if (!(await pd.regMr(bytes).catch(() => undefined))) break;
  expect(free(own)).toBeLessThan(SMALL);
  await send(LARGE, own, other, ends);
  await ends.close();
});

test('onread allocates no memory for the bytes', async () => {
  const memory = Buffer.alloc(65_536);
  const hash = createHash('sha256');
  let read = 0;
  const callback = (bytes: number, buffer: Uint8Array) => {
    hash.update(buffer.subarray(0, bytes));
    read += bytes;
    return true;
  };
  const ends = await connected(device, peer, {}, { buffer: memory, callback });
  const data = randomBytes(MUCH);
  const allocations = vi.spyOn(Buffer, 'allocUnsafe');
  for (let at = 0; at < MUCH; at += 100_000)
    if (!ends.accepted.write(data.subarray(at, at + 100_000))) await once(ends.accepted, 'drain');
  await eventually(() => expect(read).toBe(MUCH));
  expect(allocations.mock.calls.filter(([bytes]) => bytes > 4096)).toEqual([]);
  allocations.mockRestore();
  expect(hash.digest('hex')).toBe(createHash('sha256').update(data).digest('hex'));
  await ends.close();
});
