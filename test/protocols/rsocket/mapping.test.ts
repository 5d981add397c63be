// Memory that one end of an rsocket maps and the other one writes: iomap and iowrite.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { afterEach, expect, test } from 'vitest';
import { createCmId } from '../../../src/index.js';
import { connect, createServer, type RsocketOptions, type RsocketServerOptions, Socket } from '../../../src/net.js';
import {
  decodeConnectData,
  encodeConnectData,
  immediate,
  MAPPING_BYTES,
  MessageKind,
  readMapping,
  TARGET_BYTES,
  writeMapping,
} from '../../../src/protocols/rsocket/wire.js';
import { eventually } from '../../kit/eventually.js';
import { device, HOST, peer, useDevices } from '../devices.js';

useDevices();

const PORT = 7000;

let sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await Promise.all(sockets.filter(({ closed }) => !closed).map((socket) => once(socket, 'close')));
  sockets = [];
});

/** Listens, and returns what resolves with the first connection. */
async function listen(options: RsocketServerOptions = {}, port = PORT): Promise<{ readonly socket: Promise<Socket> }> {
  const server = createServer({ device: peer, ...options }).listen(port);
  await once(server, 'listening');
  const socket = once(server, 'connection').then(([accepted]) => {
    sockets.push(accepted);
    return accepted as Socket;
  });
  return { socket };
}

/** Returns both ends of a connection. */
async function pair(client: RsocketOptions = {}, server: RsocketServerOptions = {}, port = PORT) {
  const accepted = await listen(server, port);
  const socket = connect({ device, host: HOST, port, ...client });
  sockets.push(socket);
  await once(socket, 'connect');
  return [socket, await accepted.socket] as const;
}

/** A message of one end that the other one has read. */
async function tell(from: Socket, to: Socket): Promise<void> {
  from.write('.');
  await once(to, 'data');
}

test('bytes that are written at an offset are there when a later message arrives', async () => {
  const [writer, reader] = await pair({ iomapSize: 2, sendBytes: 8192 });
  const [low, high] = [await reader.iomap(100_000), await reader.iomap(50, 2 ** 40)];
  await tell(reader, writer);
  const bytes = randomBytes(90_000);
  await writer.iowrite(bytes, 10_000);
  await writer.iowrite(bytes.subarray(0, 50), 2 ** 40);
  await tell(writer, reader);
  expect(low.buffer.subarray(10_000).equals(bytes)).toBe(true);
  expect(low.buffer.subarray(0, 10_000).every((byte) => byte === 0)).toBe(true);
  expect([high.offset, high.buffer.equals(bytes.subarray(0, 50))]).toEqual([2 ** 40, true]);
});

test('both ends may write at once, beside the streams', async () => {
  const [a, b] = await pair({ iomapSize: 1 }, { iomapSize: 128 });
  const [ofA, ofB] = [await a.iomap(65_536), await b.iomap(65_536)];
  await Promise.all([tell(a, b), tell(b, a)]);
  const received: Buffer[] = [];
  b.on('data', (data: Buffer) => received.push(data));
  const bytes = randomBytes(65_536);
  const stream = randomBytes(2 ** 20);
  a.write(stream);
  await Promise.all([a.iowrite(bytes, 0), b.iowrite(bytes.subarray(1), 1)]);
  await eventually(() => expect(Buffer.concat(received).equals(stream)).toBe(true));
  expect(ofB.buffer.equals(bytes)).toBe(true);
  expect(ofA.buffer.subarray(1).equals(bytes.subarray(1))).toBe(true);
});

test('a write crosses the border of two mappings, and no gap', async () => {
  const [writer, reader] = await pair({ iomapSize: 3 });
  const first = await reader.iomap(10, 100);
  const second = await reader.iomap(10, 110);
  await tell(reader, writer);
  await writer.iowrite(Buffer.from('abcdefghij'), 105);
  expect([`${first.buffer.subarray(5)}`, `${second.buffer.subarray(0, 5)}`]).toEqual(['abcde', 'fghij']);
  const gap = { code: 'EINVAL', message: expect.stringMatching(/not mapped the offset 120/) };
  await expect(writer.iowrite(Buffer.alloc(10, 1), 115)).rejects.toMatchObject(gap);
  expect(second.buffer.subarray(5).every((byte) => byte === 0)).toBe(true);
});

test('wrong mappings are refused, and leave nothing', async () => {
  const [socket, other] = await pair({ iomapSize: 1 });
  await expect(socket.iomap(10)).rejects.toMatchObject({ code: 'EINVAL', message: expect.stringMatching(/takes 0/) });
  await other.iomap(100, 50);
  await expect(other.iomap(1, 0)).rejects.toThrow(/takes 1 mappings/);
  for (const bytes of [0, -1, 1.5, 2 ** 32]) await expect(other.iomap(bytes)).rejects.toThrow(RangeError);
  for (const offset of [-1, 0.5, 2 ** 53])
    await expect(socket.iowrite(Buffer.alloc(1), offset)).rejects.toThrow(RangeError);
  await expect(socket.iowrite('text' as never, 0)).rejects.toThrow(TypeError);
  await expect(new Socket().iomap(1)).rejects.toThrow(/not connected/);
  for (const iomapSize of [-1, 1.5, 129, 32_768]) expect(() => new Socket({ iomapSize })).toThrow(/iomapSize/);
  const [, third] = await pair({ iomapSize: 2 }, {}, PORT + 1);
  await third.iomap(100, 50);
  await expect(third.iomap(100, 149)).rejects.toThrow(/overlap the mapping at 50/);
});

test('calls that wait when the socket ends are rejected', async () => {
  const [writer, reader] = await pair({ iomapSize: 1, sendBytes: 4096 });
  await reader.iomap(2 ** 20);
  await tell(reader, writer);
  const written = writer.iowrite(Buffer.alloc(2 ** 20), 0);
  writer.resetAndDestroy();
  await expect(written).rejects.toMatchObject({ code: 'ECANCELED' });
  await expect(writer.iowrite(Buffer.alloc(1), 0)).rejects.toThrow(/ended|not connected/);
});

test.each([0, 1, 128, 256, 32_512])('private data has a table of %d entries', (mappings) => {
  const target = { addr: 1n, rkey: 2, length: 2 };
  const data = { isBigEndian: true, credits: 3, list: target, buffer: target, mappings };
  expect(decodeConnectData(encodeConnectData(data))).toEqual(data);
});

test('a stock peer’s table has its byte order, and an entry takes a credit for ever', async () => {
  const accepted = await listen({ iomapSize: 1 });
  const pd = await device.allocPd();
  const cq = await device.createCq({ cqe: 64 });
  const list = 2 * TARGET_BYTES + 2 * MAPPING_BYTES;
  const memory = await pd.regMr(4096, { access: ['localWrite', 'remoteWrite'] });
  const addr = BigInt(memory.iova);
  const id = createCmId(device);
  await id.resolveAddr(HOST, PORT);
  await id.resolveRoute();
  const qp = await id.createQp(pd, { sendCq: cq, maxSendWr: 16, maxRecvWr: 16 });
  qp.postRecv(Array.from({ length: 16 }, () => ({})));
  const { rkey } = memory;
  const privateData = encodeConnectData({
    isBigEndian: true,
    credits: 2,
    list: { addr, rkey, length: 2 },
    buffer: { addr: addr + 2048n, rkey, length: 1024 },
    mappings: 2,
  });
  const { privateData: answer } = await id.connect({ responderResources: 0, initiatorDepth: 0, privateData });
  const { list: table, mappings } = decodeConnectData(answer);
  expect(mappings).toBe(1);
  const socket = await accepted.socket;
  await socket.iomap(100, 7);
  const { buffer } = memory;
  const view = new DataView(buffer.buffer, buffer.byteOffset + 2 * TARGET_BYTES, MAPPING_BYTES);
  expect([view.getBigUint64(0), view.getUint32(20)]).toEqual([7n, 100]);
  // one credit is left
  socket.write('a');
  socket.write('b');
  await eventually(() => expect(String.fromCharCode(buffer[2048] as number)).toBe('a'));
  await new Promise<void>((resolve) => socket.setTimeout(50, resolve));
  expect([buffer[2049], socket.writableLength]).toEqual([0, 1]);
  // it maps the rest of its memory
  const entry = { offset: 9n, target: { addr: addr + 3072n, rkey, length: 1024 } };
  writeMapping(new DataView(buffer.buffer, buffer.byteOffset + list, MAPPING_BYTES), 0, entry, false);
  qp.postSend({
    opcode: 'RDMA_WRITE_WITH_IMM',
    immData: immediate(MessageKind.IOMAP, 0),
    sgList: memory.sge(list, MAPPING_BYTES),
    remoteAddr: table.addr + BigInt(2 * TARGET_BYTES),
    rkey: table.rkey,
  });
  await eventually(async () => {
    await socket.iowrite(Buffer.from('xyz'), 10);
    expect(`${buffer.subarray(3073, 3076)}`).toBe('xyz');
  });
  expect(readMapping(new DataView(buffer.buffer, buffer.byteOffset + list), 0)).toEqual(entry);
});
