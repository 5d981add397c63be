// A peer that leaves with all it wanted, as the stock tools do, cannot acknowledge our last message a second time.
import { afterEach, expect, test } from 'vitest';
import { End, type EndOptions } from '../../src/cli/pingpong/end.js';
import { type Device, MemoryHub } from '../../src/index.js';
import { endOn, openOn } from '../verbs/pair.js';

const OPTIONS: EndOptions = {
  ...{ transport: 'RC', qps: 1, size: 100, iters: 1, rxDepth: 4, mtu: 1024, check: false },
  ...{ timeout: 8, retryCnt: 2, idleMs: 5000, spinMs: 0 },
};
const devices: Device[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) if (!device.isClosed) await device.close({ force: true });
});

/** We answer the one message of a client that goes away without taking the answer. */
async function answered(peerHasLeft: boolean) {
  const hub = new MemoryHub();
  const ours = await openOn(hub);
  const theirs = await openOn(hub, { seed: 2 });
  devices.push(ours, theirs);
  const server = await End.open(ours, OPTIONS);
  const client = await endOn(theirs);
  const [local] = server.endpoints(theirs.chooseGid().gid);
  if (!local) throw new Error('no endpoint');
  const remote = client.qp.endpoint(local.gid);
  await server.connect([remote]);
  await client.qp.connect(local, { pathMtu: 1024, rdAtomic: 1 });
  const outcome = server.exchange({ begins: false, peerHasLeft: () => peerHasLeft, onRound: () => {} });
  // no receive is posted: our answer is put off until the client is gone
  client.qp.postSend({ opcode: 'SEND', sgList: client.mr.slice(0, 100) });
  const caught = outcome.catch((error: Error) => error);
  expect((await client.cq.next({ timeout: 5000 })).ok).toBe(true);
  await theirs.close({ force: true });
  return caught;
}

test('is no failure when all that it sent has come', async () => {
  expect(await answered(true)).toMatchObject({ received: 1, unacknowledged: 1 });
});

test('is one while it might still be there', async () => {
  expect(String(await answered(false))).toMatch(/RETRY_EXC_ERR/);
});
