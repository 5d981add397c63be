/** The completion queue from the application's side: it keeps its order and its size. */
import { describe, expect, test } from 'vitest';
import { ack, nak, request } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, rc, send } from '../kit/conversation.js';
import { Rig } from '../kit/rig.js';

test('cqPeek and cqPop of an empty queue do nothing', async () => {
  const { x } = await Rig.create();
  const cq = x.cqCreate(4);
  expect(x.cqPeek(cq)).toBe(0);
  x.cqPop(cq);
  x.cqPop(cq);
  expect(x.cqPeek(cq)).toBe(0);
});

test('impossible sizes are refused', async () => {
  const rig = await Rig.create();
  const limits = [0, 2 ** 22 + 1, 2 ** 32 - 1];
  for (const cqe of limits) expect(rig.x.cqCreate(cqe), `${cqe}`).toBe(0);
});

test('completions keep their order when the ring wraps', async () => {
  const c = await rc({ cqe: 3, sendWr: 3 });
  for (let round = 0; round < 50; round++) {
    const psn = 1000 + 3 * round;
    const ids = [0, 1, 2].map((i) => round * 3 + i);
    c.post(round, ...ids.map((wrId) => ({ wrId, opcode: 'SEND', inline: PING })));
    expect(c.take()).toHaveLength(3);
    c.in(round, ack({ psn: psn + 2, msn: 3 * round + 3 })).wc(...ids.map((wrId) => ({ wrId })));
  }
});

test('a peeked completion stays until it is popped', async () => {
  const c = await rc();
  const { x, card } = c.rig;
  c.post(0, { wrId: 5, opcode: 'SEND', inline: PING }, { wrId: 6, opcode: 'SEND', inline: PING });
  c.take();
  c.in(1, ack({ psn: 1001, msn: 2 }));
  const first = x.cqPeek(c.qp.cq);
  expect(x.cqPeek(c.qp.cq)).toBe(first);
  expect(card.f64[(first + x.CqeOffset.WR_ID) >>> 3]).toBe(5);
  x.cqPop(c.qp.cq);
  expect(card.f64[(x.cqPeek(c.qp.cq) + x.CqeOffset.WR_ID) >>> 3]).toBe(6);
  c.wc({ wrId: 6 });
});

test('a wrId may be any number of 53 bits', async () => {
  const c = await rc();
  const ids = [0, 2 ** 53 - 1, -1, 2 ** 32];
  c.post(0, ...ids.map((wrId) => ({ wrId, opcode: 'SEND', inline: PING })));
  c.take();
  c.in(1, ack({ psn: 1003, msn: 4 })).wc(...ids.map((wrId) => ({ wrId })));
});

test('a failed completion names its queue pair, and the timers and RNR NAKs before it', async () => {
  const c = await rc({ timeout: 1, retryCnt: 1, rnrRetry: 7 });
  const { x, card } = c.rig;
  c.post(0, { wrId: 1, opcode: 'SEND', inline: PING });
  c.take();
  for (const us of [1, 12]) {
    c.in(us, nak.rnr({ psn: 1000, timer: 1 })).at(us + 10);
    c.take();
  }
  for (const us of [31, 40]) {
    c.at(us);
    c.take();
  }
  const cqe = x.cqPeek(c.qp.cq);
  const at = (offset: number) => card.u32[(cqe + offset) >>> 2];
  const { CqeOffset } = x;
  expect([at(CqeOffset.QPN), at(CqeOffset.QP), at(CqeOffset.TIMEOUTS), at(CqeOffset.RNRS)]).toEqual([
    c.qp.qpn,
    c.qp.handle,
    2,
    2,
  ]);
  c.wc({ wrId: 1, status: 'RETRY_EXC_ERR', psn: 1000 });
});

test('sends and receives may complete into different queues', async () => {
  const c = await rc({ recvCqe: 4, receives: 2 });
  c.rig.x.cqArm(c.qp.recvCq, false);
  c.post(0, { wrId: 7, opcode: 'SEND', inline: PING });
  c.take();
  c.in(1, ack({ psn: 1000, msn: 1 }))
    .events()
    .in(2, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .events('COMPLETION');
  expect(c.qp.poll(c.qp.recvCq).map(({ wrId, opcode }) => [wrId, opcode])).toEqual([[1, 'RECV']]);
  c.wc({ wrId: 7, opcode: 'SEND' })
    .at(3, () => c.qp.modify({ STATE: 6 }))
    .wc({ wrId: 2, status: 'WR_FLUSH_ERR' });
});

test('a full receive CQ loses no completions of sends', async () => {
  const c = await rc({ recvCqe: 1, receives: 3 });
  c.post(0, { wrId: 7, opcode: 'SEND', inline: PING });
  c.take();
  c.in(1, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .in(2, send({ psn: 101 }))
    .silent()
    .events('CQ_ERR', 'QP_FATAL')
    .state('ERR')
    .wc({ wrId: 7, status: 'WR_FLUSH_ERR' }, { wrId: 1 });
});

test('events that the program does not take are lost and counted, the newest first', async () => {
  const c = await rc();
  const events = 4096;
  // each queue pair that fails for its peer's bad opcode raises one event
  let raised = 0;
  while (raised < events + 3) {
    c.qp.modify({ STATE: 0 });
    c.qp.connect({ destQpn: c.there.srcQp, sqPsn: 1000, rqPsn: 100 });
    c.in(raised, request.sendMiddle({ psn: 100, payload: PING }));
    c.take();
    raised++;
  }
  c.cardCounts({ events_lost: 3 });
  const told = c.rig.events();
  expect(told).toHaveLength(events + 1);
  // the application then polls all completion queues
  expect(told.at(-1)).toBe('MISSED');
  c.events();
});

test('several queue pairs may complete into one queue', async () => {
  const rig = await Rig.create();
  const cq = rig.x.cqCreate(8);
  const { RC } = rig.x.QpType;
  const pairs = [0, 1].map(() => rig.x.qpCreate(rig.pd, RC, cq, cq, 4, 4, 1, 1, 8, true, 0));
  expect(rig.x.cqDestroy(cq)).toBe(rig.x.Errno.EBUSY);
  for (const qp of pairs) {
    expect(rig.x.cqDestroy(cq)).toBe(rig.x.Errno.EBUSY);
    rig.x.qpDestroy(qp);
  }
  expect(rig.x.cqDestroy(cq)).toBe(0);
});

describe('cqResize', () => {
  /** Sends messages that complete with these wrIds. */
  function complete(c: Conversation, ...ids: readonly number[]): void {
    const first = c.qp.attribute('NEXT_PSN');
    c.post(0, ...ids.map((wrId) => ({ wrId, opcode: 'SEND', inline: PING }))).take();
    c.in(0, ack({ psn: first + ids.length - 1, msn: 0 }));
  }
  const resize = ({ rig, qp }: Conversation, cqe: number) => rig.x.Errno[rig.x.cqResize(qp.cq, cqe)];

  test.each([3, 4, 5, 16, 1000])('to %i keeps pending completions in order, wherever the ring stands', async (cqe) => {
    for (const before of [0, 1, 2, 3]) {
      const c = await rc({ cqe: 4 });
      for (let n = 0; n < before; n++) complete(c, n);
      c.wc(...Array.from({ length: before }, (_, wrId) => ({ wrId })));
      complete(c, 10, 11, 12);
      expect(resize(c, cqe)).toBe('OK');
      expect(c.rig.x.cqFilled(c.qp.cq)).toBe(3);
      const more = Array.from({ length: Math.min(cqe, 20) - 3 }, (_, i) => 20 + i);
      if (more.length > 0) complete(c, ...more);
      c.wc(...[10, 11, 12, ...more].map((wrId) => ({ wrId })));
    }
  });

  test('refuses sizes below the pending completions, and impossible ones, and loses nothing', async () => {
    const c = await rc({ cqe: 4 });
    complete(c, 1, 2, 3);
    expect([2, 0, 2 ** 22 + 1].map((cqe) => resize(c, cqe))).toEqual(['EINVAL', 'EINVAL', 'EINVAL']);
    expect(resize(c, 2 ** 22)).toBe('ENOMEM');
    complete(c, 4);
    c.wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 }, { wrId: 4 });
  });

  test('of a queue that is too small overruns later', async () => {
    const c = await rc({ cqe: 2 });
    complete(c, 1, 2);
    expect(resize(c, 4)).toBe('OK');
    complete(c, 3, 4);
    expect(c.rig.x.cqOverrun(c.qp.cq)).toBe(false);
    complete(c, 5);
    c.wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 }, { wrId: 4 }).events('CQ_ERR', 'QP_FATAL');
  });

  test('keeps an armed queue armed', async () => {
    const c = await rc({ cqe: 2 });
    c.rig.x.cqArm(c.qp.cq, false);
    expect(resize(c, 64)).toBe('OK');
    complete(c, 1);
    c.events('COMPLETION').wc({ wrId: 1 });
  });

  test('gives the old memory back', async () => {
    const c = await rc({ cqe: 4 });
    const left = c.rig.x.memAvailable();
    for (let n = 0; n < 50; n++) expect([resize(c, 4096), resize(c, 4)]).toEqual(['OK', 'OK']);
    expect(c.rig.x.memAvailable()).toBe(left);
  });
});
