// Peers that do not keep to the protocol of Valkey Over RDMA: each ends its own connection, and nothing else.
import { once } from 'node:events';
import { beforeEach, expect, test } from 'vitest';
import { type CmId, createCmId, type Mr, type Qp } from '../../../src/index.js';
import { encodeMessage, MESSAGE_BYTES, Opcode } from '../../../src/protocols/valkey/wire.js';
import { connect, createServer, type StreamSocket, type ValkeyServer } from '../../../src/valkey.js';
import { eventually } from '../../kit/eventually.js';
import { Random } from '../../kit/random.js';
import { device, HOST, peer, useDevices } from '../devices.js';

useDevices();

const PORT = 6379;
const RECEIVES = 600;
/** Offset of the raw peer's buffer in its memory: messages that come, and one that leaves, are before. */
const BUFFER = (RECEIVES + 1) * MESSAGE_BYTES;
const BUFFER_BYTES = 4096;

let server: ValkeyServer;
let sockets: StreamSocket[];
let errors: Error[];

beforeEach(async () => {
  sockets = [];
  errors = [];
  server = createServer({ device: peer }, (socket) => {
    sockets.push(socket);
    socket.on('error', (error) => errors.push(error));
    socket.pipe(socket);
  });
  await once(server.listen(PORT), 'listening');
});

/** A client whose messages a test writes. */
class RawPeer {
  private constructor(
    readonly id: CmId,
    readonly qp: Qp,
    readonly memory: Mr,
  ) {}

  static async connect(): Promise<RawPeer> {
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: 2048 });
    const memory = await pd.regMr(BUFFER + BUFFER_BYTES, { access: ['localWrite', 'remoteWrite'] });
    const id = createCmId(device);
    await id.resolveAddr(HOST, PORT);
    await id.resolveRoute();
    const qp = await id.createQp(pd, { sendCq: cq, maxSendWr: 2048, maxRecvWr: RECEIVES });
    for (let i = 0; i < RECEIVES; i++)
      qp.postRecv({ wrId: i, sgList: memory.sge((i + 1) * MESSAGE_BYTES, MESSAGE_BYTES) });
    await id.connect({ responderResources: 1, initiatorDepth: 1 });
    return new RawPeer(id, qp, memory);
  }

  /** Sends bytes as a message. */
  send(bytes: Uint8Array): void {
    this.memory.buffer.set(bytes);
    this.qp.postSend({ opcode: 'SEND', sgList: this.memory.sge(0, bytes.length) });
  }

  register(length = BUFFER_BYTES, addr = BigInt(this.memory.iova) + BigInt(BUFFER)): void {
    this.send(encodeMessage({ opcode: Opcode.REGISTER_XFER_MEMORY, memory: { addr, length, rkey: this.memory.rkey } }));
  }

  /** Messages that came; a receive that none has taken is all zero. */
  get messages(): number {
    const { buffer } = this.memory;
    let count = 0;
    while (count < RECEIVES && buffer.readUInt32BE((count + 1) * MESSAGE_BYTES) !== 0) count++;
    return count;
  }

  /** The server's announcement of its buffer. */
  async target(): Promise<{ addr: bigint; length: number; rkey: number }> {
    const view = new DataView(this.memory.buffer.buffer, this.memory.buffer.byteOffset + MESSAGE_BYTES, MESSAGE_BYTES);
    await eventually(() => expect(view.getUint16(0)).toBe(Opcode.REGISTER_XFER_MEMORY));
    return { addr: view.getBigUint64(16), length: view.getUint32(24), rkey: view.getUint32(28) };
  }

  /** Says that bytes were written. @param bytes that it writes indeed */
  async say(count: number, bytes = 0): Promise<void> {
    this.write(await this.target(), count, bytes);
  }

  write({ addr, rkey }: { addr: bigint; rkey: number }, count: number, bytes: number): void {
    const sgList = bytes > 0 ? this.memory.sge(BUFFER, bytes) : [];
    this.qp.postSend({ opcode: 'RDMA_WRITE_WITH_IMM', immData: count, sgList, remoteAddr: addr, rkey });
  }
}

async function isServed(): Promise<void> {
  const socket = connect({ device, host: HOST, port: PORT });
  socket.write('PING');
  expect(`${(await once(socket, 'data'))[0]}`).toBe('PING');
  socket.destroy();
  await once(socket, 'close');
}

const opcode = (value: number) => new Uint8Array(MESSAGE_BYTES).fill(value, 1, 2);

test.each<[string, (raw: RawPeer) => void | Promise<void>, RegExp]>([
  ['a message that is too short', (raw) => raw.send(new Uint8Array(31)), /31 bytes, must have 32/],
  ['an unknown opcode', (raw) => raw.send(opcode(9)), /opcode 9/],
  ['a buffer of 0 bytes', (raw) => raw.register(0), /buffer has 0 bytes/],
  [
    'a buffer that ends beyond the last address',
    (raw) => raw.register(0xffff_ffff, 2n ** 64n - 16n),
    /its buffer has 4294967295 bytes at address 0xfffffffffffffff0, and ends beyond 2\^64/,
  ],
  [
    'a buffer again that is not full',
    (raw) => {
      raw.register();
      raw.register();
    },
    /again when 4096 bytes of it were left/,
  ],
  ['an immediate beyond the buffer', (raw) => raw.say(2 ** 20 + 1), /1048577 bytes where it may write 1048576/],
  [
    'questions without end',
    (raw) => {
      for (let i = 0; i < 2000; i++) raw.send(opcode(Opcode.GET_SERVER_FEATURE));
    },
    /asks, and takes no answers/,
  ],
])('%s: the connection ends with an error', async (_, speak, message) => {
  await isServed();
  const raw = await RawPeer.connect();
  await eventually(() => expect(sockets.length).toBe(2));
  await speak(raw);
  await eventually(() => expect(errors.length).toBe(1));
  expect(errors[0]?.message).toMatch(message);
  await isServed();
});

test('the server announces no features, and those of a client are ignored', async () => {
  const raw = await RawPeer.connect();
  await raw.target();
  raw.send(encodeMessage({ opcode: Opcode.GET_SERVER_FEATURE, select: 7, features: 0n }));
  const answer = raw.memory.buffer.subarray(2 * MESSAGE_BYTES, 3 * MESSAGE_BYTES);
  const expected = encodeMessage({ opcode: Opcode.GET_SERVER_FEATURE, select: 7, features: 0n });
  await eventually(() => expect(answer.readUInt16BE(2)).toBe(7));
  expect(answer).toEqual(Buffer.from(expected));
  raw.send(encodeMessage({ opcode: Opcode.SET_CLIENT_FEATURE, select: 0, features: 1n }));
  await isServed();
  expect(errors).toEqual([]);
});

test('what a peer that takes no answers has written is read, though it fills our buffer', async () => {
  const raw = await RawPeer.connect();
  const target = await raw.target();
  const question = encodeMessage({ opcode: Opcode.GET_SERVER_FEATURE, select: 1, features: 0n });
  const ask = (count: number) => {
    for (let i = 0; i < count; i++) raw.send(question);
  };
  // its receives are used up by the announcement of the buffer, answers and, with time, keep-alives
  for (let used = raw.messages; used < RECEIVES; used = raw.messages) {
    const count = Math.min(8, RECEIVES - used);
    ask(count);
    await eventually(() => expect(raw.messages).toBeGreaterThanOrEqual(used + count));
  }
  // 16 answers are in flight, 64 wait
  ask(80);
  // it is not echoed, for which there is no room
  sockets[0]?.unpipe(sockets[0]).resume();
  for (let filled = 1; filled <= 2; filled++) {
    raw.write(target, target.length, 0);
    await eventually(() => expect(sockets[0]?.bytesRead).toBe(filled * target.length));
  }
  expect(errors).toEqual([]);
  ask(1);
  await eventually(() => expect(errors[0]?.message).toMatch(/asks, and takes no answers/));
  await isServed();
});

test('a buffer at the last addresses ends its own connection alone when it is written', async () => {
  const raw = await RawPeer.connect();
  raw.register(16, 2n ** 64n - 16n);
  await raw.say(5, 5);
  await eventually(() => expect(errors.length).toBe(1));
  expect(errors[0]).toMatchObject({ code: 'ECONNRESET' });
  await isServed();
});

test('the client ends with an error when the server’s buffer ends beyond the last address', async () => {
  const listener = createCmId(peer);
  await listener.bindAddr(HOST, PORT + 1);
  await listener.listen();
  const failed = once(connect({ device, host: HOST, port: PORT + 1 }), 'error');
  const id = await listener.getRequest();
  const [pd, cq] = [await peer.allocPd(), await peer.createCq({ cqe: 16 })];
  const qp = await id.createQp(pd, { sendCq: cq, maxRecvWr: 4, maxInlineData: MESSAGE_BYTES });
  for (let i = 0; i < 4; i++) qp.postRecv({ sgList: (await pd.regMr(MESSAGE_BYTES)).sge() });
  await id.accept({ initiatorDepth: 0, responderResources: 0 });
  const memory = { addr: 2n ** 64n - 16n, length: 17, rkey: 1 };
  qp.postSend({ opcode: 'SEND', sgList: encodeMessage({ opcode: Opcode.REGISTER_XFER_MEMORY, memory }) });
  expect((await failed)[0]).toMatchObject({ code: 'EIO', message: expect.stringContaining('beyond 2^64') });
});

test('answers wait for a peer without a buffer, and destroy ends them', async () => {
  const raw = await RawPeer.connect();
  await raw.say(5, 5);
  await eventually(() => expect(sockets[0]?.bytesRead).toBe(5));
  expect([sockets[0]?.writableLength, errors]).toEqual([5, []]);
  sockets[0]?.destroy();
  await once(sockets[0] as StreamSocket, 'close');
  await isServed();
});

test.each([1, 2, 3])('random messages end their own sockets alone, and leave nothing, seed %d', async (seed) => {
  const random = new Random(seed);
  await isServed();
  const available = () => peer.query().memoryAvailable;
  await eventually(() => expect(sockets.every(({ closed }) => closed)).toBe(true));
  const before = available();
  for (let round = 0; round < 10; round++) {
    const raw = await RawPeer.connect();
    const target = await raw.target();
    for (let i = 0; i < 20; i++) {
      const bytes = encodeMessage({ opcode: Opcode.KEEPALIVE });
      for (let k = 0; k < 6; k++) bytes[random.below(MESSAGE_BYTES)] = random.below(256);
      bytes[0] = 0;
      bytes[1] = random.below(5);
      if (random.below(3) === 0) raw.write(target, random.below(random.pick([8, 5000, 2 ** 31])), random.below(64));
      else raw.send(bytes);
    }
    await raw.id.disconnect().catch(() => {});
    await raw.id.close();
  }
  await isServed();
  await eventually(() => expect(sockets.every(({ closed }) => closed)).toBe(true));
  await eventually(() => expect(available()).toBe(before));
});
