/** Thousands of queue pairs: the card memory of each, and that destroyed ones release theirs. */
import { expect, test } from 'vitest';
import { Rig, type RigQp } from '../kit/rig.js';

const QPS = 10_000;
const RESULT_RING = 128 * 80;
/** The frames of two rings begin on pages, and so does a block of memory: the unused bytes in front of each. */
const MARGINS = 3 * 4096;

function scaled(memoryBytes: number): Promise<Rig> {
  return Rig.create(1, { memoryBytes, maxQp: QPS, maxMr: 16, txSlots: 16, rxSlots: 16 });
}

/** Card memory of a connected queue pair with rings for `wrs` requests. */
function bytesEach(rig: Rig, wrs: number): number {
  const cq = rig.x.cqCreate(16);
  const count = 64;
  const before = rig.x.memAvailable();
  for (let i = 0; i < count; i++)
    rig
      .qp({ cq, sendWr: wrs, recvWr: wrs, sge: 1, inline: 0 })
      .connect({ destQpn: 1, sqPsn: 0, rqPsn: 0, maxRdAtomic: 1, maxDestRdAtomic: 1 });
  return (before - rig.x.memAvailable()) / count;
}

test('an idle connected queue pair takes at most 4 KiB besides its rings', async () => {
  const rig = await scaled(32 * 2 ** 20);
  const [few, many] = [bytesEach(rig, 64), bytesEach(rig, 128)];
  const rings = (many - few) / 64;
  const besides = few - 64 * rings;
  console.log(
    `an idle queue pair holds ${besides} bytes besides its rings, which hold ${rings} for a send and a receive`,
  );
  expect(besides).toBeLessThanOrEqual(4096);
  // the ring of response resources has the requested length
  const qp = rig.qp({ sendWr: 1, recvWr: 1 });
  const before = rig.x.memAvailable();
  qp.connect({ destQpn: 1, sqPsn: 0, rqPsn: 0, maxDestRdAtomic: 128 });
  expect(before - rig.x.memAvailable()).toBeLessThanOrEqual(RESULT_RING + 64);
});

test('ten thousand queue pairs are created and destroyed in any order, and leave no holes', async () => {
  const rig = await scaled(128 * 2 ** 20);
  const { x } = rig;
  const cq = x.cqCreate(16);
  const create = () => rig.qp({ cq, sendWr: 1, recvWr: 1, sge: 1, inline: 0 });
  const before = x.memAvailable();
  const qps: RigQp[] = Array.from({ length: QPS }, create);
  const full = x.memAvailable();
  const destroyEvery = (step: number) => qps.filter((_, i) => i % step === 0).map(({ handle }) => x.qpDestroy(handle));
  destroyEvery(3);
  // new queue pairs use the memory of the destroyed ones
  for (let i = 0; i < qps.length; i += 3) qps[i] = create();
  expect(x.memAvailable()).toBe(full);
  const rest = x.memAlloc(full - MARGINS);
  expect(rest).not.toBe(0);
  x.memFree(rest);
  destroyEvery(1);
  expect(x.memAvailable()).toBe(before);
  const all = x.memAlloc(before - MARGINS);
  expect(all).not.toBe(0);
});
