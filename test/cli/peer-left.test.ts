// A peer that leaves once it has received everything, as stock programs do, cannot acknowledge our last message again.
import { afterEach, expect, test } from 'vitest';
import { PingpongContext, type PingpongParameters } from '../../src/cli/pingpong/context.js';
import { type Device, MemoryHub } from '../../src/index.js';
import { endOn, openOn } from '../verbs/pair.js';

const OPTIONS: PingpongParameters = {
  ...{ transport: 'RC', qps: 1, size: 100, iters: 1, rxDepth: 4, mtu: 1024, check: false },
  ...{ timeout: 8, retryCnt: 2, idleMs: 5000, spinMs: 0 },
};
const devices: Device[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) if (!device.isClosed) await device.close({ force: true });
});

/** Answers the one message of a client that leaves without receiving the answer. */
async function answered(peerHasLeft: boolean) {
  const hub = new MemoryHub();
  const ours = await openOn(hub);
  const theirs = await openOn(hub, { seed: 2 });
  devices.push(ours, theirs);
  const server = await PingpongContext.open(ours, OPTIONS);
  const client = await endOn(theirs);
  const [local] = server.endpoints(theirs.chooseGid().gid);
  if (!local) throw new Error('no endpoint');
  const remote = client.qp.endpoint(local.gid);
  await server.connect([remote]);
  await client.qp.connect(local, { pathMtu: 1024, rdAtomic: 1 });
  const outcome = server.exchange({ sendsFirst: false, peerHasLeft: () => peerHasLeft, onRoundTrip: () => {} });
  // the client has posted no receive: our answer is delayed until the client has left
  client.qp.postSend({ opcode: 'SEND', sgList: client.mr.sge(0, 100) });
  const caught = outcome.catch((error: Error) => error);
  expect((await client.cq.next({ timeout: 20_000 })).ok).toBe(true);
  await theirs.close({ force: true });
  return caught;
}

test('is no failure when all that it sent has arrived', async () => {
  expect(await answered(true)).toMatchObject({ received: 1, unacknowledged: 1 });
});

test('is a failure while more might come', async () => {
  expect(String(await answered(false))).toMatch(/RETRY_EXC_ERR/);
});
