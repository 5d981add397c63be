// Sockets of wasm-roce/net and the stock programs of librdmacm's rsockets.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, onTestFailed, onTestFinished, test } from 'vitest';
import { connect, createServer, type MappedMemory, type RsocketServerOptions, type Socket } from '../../src/net.js';
import { OurDevice } from './card.js';
import { corners, describeLinks, describeWithRxe, matrix } from './environment.js';
import type { Guest } from './guest/guest.js';
import { CARD, GUEST } from './guest/network.js';

const PORT = 7471;
/** Bytes of each transfer, and their number in each direction of a round. */
const SIZES = [
  [64, 10],
  [4096, 10],
  [65_536, 10],
  [1_048_576, 2],
];
const ROUNDS = 5;
/** Options for the calls that rstream uses, and for its buffers. */
const MODES = [
  ['-T', 'a'],
  ['-T', 'b'],
  ['-T', 'n'],
  ['-f', 'ip'],
  ['-B', '8192'],
  ['-i', '0'],
].map((words) => [words]);
/**
 * Linux sends the DREQ of a process that exits once. Where the network loses it, our end learns of it by its watch of
 * the peer, which by default takes longer than a test.
 */
const WATCH = { keepAliveInitialDelay: 1000, peerTimeout: 10_000 };
/** Bytes that the ends exchange first, to start together. */
const SYNC_BYTES = 16;

/** Reads so many bytes of a socket. */
async function take(socket: Socket, bytes: number): Promise<Buffer> {
  const received: Buffer[] = [];
  for (let left = bytes; left > 0; ) {
    const data = socket.read(Math.min(left, Math.max(1, socket.readableLength))) as Buffer | null;
    if (data === null) await once(socket, 'readable');
    else {
      received.push(data);
      left -= data.length;
    }
  }
  return Buffer.concat(received);
}

/** rstream exits before its farewell is acknowledged. If the network loses that, its end is a reset. */
function expectReset({ code }: NodeJS.ErrnoException): void {
  expect(code).toMatch(/^(ECONNRESET|ETIMEDOUT)$/);
}

/** Listens, and starts a program of the guest that connects. @returns its end, and our socket */
async function served(guest: Guest, options: RsocketServerOptions, words: readonly string[], address: string) {
  const server = createServer({ ...WATCH, ...options }).listen(PORT);
  onTestFinished(() => void server.close());
  const connection = once(server, 'connection');
  await once(server, 'listening');
  const tool = guest.spawn([...words, '-s', address]);
  const [socket] = (await connection) as [Socket];
  onTestFinished(() => void socket.destroy());
  return { tool, socket, server };
}

/** One transfer of rstream in each direction, some times. */
interface Transfer {
  readonly size: number;
  readonly count: number;
  /** Further options. */
  readonly options?: readonly string[];
}

const wordsOf = ({ size, count, options = [] }: Transfer) => [
  ...['rstream', '-S', String(size), '-C', String(count), '-I', String(ROUNDS)],
  ...options,
];

/** rstream is the client and checks, with `-T v`, that we send back what it has sent. */
async function serveStock(guest: Guest, { device }: OurDevice, address: string, transfer: Transfer): Promise<void> {
  const bytes = transfer.size * transfer.count;
  const { tool, socket, server } = await served(guest, { device }, wordsOf(transfer), address);
  socket.write(await take(socket, SYNC_BYTES));
  for (let i = 0; i < ROUNDS; i++) socket.write(await take(socket, bytes));
  socket.on('error', expectReset);
  const { status, stdout, stderr } = await tool.exited;
  socket.resume();
  await new Promise((resolve) => server.close(resolve));
  expect([status, stdout, stderr]).toEqual([0, expect.stringMatching(/\d/), '']);
}

/** rstream is the server. */
async function useStock(guest: Guest, { device }: OurDevice, address: string, transfer: Transfer): Promise<void> {
  const bytes = transfer.size * transfer.count;
  const tool = guest.spawn([...wordsOf(transfer), '-b', address]);
  await guest.listening(PORT, 'rdma');
  const socket = connect({ ...WATCH, device, host: address, port: PORT });
  onTestFinished(() => void socket.destroy());
  socket.write(Buffer.alloc(SYNC_BYTES));
  await take(socket, SYNC_BYTES);
  for (let i = 0; i < ROUNDS; i++) {
    socket.write(randomBytes(bytes));
    await take(socket, bytes);
  }
  socket.on('error', expectReset);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.end();
  socket.resume();
  const { status, stdout } = await tool.exited;
  await closed;
  expect([status, stdout]).toEqual([0, expect.stringMatching(/\d/)]);
}

/** Waits until the peer has written the marker to the end of the memory. */
async function marked({ buffer }: MappedMemory, marker: number): Promise<void> {
  while (buffer.at(-1) !== (marker & 0xff)) await new Promise((resolve) => setTimeout(resolve, 1));
}

/** The markers of the last round. */
const LAST_MARKERS = [2 * ROUNDS - 2, 2 * ROUNDS - 1];

/** Writes all bytes to the peer's memory some times, the last time with the marker at the end. */
async function mark(socket: Socket, bytes: Buffer, count: number, marker: number): Promise<void> {
  const last = bytes.length - 1;
  for (let i = 1; i < count; i++) await socket.iowrite(bytes.fill(0xff, last), 0);
  await socket.iowrite(bytes.fill(marker & 0xff, last), 0).catch((error) => {
    // the peer ends when it has seen the last marker, and the ACK may be lost
    if (!LAST_MARKERS.includes(marker) || error.code !== 'ECANCELED') throw error;
  });
}

const mappedWordsOf = (transfer: Transfer) => ['riostream', ...wordsOf(transfer).slice(1)];

/** riostream is the client. With `-T v` it checks that we write back what it has written. */
async function serveMapped(guest: Guest, { device }: OurDevice, address: string, transfer: Transfer): Promise<void> {
  const { tool, socket, server } = await served(guest, { device, iomapSize: 1 }, mappedWordsOf(transfer), address);
  const memory = await socket.iomap(transfer.size);
  memory.buffer.fill(0xff);
  socket.write(await take(socket, SYNC_BYTES));
  for (let marker = 0; marker < 2 * ROUNDS; marker += 2) {
    await marked(memory, marker);
    await mark(socket, Buffer.from(memory.buffer), transfer.count, marker + 1);
  }
  socket.on('error', expectReset);
  socket.resume();
  const { status, stdout, stderr } = await tool.exited;
  await new Promise((resolve) => server.close(resolve));
  expect([status, stdout, stderr]).toEqual([0, expect.stringMatching(/\d/), '']);
}

/** riostream is the server. It writes from the memory that we write to. */
async function useMapped(guest: Guest, { device }: OurDevice, address: string, transfer: Transfer): Promise<void> {
  const tool = guest.spawn([...mappedWordsOf(transfer), '-b', address]);
  await guest.listening(PORT, 'rdma');
  const socket = connect({ ...WATCH, device, host: address, port: PORT, iomapSize: 1 });
  onTestFinished(() => void socket.destroy());
  let step = 'connect';
  onTestFailed(() => console.error(`${step} of riostream: ${tool.error('did not end')}`, device.counters()));
  await once(socket, 'connect');
  const memory = await socket.iomap(transfer.size);
  memory.buffer.fill(0xff);
  step = 'the first bytes';
  socket.write(Buffer.alloc(SYNC_BYTES));
  await take(socket, SYNC_BYTES);
  const bytes = randomBytes(transfer.size);
  for (let marker = 0; marker < 2 * ROUNDS; marker += 2) {
    step = `marker ${marker}`;
    await mark(socket, bytes, transfer.count, marker);
    step = `marker ${marker + 1}`;
    await marked(memory, marker + 1);
    expect(memory.buffer.subarray(0, -1).equals(bytes.subarray(0, -1))).toBe(true);
  }
  socket.on('error', expectReset);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  step = 'exit';
  socket.end();
  socket.resume();
  const { status, stdout } = await tool.exited;
  step = 'our close';
  await closed;
  expect([status, stdout]).toEqual([0, expect.stringMatching(/\d/)]);
}

describeWithRxe('rsockets', 1500, (environment) => {
  describeLinks(matrix(['rstream']), 'link %s, %s, %s', ([link, family]) => {
    const { ours, theirs } = {
      IPv4: { ours: CARD.ipv4, theirs: GUEST.ipv4 },
      IPv6: { ours: CARD.ipv6, theirs: GUEST.ipv6 },
    }[family];
    let our: OurDevice;
    beforeAll(async () => {
      our = await OurDevice.open(link);
    });
    afterAll(() => our[Symbol.asyncDispose]());

    test.each(SIZES)(
      'its client, %d bytes, and our server',
      (size, count) => serveStock(environment.guest, our, ours, { size, count }),
      60_000,
    );

    test.each(SIZES)(
      'its server, %d bytes, and our client',
      (size, count) => useStock(environment.guest, our, theirs, { size, count }),
      60_000,
    );
  });

  describe.each([
    ['a good network', {}, SIZES],
    // the guest waits for each lost packet of a large message
    [
      'a network that loses 1 % both ways',
      { faults: { seed: 14, both: { drop: 0.01 } } },
      corners(SIZES, ([size]) => size < 2 ** 20),
    ],
  ] as const)('over %s', (_, card, sizes) => {
    let our: OurDevice;
    beforeAll(async () => {
      our = await OurDevice.open('packet', card);
    });
    afterAll(() => our[Symbol.asyncDispose]());

    // -T: async (poll), blocking, nonblocking, verify
    test.each(MODES)(
      'its client, options %s, and our server',
      (words) =>
        serveStock(environment.guest, our, CARD.ipv4, { size: 20_000, count: 5, options: ['-T', 'v', ...words] }),
      120_000,
    );

    test.each(MODES)(
      'its server, options %s, and our client',
      (words) => useStock(environment.guest, our, GUEST.ipv4, { size: 20_000, count: 5, options: words }),
      120_000,
    );

    test.each(sizes)(
      'riostream is the client, %d bytes',
      (size, count) => serveMapped(environment.guest, our, CARD.ipv4, { size, count, options: ['-T', 'v'] }),
      60_000,
    );

    test.each(sizes)(
      'riostream is the server, %d bytes',
      (size, count) => useMapped(environment.guest, our, GUEST.ipv4, { size, count }),
      60_000,
    );
  });
});
