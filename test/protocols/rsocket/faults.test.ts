// Peers that do not keep to the protocol of rsockets: each ends its own connection, and nothing else.
import { once } from 'node:events';
import { beforeEach, expect, test } from 'vitest';
import { type CmId, type Cq, createCmId, type Mr, type Qp, type VerbsError, WcStatus } from '../../../src/index.js';
import { connect, createServer, type Server, type Socket } from '../../../src/net.js';
import {
  type ConnectData,
  Control,
  decodeConnectData,
  encodeConnectData,
  immediate,
  MessageKind,
  TARGET_BYTES,
  writeTarget,
} from '../../../src/protocols/rsocket/wire.js';
import { eventually } from '../../kit/eventually.js';
import { Random } from '../../kit/random.js';
import { device, HOST, peer, useDevices } from '../devices.js';

useDevices();

const PORT = 7000;
/** Bytes of the raw peer's half of a buffer, and the offset of that in its memory. */
const HALF = 4096;
const RING = 64;
/** Receives of the raw peer: it does not post them again. */
const RECEIVES = 512;

let server: Server;
/** Sockets of the server, and their errors. */
let sockets: Socket[];
let errors: Error[];

beforeEach(async () => {
  sockets = [];
  errors = [];
  server = createServer({ device: peer, allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    socket.on('error', (error) => errors.push(error));
  });
  server.listen(PORT);
  await once(server, 'listening');
});

const SOME_TARGET = { addr: 0n, rkey: 0, length: 2 };
const SOME_DATA: ConnectData = {
  isBigEndian: false,
  credits: 1,
  list: SOME_TARGET,
  buffer: SOME_TARGET,
  mappings: 0,
};

/** One end of a connection whose messages a test writes. */
class RawPeer {
  private constructor(
    readonly id: CmId,
    readonly cq: Cq,
    readonly qp: Qp,
    readonly memory: Mr,
    /** The memory that our end has announced. */
    readonly our: ConnectData,
  ) {}

  /** @param change wrong fields of its private data; or the private data itself */
  static async connect(change: Partial<ConnectData> | Uint8Array = {}): Promise<RawPeer> {
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: 2048 });
    const memory = await pd.regMr(RING + 2 * HALF, { access: ['localWrite', 'remoteWrite'] });
    const addr = BigInt(memory.iova);
    const right: ConnectData = {
      isBigEndian: false,
      credits: 384,
      list: { addr, rkey: memory.rkey, length: 2 },
      buffer: { addr: addr + BigInt(RING), rkey: memory.rkey, length: HALF },
      mappings: 0,
    };
    const id = createCmId(device);
    await id.resolveAddr(HOST, PORT);
    await id.resolveRoute();
    const qp = await id.createQp(pd, {
      sendCq: cq,
      maxSendWr: 1024,
      maxRecvWr: RECEIVES,
      maxSendSge: 1,
      maxRecvSge: 1,
    });
    qp.postRecv(Array.from({ length: RECEIVES }, () => ({})));
    const own = change instanceof Uint8Array ? change : encodeConnectData({ ...right, ...change });
    const { privateData } = await id.connect({ responderResources: 0, initiatorDepth: 0, privateData: own });
    return new RawPeer(id, cq, qp, memory, decodeConnectData(privateData));
  }

  /** Sends a message. @param bytes its data @param offset of the data, from the start of the announced memory */
  say(kind: MessageKind, value: number, bytes = 0, offset = 0): void {
    const { addr, rkey } = this.our.buffer;
    this.qp.postSend({
      opcode: 'RDMA_WRITE_WITH_IMM',
      immData: immediate(kind, value),
      sgList: bytes > 0 ? this.memory.sge(RING, bytes) : [],
      remoteAddr: addr + BigInt(offset),
      rkey,
    });
  }
}

/** Waits for the error of the server's first socket. */
async function failure(): Promise<Error> {
  await eventually(() => expect(errors.length).toBe(1));
  return errors[0] as Error;
}

/** An honest client is served. */
async function isServed(): Promise<void> {
  const connection = once(server, 'connection');
  const socket = connect({ device, host: HOST, port: PORT });
  const [served] = (await connection) as [Socket];
  served.pipe(served);
  socket.end('hello');
  expect(`${(await once(socket, 'data'))[0]}`).toBe('hello');
  await once(socket, 'close');
}

test.each<[string, Partial<ConnectData> | Uint8Array]>([
  ['no private data', new Uint8Array(0)],
  ['another version', encodeConnectData(SOME_DATA).fill(2, 0, 1)],
  ['a list of one entry', { list: { addr: 0n, rkey: 0, length: 1 } }],
  ['a list that ends beyond the last address', { list: { addr: 2n ** 64n - 31n, rkey: 1, length: 2 } }],
  [
    'a table of mappings that ends beyond the last address',
    { list: { addr: 2n ** 64n - 33n, rkey: 1, length: 2 }, mappings: 1 },
  ],
  ['a buffer that ends beyond the last address', { buffer: { addr: 2n ** 64n - 9n, rkey: 1, length: 10 } }],
])('a request with %s is refused', async (_, change) => {
  await expect(RawPeer.connect(change)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  expect(sockets).toEqual([]);
  await isServed();
});

test.each<[string, (raw: RawPeer) => void, RegExp]>([
  [
    'data that is longer than its memory',
    (raw) => raw.say(MessageKind.DATA, 0x1000_0000),
    /268435456 bytes where it may/,
  ],
  [
    'data after its end',
    (raw) => {
      raw.say(MessageKind.CONTROL, Control.SHUTDOWN);
      raw.say(MessageKind.DATA, 5, 5);
    },
    /5 bytes after its end/,
  ],
  [
    'messages without data, without end',
    (raw) => {
      for (let i = 0; i < 400; i++) raw.say(MessageKind.DATA, 0);
    },
    /more than 384 messages/,
  ],
  [
    'an empty part of its buffer',
    (raw) => raw.say(MessageKind.CREDITS, 400, TARGET_BYTES, -TARGET_BYTES),
    /gave 0 bytes of its buffer/,
  ],
  [
    'more parts of its buffer than its list has',
    (raw) => {
      raw.memory.buffer.fill(1, RING, RING + TARGET_BYTES);
      for (const slot of [1, 2]) raw.say(MessageKind.CREDITS, 400, TARGET_BYTES, -slot * TARGET_BYTES);
    },
    /more than 2 parts of its buffer at once/,
  ],
  [
    'a part of its buffer that ends beyond the last address',
    (raw) => {
      const entry = new DataView(raw.memory.buffer.buffer, raw.memory.buffer.byteOffset + RING, TARGET_BYTES);
      writeTarget(entry, 0, { addr: 2n ** 64n - 1n, rkey: 1, length: 2 }, false);
      raw.say(MessageKind.CREDITS, 400, TARGET_BYTES, -TARGET_BYTES);
    },
    /a part of its buffer has 2 bytes at address 0xffffffffffffffff, and ends beyond 2\^64/,
  ],
  ['a mapping for which there is no entry', (raw) => raw.say(MessageKind.IOMAP, 0), /the index 0 of a table of 0/],
  ['a message of an unknown kind', (raw) => raw.say(3 as MessageKind, 1), /kind 3, value 1/],
  ['an unknown control message', (raw) => raw.say(MessageKind.CONTROL, 9), /kind 7, value 9/],
  [
    'a SEND',
    (raw) => raw.qp.postSend({ opcode: 'SEND', sgList: raw.memory.sge(RING, 0) }),
    /a message of 0 bytes by SEND/,
  ],
  [
    'a WRITE outside of what was announced',
    (raw) => raw.say(MessageKind.DATA, 8, 8, 2 ** 24),
    /a request that .* does not allow/,
  ],
])('%s ends the socket with an error', async (_, speak, message) => {
  await isServed();
  const raw = await RawPeer.connect();
  await eventually(() => expect(sockets.length).toBe(2));
  speak(raw);
  expect(await failure()).toMatchObject({ code: 'EIO', message: expect.stringMatching(message) });
  await isServed();
});

test.each([
  ['the first address', 0n, 2],
  ['the last address', 2n ** 64n - 2n, 2],
  ['no bytes behind the last address', 2n ** 64n - 1n, 0],
])('a buffer at %s: a write to it ends the socket alone', async (_, addr, length) => {
  await RawPeer.connect({ buffer: { addr, rkey: 0x1234, length } });
  await eventually(() => expect(sockets.length).toBe(1));
  const [socket] = sockets as [Socket];
  socket.write('hello');
  socket.resume();
  if (length > 0) expect(((await failure()) as VerbsError).code).toBe('ECONNRESET');
  else await new Promise<void>((resolve) => socket.setTimeout(50, resolve));
  await isServed();
});

test('connect fails when the server’s reply names a list beyond the last address', async () => {
  const listener = createCmId(peer);
  await listener.bindAddr(HOST, PORT + 1);
  await listener.listen();
  const failed = once(connect({ device, host: HOST, port: PORT + 1 }), 'error');
  const id = await listener.getRequest();
  const [pd, cq] = [await peer.allocPd(), await peer.createCq({ cqe: 1 })];
  await id.createQp(pd, { sendCq: cq, maxRecvWr: 1 });
  const list = { addr: 2n ** 64n - 2n, rkey: 1, length: 2 };
  await id.accept({ privateData: encodeConnectData({ ...SOME_DATA, list }) }).catch(() => {});
  expect((await failed)[0]).toMatchObject({ code: 'EOPNOTSUPP', message: expect.stringContaining('beyond 2^64') });
});

test('the socket ends when the peer’s list cannot be written', async () => {
  await RawPeer.connect({ list: { addr: 0x1000n, rkey: 0x1234, length: 2 } });
  expect(((await failure()) as VerbsError).code).toBe('ECONNRESET');
  await isServed();
});

test('writes wait for a peer without credits, and destroy ends them', async () => {
  await RawPeer.connect({ credits: 0 });
  await eventually(() => expect(sockets.length).toBe(1));
  const [socket] = sockets as [Socket];
  socket.write('hello');
  await new Promise<void>((resolve) => socket.setTimeout(50, resolve));
  expect([socket.writableLength, errors]).toEqual([5, []]);
  socket.destroy();
  await once(socket, 'close');
  await isServed();
});

test('an entry of the list is not read before its message has come', async () => {
  const raw = await RawPeer.connect();
  await eventually(() => expect(sockets.length).toBe(1));
  const [socket] = sockets as [Socket];
  const slot = -TARGET_BYTES;
  const { buffer } = raw.our;
  // an entry that is not whole yet: its length is there, its address and key are not
  raw.memory.buffer.fill(1, RING + 12, RING + TARGET_BYTES);
  raw.qp.postSend({
    opcode: 'RDMA_WRITE',
    sgList: raw.memory.sge(RING, TARGET_BYTES),
    remoteAddr: buffer.addr + BigInt(slot),
    rkey: buffer.rkey,
  });
  socket.write(Buffer.alloc(HALF + 5, 7));
  const ring = raw.memory.buffer.subarray(RING);
  await eventually(() => expect(ring[HALF - 1]).toBe(7));
  await new Promise<void>((resolve) => socket.setTimeout(50, resolve));
  expect(errors).toEqual([]);
  const entry = new DataView(ring.buffer, ring.byteOffset + HALF + 32, TARGET_BYTES);
  writeTarget(
    entry,
    0,
    { addr: BigInt(raw.memory.iova) + BigInt(RING + HALF), rkey: raw.memory.rkey, length: 16 },
    false,
  );
  raw.qp.postSend({
    opcode: 'RDMA_WRITE_WITH_IMM',
    immData: immediate(MessageKind.CREDITS, 400),
    sgList: raw.memory.sge(RING + HALF + 32, TARGET_BYTES),
    remoteAddr: buffer.addr + BigInt(slot),
    rkey: buffer.rkey,
  });
  await eventually(() => expect(ring[HALF + 4]).toBe(7));
});

test('a peer that has closed is answered until it disconnects', async () => {
  const raw = await RawPeer.connect();
  await eventually(() => expect(sockets.length).toBe(1));
  const socket = (sockets[0] as Socket).resume();
  raw.say(MessageKind.CONTROL, Control.DISCONNECT);
  await once(socket, 'end');
  socket.end();
  await eventually(() => expect(socket.destroyed).toBe(true));
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
  // stands for a repetition of its last message
  raw.qp.postSend({ wrId: 7, opcode: 'RDMA_WRITE', sgList: [], remoteAddr: 0, rkey: 0 });
  for await (const { wrId, status } of raw.cq) {
    if (wrId !== 7) continue;
    expect(status).toBe(WcStatus.SUCCESS);
    break;
  }
  await raw.id.disconnect();
  await once(socket, 'close');
});

test('a peer of big-endian order gets its list in that order', async () => {
  const raw = await RawPeer.connect({ isBigEndian: true });
  const { addr, rkey, length } = raw.our.buffer;
  const list = new DataView(raw.memory.buffer.buffer, raw.memory.buffer.byteOffset, 2 * TARGET_BYTES);
  await eventually(() => expect(list.getUint32(TARGET_BYTES + 12)).toBe(length));
  expect(list.getBigUint64(TARGET_BYTES)).toBe(addr + BigInt(length));
  expect(list.getUint32(TARGET_BYTES + 8)).toBe(rkey);
});

test.each([1, 2, 3])(
  'random messages end their own sockets alone, and leave nothing, seed %d',
  async (seed) => {
    const random = new Random(seed);
    await isServed();
    const available = () => peer.query().memoryAvailable;
    await eventually(() => expect(sockets.every(({ closed }) => closed)).toBe(true));
    const before = available();
    for (let round = 0; round < 20; round++) {
      const raw = await RawPeer.connect({ credits: random.below(65536) });
      // the server has it a little later
      await eventually(() => expect(sockets.length).toBe(round + 2));
      for (let i = 0; i < 20; i++) {
        const value = random.below(random.pick([8, 64, 2 ** 29]));
        raw.say(random.below(8) as MessageKind, value, random.below(64), random.below(HALF));
      }
      await new Promise((resolve) => setTimeout(resolve, random.below(5)));
      for (const socket of sockets) socket.resume().destroy();
      await raw.id.close();
    }
    await isServed();
    await eventually(() => expect(sockets.every(({ closed }) => closed)).toBe(true));
    await eventually(() => expect(available()).toBe(before));
  },
  60_000,
);
