// What captures of two devices have of one conversation: the same frames.
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { MemoryHub, throwIfFailed } from '../../src/index.js';
import { readCapture } from '../kit/pcap.js';
import { ALL, endOn, openOn } from './pair.js';

const ROUNDS = 50;

/** A capture in memory. */
function recording() {
  const parts: Buffer[] = [];
  const stream = new Writable({
    write(chunk, _encoding, done) {
      parts.push(chunk);
      done();
    },
  });
  const frames = (direction: 1 | 2) =>
    readCapture(Buffer.concat(parts))
      .packets.filter((packet) => packet.direction === direction)
      .map(({ data }) => Buffer.from(data).toString('hex'));
  return { stream, received: () => frames(1), sent: () => frames(2) };
}

test('the frames that left one device are those that came to the other, each once and in order', async () => {
  const hub = new MemoryHub();
  const [atA, atB] = [recording(), recording()];
  const a = await endOn(await openOn(hub, { pcap: atA.stream }));
  const b = await endOn(await openOn(hub, { pcap: atB.stream, seed: 2 }));
  await a.qp.connect(b.qp.endpoint(), { access: ALL });
  await b.qp.connect(a.qp.endpoint(), { access: ALL });
  for (let round = 0; round < ROUNDS; round++) {
    for (const [from, to] of [
      [a, b],
      [b, a],
    ] as const) {
      from.mr.buffer.writeUInt32LE(round);
      from.qp.postSend({
        ...{ opcode: 'RDMA_WRITE', sgList: from.mr.slice(0, 64) },
        ...{ remoteAddr: to.mr.iova, rkey: to.mr.rkey },
      });
    }
    for (const { cq } of [a, b]) throwIfFailed(await cq.next());
  }
  for (const { device } of [a, b]) await device.close({ force: true });
  expect(atA.sent().length).toBeGreaterThan(ROUNDS);
  expect(atB.received()).toEqual(atA.sent());
  expect(atA.received()).toEqual(atB.sent());
});
