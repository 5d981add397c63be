// Adaptive retransmission through the API: lost packets are retransmitted long before `timeout`.
import { expect, test } from 'vitest';
import { MemoryHub, throwIfFailed } from '../../src/index.js';
import { connectedPair, endOn, openOn } from './pair.js';

const WAIT = { timeout: 20_000 };

test('a requester with adaptive retries asks for lost answers without spending retries', async () => {
  await using pair = await connectedPair({ open: { fault: { seed: 5, both: { drop: 0.05 } } } });
  const { a, b } = pair;
  expect(a.qp.adaptiveRetransmission).toBe(true);
  expect(a.qp.query().progress).not.toHaveProperty('roundTrip');
  for (let i = 0; i < 100; i++) {
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 64), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
    throwIfFailed(await a.cq.next(WAIT));
  }
  const { roce_adp_retrans = 0, local_ack_timeout_err = 0 } = a.qp.counters();
  // Ten of 200 frames are lost. The ACK timer serves losses before the first round trip, and pauses of the machine.
  expect(roce_adp_retrans).toBeGreaterThan(local_ack_timeout_err);
  expect(a.device.counters().roce_adp_retrans).toBe(roce_adp_retrans);
  expect(a.qp.query().progress.roundTrip).toBeGreaterThan(0);
});

test('adaptive retries are on by default, and a connection or a call can switch them', async () => {
  await using pair = await connectedPair({ connect: { adaptiveRetransmission: false } });
  const { a, b } = pair;
  expect([a.qp.adaptiveRetransmission, b.qp.adaptiveRetransmission]).toEqual([false, false]);
  const write = async () => {
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 64), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
    throwIfFailed(await a.cq.next(WAIT));
    return 'roundTrip' in a.qp.query().progress;
  };
  expect(await write()).toBe(false);
  a.qp.adaptiveRetransmission = true;
  expect(await write()).toBe(true);
  expect(a.qp.adaptiveRetransmission).toBe(true);
});

test('a switch that is no boolean is refused', async () => {
  await using device = await openOn(new MemoryHub());
  const { qp, pd, cq } = await endOn(device);
  expect(() => {
    (qp as { adaptiveRetransmission: unknown }).adaptiveRetransmission = 'on';
  }).toThrow("adaptiveRetransmission is 'on', must be true or false");
  const ud = await pd.createQp({ sendCq: cq, type: 'UD' });
  expect(ud.adaptiveRetransmission).toBe(false);
  expect(() => {
    ud.adaptiveRetransmission = false;
  }).toThrow(/^EINVAL: qp .* has type UD: only RC is acknowledged/);
});
