// The captures of two devices contain the same frames of a conversation.
import { expect, test } from 'vitest';
import { MemoryHub, throwIfFailed } from '../../src/index.js';
import { Recording } from '../kit/recording.js';
import { ALL, endOn, openOn } from './pair.js';

const ROUNDS = 50;

/** Received or sent frames, in order. */
const frames = (recording: Recording, direction: 'in' | 'out') =>
  recording
    .capture()
    .packets.filter((packet) => packet.direction === (direction === 'in' ? 1 : 2))
    .map(({ data }) => Buffer.from(data).toString('hex'));

test('a capture has each frame that passed between two devices once and in order', async () => {
  const hub = new MemoryHub();
  const [atA, atB] = [new Recording(), new Recording()];
  const a = await endOn(await openOn(hub, { pcap: atA }));
  const b = await endOn(await openOn(hub, { pcap: atB, seed: 2 }));
  await a.qp.connect(b.qp.endpoint(), { access: ALL });
  await b.qp.connect(a.qp.endpoint(), { access: ALL });
  for (let round = 0; round < ROUNDS; round++) {
    for (const [from, to] of [
      [a, b],
      [b, a],
    ] as const) {
      from.mr.buffer.writeUInt32LE(round);
      from.qp.postSend({
        ...{ opcode: 'RDMA_WRITE', sgList: from.mr.sge(0, 64) },
        ...{ remoteAddr: to.mr.iova, rkey: to.mr.rkey },
      });
    }
    for (const { cq } of [a, b]) throwIfFailed(await cq.next());
  }
  for (const { device } of [a, b]) await device.close({ force: true });
  expect(frames(atA, 'out').length).toBeGreaterThan(ROUNDS);
  expect(frames(atB, 'in')).toEqual(frames(atA, 'out'));
  expect(frames(atA, 'in')).toEqual(frames(atB, 'out'));
});
