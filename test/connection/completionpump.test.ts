// The completion pump delivers all completions, and does nothing more once its queue is closed.
import { setImmediate } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { CompletionPump } from '../../src/connection/completionpump.js';
import { MemoryHub } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { connectedPair, openOn } from '../verbs/pair.js';
import { uncaughtDuring } from './connectionpair.js';

test('a pump rests when its queue is closed', async () => {
  const device = await openOn(new MemoryHub());
  const cq = await device.createCq();
  const pump = new CompletionPump(cq, () => {});
  await cq.close();
  const again = vi.spyOn(globalThis, 'setImmediate');
  pump.drain();
  expect(again).not.toHaveBeenCalled();
  again.mockRestore();
  await device.close();
});

test('what a listener throws is an uncaught exception; the completions behind it are handed over', async () => {
  await using pair = await connectedPair();
  const { qp, mr, cq } = pair.a;
  const { addr, rkey } = pair.b.mr.remote;
  for (let wrId = 0; wrId < 3; wrId++)
    qp.postSend({ wrId, opcode: 'RDMA_WRITE', sgList: mr.slice(0, 8), remoteAddr: addr, rkey, signaled: true });
  await eventually(() => expect(qp.query().progress.sendPending).toBe(0));
  const taken: number[] = [];
  const pump = new CompletionPump(cq, ({ wrId }) => {
    taken.push(wrId);
    throw new Error(`from ${wrId}`);
  });
  const uncaught = await uncaughtDuring(async () => {
    pump.drain();
    await setImmediate();
  });
  expect(taken).toEqual([0, 1, 2]);
  expect(uncaught.map(String)).toEqual(['Error: from 0', 'Error: from 1', 'Error: from 2']);
});
