// Peers that break the protocol of calls: each ends its own connection, and nothing else.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Connection } from '../../../src/index.js';
import { CONNECTION_OPTIONS } from '../../../src/protocols/rpc/channel.js';
import {
  type FrameInit,
  FrameType,
  frameBytes,
  LARGE,
  PROTOCOL,
  readFrames,
  writeFrame,
} from '../../../src/protocols/rpc/wire.js';
import { connect, createServer, type RpcServer } from '../../../src/rpc.js';
import { eventually } from '../../kit/eventually.js';
import { Random } from '../../kit/random.js';
import { device, HOST, peer, useDevices } from '../devices.js';

useDevices();

const PORT = 7473;

let server: RpcServer;
let faults: string[];

beforeEach(async () => {
  faults = [];
  server = await createServer({
    device: peer,
    maxPendingBytes: 200_000,
    methods: {
      echo: (request) => request,
      memory: ({ buffer }) => Buffer.from(`${buffer.byteLength}`),
      large: () => Buffer.alloc(1_000_000),
      wait: () => new Promise(() => {}),
    },
    streams: {
      async wait(stream) {
        for await (const message of stream) if (message.length === 0) await new Promise(() => {});
      },
    },
    onError: ({ message }) => faults.push(message),
  });
});

afterEach(async () => {
  await server.close();
  for (const each of [device, peer]) await eventually(() => each.close());
});

const rawClient = (privateData: Uint8Array = PROTOCOL): Promise<Connection> =>
  device.connect({ host: HOST, port: PORT, ...CONNECTION_OPTIONS, privateData });

function bytesOf(...frames: FrameInit[]): Buffer {
  const message = Buffer.alloc(frames.reduce((sum, frame) => sum + frameBytes(frame), 0));
  let at = 0;
  for (const frame of frames) at = writeFrame(message, at, frame);
  return message;
}

async function isServed(): Promise<void> {
  await using honest = await connect({ device, host: HOST });
  expect((await honest.call('echo', Buffer.from('hello'))).toString()).toBe('hello');
}

/** Resolves when the server has ended the connection. */
async function isEnded(raw: Connection): Promise<void> {
  while ((await raw.receive().catch(() => undefined)) !== undefined);
  await raw.close().catch(() => {});
}

const largeBody = (length: number, addr = 0n) => {
  const body = Buffer.alloc(16);
  body.writeBigUInt64BE(addr);
  body.writeUInt32BE(length, 12);
  return body;
};
const call = (init: Partial<FrameInit> = {}): FrameInit => ({ type: FrameType.CALL, call: 1, name: 'wait', ...init });
const open = (init: Partial<FrameInit> = {}) => call({ type: FrameType.OPEN, ...init });

test.each<[string, Buffer, RegExp]>([
  ['half a header', Buffer.alloc(10), /a frame has 10 bytes of its header/],
  ['a frame longer than its message', bytesOf(call({ body: Buffer.alloc(9) })).subarray(0, -1), /a frame has 29 bytes/],
  ['a call twice', bytesOf(call(), call()), /it has begun call 1 twice/],
  ['a message for a call', bytesOf(call(), { type: FrameType.MESSAGE, call: 1 }), /of type 5 for call 1, which is no/],
  ['a result for a stream', bytesOf(open(), { type: FrameType.FAIL, call: 1 }), /a frame of type 4 for a stream/],
  [
    'more messages than it may',
    bytesOf(open(), ...Array.from({ length: 40 }, () => ({ type: FrameType.MESSAGE, call: 1 }))),
    /a message that it may not send/,
  ],
  ['too many credits', bytesOf(open(), { type: FrameType.CREDIT, call: 1, argument: 5 }), /it has allowed 21 messages/],
  ['a release of nothing', bytesOf({ type: FrameType.RELEASE, call: 0, argument: 7 }), /memory with key 7/],
  [
    'a body in memory that ends beyond the last address',
    bytesOf(call({ flags: LARGE, body: largeBody(2, 2n ** 64n - 1n) })),
    /a body in memory has 2 bytes at address 0xffffffffffffffff, and ends beyond 2\^64/,
  ],
  ['a body in memory of 3 bytes', bytesOf(call({ flags: LARGE, body: Buffer.alloc(3) })), /a body in memory has 3/],
])('%s ends the connection', async (_, message, error) => {
  const raw = await rawClient();
  await raw.send(message);
  await isEnded(raw);
  expect(faults.length).toBe(1);
  expect(faults[0]).toMatch(error);
  await isServed();
});

test('a body in memory that cannot be read ends the connection', async () => {
  const raw = await rawClient();
  await raw.send(bytesOf(call({ name: 'echo', flags: LARGE, body: largeBody(20_000) })));
  await isEnded(raw);
  await isServed();
});

test('a call that would exceed the bytes of the server is refused, without a read', async () => {
  const raw = await rawClient();
  await raw.send(bytesOf(call({ name: 'echo', flags: LARGE, body: largeBody(0xffffffff) })));
  const answer = (await raw.receive())?.data.toString();
  expect(answer).toContain('RESOURCE_EXHAUSTED');
  await isServed();
  await raw.close();
});

test('messages that exceed the bytes of the server end their streams alone', async () => {
  const raw = await rawClient();
  for (let stream = 1; stream <= 4; stream++) await raw.send(bytesOf(open({ call: stream })));
  // the handler reads one message of each stream, and waits
  for (let stream = 1; stream <= 4; stream++) await raw.send(bytesOf({ type: FrameType.MESSAGE, call: stream }));
  for (let stream = 1; stream <= 4; stream++)
    await raw.send(bytesOf({ type: FrameType.MESSAGE, call: stream, body: Buffer.alloc(30_000) }));
  const answer = (await raw.receive())?.data;
  expect(answer?.readUInt32BE(4)).toBe(4);
  expect(answer?.toString()).toContain('RESOURCE_EXHAUSTED');
  await isServed();
  await raw.close();
  // what they held is free again
  await eventually(() => expect(server.clients).toBe(0));
  await using honest = await connect({ device, host: HOST });
  expect((await honest.call('echo', Buffer.alloc(90_000))).length).toBe(90_000);
});

test('a request does not keep the message that it came in', async () => {
  const raw = await rawClient();
  const others = call({ call: 2, body: Buffer.alloc(30_000) });
  await raw.send(bytesOf(call({ name: 'memory', body: Buffer.alloc(10) }), others));
  const [answer] = readFrames((await raw.receive())?.data as Buffer);
  expect(Number(answer?.body)).toBe(10);
  await raw.close();
});

test('messages after the end of a stream take no bytes of the server', async () => {
  for (let n = 1; n <= 7; n++) {
    const raw = await rawClient();
    const [end, message] = [
      { type: FrameType.END, call: 1 },
      { type: FrameType.MESSAGE, call: 1 },
    ];
    await raw.send(bytesOf(open(), end, { ...message, body: Buffer.alloc(30_000) }));
    await isEnded(raw);
    expect(faults.length).toBe(n);
  }
  await eventually(() => expect(server.clients).toBe(0));
  await using honest = await connect({ device, host: HOST });
  expect((await honest.call('echo', Buffer.alloc(90_000))).length).toBe(90_000);
});

test('a client that does not read a response is disconnected, and its memory freed', async () => {
  const raw = await rawClient();
  await raw.send(bytesOf(call({ name: 'large' })));
  await isEnded(raw);
  expect(faults).toEqual(['the peer has not read a message within 60000 ms']);
  await isServed();
});

test('a connection of another protocol is ended', async () => {
  await rawClient(Buffer.from('other')).then(isEnded, () => {});
  await isServed();
});

test('connecting to a server of another protocol fails', async () => {
  const other = await peer.listen(7000);
  other.on('connection', () => {});
  await expect(connect({ device, host: HOST, port: 7000 })).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  await other.close();
});

test.each([1, 2, 3, 4, 5, 6])('random messages end their own connection alone (seed %i)', async (seed) => {
  const random = new Random(seed);
  for (let connection = 0; connection < 10; connection++) {
    const raw = await rawClient();
    for (let i = 0; i < 10; i++) {
      const message = bytesOf(
        ...Array.from({ length: 1 + random.below(4) }, () => ({
          type: random.below(11) as FrameType,
          call: random.below(3),
          flags: random.chance(0.2) ? LARGE : 0,
          argument: random.chance(0.5) ? random.below(20) : random.u32(),
          name: random.pick(['', 'echo', 'wait', 'large']),
          body: Buffer.from(random.bytes(random.pick([0, 3, 16, 100]))),
        })),
      );
      if (random.chance(0.3)) message[random.below(message.length)] = random.below(256);
      await raw.send(message).catch(() => {});
    }
    await raw.close().catch(() => {});
  }
  await isServed();
  await eventually(() => expect(server.clients).toBe(0));
});

test('the messages of a server that breaks the protocol end the client, and its calls', async () => {
  const fake = await peer.listen({ port: 7001, accept: CONNECTION_OPTIONS });
  const accepted = new Promise<Connection>((resolve) => fake.once('connection', resolve));
  const client = await connect({ device, host: HOST, port: 7001 });
  const raw = await accepted;
  const waiting = client.call('echo', Buffer.alloc(10));
  await raw.receive();
  await raw.send(bytesOf({ type: FrameType.MESSAGE, call: 1 }));
  await expect(waiting).rejects.toMatchObject({
    code: 'UNAVAILABLE',
    message: 'UNAVAILABLE: it has sent a frame of type 5 for a call',
  });
  await client.close();
  await raw.close().catch(() => {});
  await fake.close();
});
