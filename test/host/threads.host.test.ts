/** Two threads on one card: one posts and polls, the other runs the turns. They share only the queues. */
import { once } from 'node:events';
import { setImmediate as tick } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { cardModule } from '../../src/device/card.js';
import { decode } from '../../src/probe/packet/packets.js';
import { Rig } from '../kit/rig.js';

const COUNT = 50_000;

test('requests leave in the order in which the other thread posts them, each once and whole', async () => {
  const rig = await Rig.create();
  const qp = rig
    .qp({ type: 'UC', sendWr: 16, recvWr: 16, cqe: 32, inline: 4 })
    .connect({ destQpn: 0x100, sqPsn: 0, rqPsn: 0 });
  rig.out(0);
  const start = new SharedArrayBuffer(4);
  const poster = new Worker(new URL('./poster.mjs', import.meta.url), {
    execArgv: [],
    workerData: {
      module: cardModule(),
      memory: rig.card.memory,
      qp: qp.handle,
      cq: qp.cq,
      count: COUNT,
      start,
    },
  });
  await once(poster, 'message');
  const told = once(poster, 'message');
  const failed = once(poster, 'error').then(([error]) => Promise.reject(error));
  Atomics.store(new Int32Array(start), 0, 1);
  Atomics.notify(new Int32Array(start), 0);

  let left = 0;
  const wrong: string[] = [];
  for (let turn = 1; left < COUNT; turn++) {
    const frames = rig.out(turn);
    if (frames.length === 0) await Promise.race([tick(), failed]);
    for (const bytes of frames) {
      const { bth, payload } = decode(bytes);
      const value = Buffer.from(payload).readUInt32LE();
      if (bth.psn !== left || value !== left) wrong.push(`packet ${left} has psn ${bth.psn} and says ${value}`);
      left++;
    }
  }
  const [result] = await Promise.race([told, failed]);
  expect(wrong).toEqual([]);
  // no message takes a receive, so the receive queue is full
  expect(result).toMatchObject({ posted: COUNT, done: COUNT, wrong: 0, received: 16 });
  expect(rig.x.isDoorbellRung()).toBe(false);
  expect(rig.counters()).toMatchObject({ sent_pkts: COUNT });

  // flushes what the other thread has posted
  qp.modify({ STATE: 6 });
  expect(qp.poll().map(({ wrId }) => wrId)).toEqual(Array.from({ length: 16 }, (_, i) => i));
});
