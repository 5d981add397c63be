/**
 * A program of its own: how many bytes of heap does a posted and polled request cost? Prints JSON. The queue pair is in
 * state ERR, where every request completes without a frame: what a turn and a link allocate is not our question here, so
 * there is one for many requests.
 */
import { createMemoryHub, type SendWr } from '../../src/index.js';
import { endOn, openOn } from './pair.js';

const ROUNDS = 10_000;
const BATCH = 64;

const { qp, cq, mr } = await endOn(await openOn(createMemoryHub()));
await qp.modify({ state: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
await qp.modify({ state: 'ERR' });
const wcs = cq.createWcs(BATCH);
const wr: SendWr = {
  wrId: 2 ** 40,
  opcode: 'RDMA_WRITE_WITH_IMM',
  sgList: [mr.slice(0, 8), mr.slice(8, 8)],
  remoteAddr: 2 ** 40,
  rkey: 0xffffffff,
  immData: 0xffffffff,
};
const recv = { wrId: 1, sgList: mr.slice(0, 8) };

function rounds(count: number): void {
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < BATCH / 2; j++) {
      qp.postSend(wr);
      qp.postRecv(recv);
    }
    for (let done = 0; done < BATCH; ) done += cq.poll(wcs);
  }
}

rounds(ROUNDS);
(globalThis as unknown as { gc(): void }).gc();
const before = process.memoryUsage().heapUsed;
rounds(ROUNDS / 10);
const bytes = process.memoryUsage().heapUsed - before;
console.log(JSON.stringify({ operations: (ROUNDS / 10) * BATCH, bytes }));
process.exit(0);
