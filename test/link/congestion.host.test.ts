// CNPs between two devices through sockets of the kernel: a marked packet causes a CNP, and the CNP slows its sender
// down.
import { expect, test } from 'vitest';
import { type Device, openDevice } from '../../src/index.js';
import { endOn } from '../verbs/pair.js';

const OPTIONS = { link: 'udp', memoryBytes: 16 * 2 ** 20 } as const;
const SIZE = 65_536;
const COUNT = 40;

/** Returns the milliseconds that the WRITEs take, and the counters of both devices. */
async function written(sender: Device, receiver: Device) {
  const a = await endOn(sender);
  const b = await endOn(receiver);
  await a.qp.connect(b.qp.endpoint(sender.gids[0]?.gid), { pathMtu: 1024 });
  await b.qp.connect(a.qp.endpoint(receiver.gids[0]?.gid), { pathMtu: 1024, access: ['remoteWrite'] });
  const { addr, rkey } = b.mr.remote;
  const start = performance.now();
  for (let i = 0; i < COUNT; i++)
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, SIZE), remoteAddr: addr, rkey });
  for (let i = 0; i < COUNT; i++) expect((await a.cq.next({ timeout: 20_000 })).ok).toBe(true);
  return { ms: performance.now() - start, sent: a.qp.counters(), received: b.qp.counters() };
}

test('a marked flow is slowed down on the udp link', async () => {
  const congestion = { lineRate: 200e6, minRate: 20e6 };
  await using sender = await openDevice({ ...OPTIONS, addresses: ['127.86.0.1'], congestion });
  await using receiver = await openDevice({ ...OPTIONS, addresses: ['127.86.0.2'], fault: { rx: { ecn: 1 } } });
  const { ms, sent, received } = await written(sender, receiver);
  expect(received.np_ecn_marked_roce_packets).toBeGreaterThanOrEqual((COUNT * SIZE) / 1024);
  expect(received.np_cnp_sent).toBeGreaterThan(1);
  expect(sent.rp_cnp_handled).toBeGreaterThan(1);
  // 21 Mbit at 100 Mbit/s, the rate after the first CNP, or at a lower rate
  expect(ms).toBeGreaterThan(150);
});

test('a marked flow is not slowed down when its sender ignores CNPs', async () => {
  await using sender = await openDevice({ ...OPTIONS, addresses: ['127.86.0.3'], congestion: { enabled: false } });
  await using receiver = await openDevice({ ...OPTIONS, addresses: ['127.86.0.4'], fault: { rx: { ecn: 1 } } });
  const { sent } = await written(sender, receiver);
  expect(sent.rp_cnp_handled).toBe(0);
  expect(sent.rp_cnp_ignored).toBeGreaterThan(1);
});
