/**
 * A separate program that prints, as JSON, how many bytes of heap a posted and polled request allocates. The queue pair
 * is in ERR, where every request completes without a frame. Allocations of turns and links are not measured, so there
 * is one turn for many requests.
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
  sgList: [mr.sge(0, 8), mr.sge(8, 8)],
  remoteAddr: 2 ** 40,
  rkey: 0xffffffff,
  immData: 0xffffffff,
};
const recv = { wrId: 1, sgList: mr.sge(0, 8) };

function rounds(count: number): void {
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < BATCH / 2; j++) {
      qp.postSend(wr);
      qp.postRecv(recv);
    }
    for (let done = 0; done < BATCH; ) done += cq.poll(wcs);
  }
}

/** Returns the bytes that some rounds allocate. A collection before, and a nursery of 64 MiB: none runs in between. */
function allocated(): number {
  (globalThis as unknown as { gc(): void }).gc();
  const before = process.memoryUsage().heapUsed;
  rounds(ROUNDS / 5);
  return process.memoryUsage().heapUsed - before;
}

rounds(ROUNDS);
// the runtime allocates for itself now and then; what a request allocates is in every window
const windows = Array.from({ length: 5 }, allocated);
console.log(JSON.stringify({ operations: (ROUNDS / 5) * BATCH, bytes: Math.min(...windows) }));
process.exit(0);
