// The watch of peers: which silence ends a connection, and which does not.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createMemoryHub } from '../../src/index.js';
import { PeerWatch, type PeerWatchOptions } from '../../src/transport/peerwatch.js';
import { endOn, openOn } from '../verbs/pair.js';

type End = Awaited<ReturnType<typeof endOn>>;
let hub = createMemoryHub();
let [near, far]: End[] = [];
const gone: (number | string)[] = [];

beforeEach(async () => {
  hub = createMemoryHub();
  gone.length = 0;
  [near, far] = [await endOn(await openOn(hub)), await endOn(await openOn(hub, { seed: 2 }))];
  const retryCnt = Number.POSITIVE_INFINITY;
  await near.qp.connect(far.qp.endpoint(), { retryCnt });
  await far.qp.connect(near.qp.endpoint(), { retryCnt });
});
afterEach(async () => {
  for (const end of [near, far]) await end?.device.close({ force: true });
});

function watch(options: PeerWatchOptions): PeerWatch {
  const start = performance.now();
  return new PeerWatch((near as End).qp, options, (error) =>
    gone.push(Math.round(performance.now() - start), error.message),
  );
}

/** The peer takes no packet, as a process that is stopped or a host that is gone. */
const silence = () => (far as End).qp.modify({ state: 'RESET' });

test('a peer of an idle connection is asked, and answers: it is not gone, whatever the time', async () => {
  const watching = watch({});
  await sleep(1_000_000);
  expect(gone).toEqual([]);
  expect((near as End).qp.counters().sent_pkts).toBeGreaterThan(30);
  watching.stop();
});

test('a peer that is gone is noticed 75 s after it was asked, by default', async () => {
  watch({});
  await silence();
  await sleep(200_000);
  expect(gone).toEqual([expect.any(Number), 'ETIMEDOUT: no packet of the peer has come within 75000 ms']);
  expect(gone[0]).toBeGreaterThan(75_000);
  expect(gone[0]).toBeLessThan(100_000);
});

test('a peer that has something to acknowledge need not be asked', async () => {
  watch({ idle: Number.POSITIVE_INFINITY, timeout: 1500 });
  await silence();
  await sleep(100_000);
  expect(gone).toEqual([]);
  const { qp, mr } = near as End;
  qp.postSend({ opcode: 'SEND', sgList: mr.sge(0, 8) });
  await sleep(2000);
  expect(gone).toHaveLength(2);
});

test('a time of 0 ends nothing', async () => {
  watch({ timeout: 0 });
  await silence();
  await sleep(1_000_000);
  expect(gone).toEqual([]);
});

test('a watch of a queue pair that is closed ends', async () => {
  watch({});
  await (near as End).qp.close();
  await sleep(200_000);
  expect(gone).toEqual([]);
});
