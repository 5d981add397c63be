// The share of one client of a server of calls is bounded, and an honest client beside it is served at once.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Connection, Device } from '../../../src/index.js';
import { CONNECTION_OPTIONS } from '../../../src/protocols/rpc/channel.js';
import {
  encodeLarge,
  type FrameInit,
  FrameType,
  frameBytes,
  LARGE,
  PROTOCOL,
  writeFrame,
} from '../../../src/protocols/rpc/wire.js';
import { connect, createServer, type RpcServer, type RpcServerOptions } from '../../../src/rpc.js';
import { eventually } from '../../kit/eventually.js';
import { SlowReadsLink } from '../../kit/slowreads.js';
import { device, HOST, openAt, peer, useDevices } from '../devices.js';

useDevices();

const PORT = 7473;
const OTHER_HOST = '10.0.0.3';

let server: RpcServer | undefined;
let other: Device;
let handled: number;
let running: number;
let release: (() => void)[];
let faults: string[];

beforeEach(async () => {
  other = await openAt(OTHER_HOST);
  [handled, running, release, faults] = [0, 0, [], []];
});
afterEach(async () => {
  for (const resolve of release) resolve();
  await server?.close();
  await other.close({ force: true });
});

async function serve(options: Partial<RpcServerOptions> = {}): Promise<void> {
  const page = Buffer.alloc(60_000, 'page');
  server = await createServer({
    device: peer,
    methods: {
      page: () => {
        handled++;
        return page;
      },
      echo: (request) => request,
      // it does not heed its signal
      stubborn: async () => {
        running++;
        await new Promise<void>((resolve) => release.push(resolve));
        running--;
        return Buffer.alloc(0);
      },
    },
    streams: {
      async stubborn() {
        running++;
        await new Promise<void>((resolve) => release.push(resolve));
        running--;
      },
    },
    onError: ({ message }) => faults.push(message),
    ...options,
  });
}

const rawClient = (of: Device = device): Promise<Connection> =>
  of.connect({ host: HOST, port: PORT, ...CONNECTION_OPTIONS, privateData: PROTOCOL });

function bytesOf(...frames: FrameInit[]): Buffer {
  const message = Buffer.alloc(frames.reduce((sum, frame) => sum + frameBytes(frame), 0));
  let at = 0;
  for (const frame of frames) at = writeFrame(message, at, frame);
  return message;
}

const calls = (count: number, init: Partial<FrameInit>, first = 1): FrameInit[] =>
  Array.from({ length: count }, (_, n) => ({ type: FrameType.CALL, call: first + n, ...init }));

/** A client at another address is served within a second. */
async function isServed(): Promise<void> {
  await using honest = await connect({ device: other, host: HOST });
  expect((await honest.call('echo', Buffer.from('hello'), { timeout: 1000 })).toString()).toBe('hello');
  expect(await honest.call('echo', Buffer.alloc(200_000), { timeout: 1000 })).toHaveLength(200_000);
}

test('calls of a client that takes no responses are neither read nor executed', async () => {
  await serve();
  const raw = await rawClient();
  let sent = 0;
  void (async () => {
    for (let first = 1; first < 100_000; first += 50) {
      await raw.send(bytesOf(...calls(50, { name: 'page' }, first)));
      sent += 50;
    }
  })().catch(() => {});
  const before = () => [handled, sent];
  for (let last = [-1]; `${last}` !== `${before()}`; ) {
    last = before();
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  // 1024 answers wait for room; what the client has sent beyond them fills its receives, and no more
  expect(handled).toBeLessThan(1200);
  expect(sent).toBeLessThan(5000);
  await isServed();
  // it goes on when it takes them
  for (const until = handled + 2000; handled < until; ) await raw.receive();
  raw.destroy();
});

test('refusals that a client does not take stop the server from reading its calls', async () => {
  await serve();
  const raw = await rawClient();
  let messages = 0;
  void (async () => {
    for (; messages < 2000; messages++) await raw.send(bytesOf(...calls(1000, { name: 'none' })));
  })().catch(() => {});
  for (let last = -1; last !== messages; ) {
    last = messages;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  expect(messages).toBeLessThan(60);
  await isServed();
  raw.destroy();
});

test.each([
  ['calls', FrameType.CALL],
  ['streams', FrameType.OPEN],
])('%s count until their handlers return, also if the client has ended them', async (_, type) => {
  await serve({ maxCalls: 10 });
  const raw = await rawClient();
  for (let round = 0; round < 5; round++) {
    const frames = calls(10, { type, name: 'stubborn' }, 1 + 10 * round);
    await raw.send(bytesOf(...frames, ...frames.map(({ call }) => ({ type: FrameType.CANCEL, call }))));
  }
  await eventually(() => expect(running).toBe(10));
  const refused = (await raw.receive())?.data.toString();
  expect(refused).toContain('10 calls are under way already');
  expect(running).toBe(10);
  await isServed();
  for (const resolve of release.splice(0)) resolve();
  await eventually(() => expect(running).toBe(0));
  await raw.send(bytesOf(...calls(10, { type, name: 'stubborn' }, 1000)));
  await eventually(() => expect(running).toBe(10));
  raw.destroy();
});

test('the connections of one address have one share of the calls', async () => {
  await serve({ maxCalls: 10 });
  const raws = await Promise.all(Array.from({ length: 20 }, () => rawClient()));
  for (const raw of raws) await raw.send(bytesOf(...calls(10, { name: 'stubborn' })));
  await eventually(() => expect(running).toBe(10));
  await isServed();
  for (const raw of raws) raw.destroy();
});

test('a client whose memory answers READs of 4 KiB each 3 s keeps a share of the bytes, and loses its connection', async () => {
  await serve({ maxPendingBytes: 2 ** 26 });
  let slow: SlowReadsLink | undefined;
  const hostile = await openAt('10.0.0.66', {
    wrapLink: SlowReadsLink.wrap((link) => {
      slow = link;
    }),
  });
  const raw = await rawClient(hostile);
  const mr = await raw.pd.regMr(4 * 2 ** 20, { access: ['remoteRead'] });
  (slow as unknown as SlowReadsLink).interval = 3000;
  const ended = new Promise((resolve) => raw.once('close', resolve));
  await raw.send(bytesOf(...calls(64, { name: 'echo', flags: LARGE, body: encodeLarge(mr.remote) })));
  for (let second = 0; second < 8; second++) {
    await isServed();
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  expect(faults).toEqual([]);
  await ended;
  expect(faults).toEqual([expect.stringMatching(/^ETIMEDOUT: the peer let \d+ bytes through within 10000 ms/)]);
  await isServed();
  await hostile.close({ force: true });
});

test('short messages do not keep the long ones in which they arrived', async () => {
  const kept: Buffer[] = [];
  await serve({
    streams: {
      async collect(stream) {
        for await (const message of stream) kept.push(message);
      },
    },
  });
  const raw = await rawClient();
  const padding = { type: FrameType.MESSAGE, call: 99, body: Buffer.alloc(60_000) };
  await raw.send(bytesOf({ type: FrameType.OPEN, call: 1, name: 'collect' }));
  for (let n = 0; n < 16; n++)
    await raw.send(bytesOf({ type: FrameType.MESSAGE, call: 1, body: Buffer.alloc(1, n) }, padding));
  await eventually(() => expect(kept).toHaveLength(16));
  expect(kept.map(([byte]) => byte)).toEqual(Array.from({ length: 16 }, (_, n) => n));
  expect(Math.max(...kept.map(({ buffer }) => buffer.byteLength))).toBeLessThan(1000);
  raw.destroy();
});

test('the connections of one address leave memory for those of others', async () => {
  await serve();
  const before = peer.query().memoryAvailable;
  const small = await openAt('10.0.0.67', { memoryBytes: 2 ** 28 });
  const options = { host: HOST, port: PORT, ...CONNECTION_OPTIONS, privateData: PROTOCOL };
  const raws: Connection[] = [];
  for (let round = 0; round < 60; round++) {
    const opened = await Promise.allSettled(Array.from({ length: 100 }, () => small.connect(options)));
    for (const result of opened) if (result.status === 'fulfilled') raws.push(result.value);
  }
  await isServed();
  const open = () => raws.filter(({ isOpen }) => isOpen).length;
  expect(open()).toBeGreaterThan(100);
  expect(peer.query().memoryAvailable).toBeGreaterThan(before / 4);
  await small.close({ force: true });
}, 120_000);

test('one client has at most half of the bytes, and another one gets some', async () => {
  await serve({ maxPendingBytes: 1_000_000 });
  const raw = await rawClient();
  for (let first = 1; first < 40; first++)
    await raw.send(bytesOf(...calls(1, { name: 'stubborn', body: Buffer.alloc(60_000) }, first)));
  expect((await raw.receive())?.data.toString()).toContain('RESOURCE_EXHAUSTED');
  await eventually(() => expect(running).toBe(8));
  await isServed();
  raw.destroy();
});
