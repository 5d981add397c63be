/** Events: completions of an armed queue, and asynchronous events. */
import { describe, expect, test } from 'vitest';
import { ack, decode, nak, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { PING, rc, send } from '../kit/conversation.js';

const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });
const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });

describe('a completion queue that is armed', () => {
  test('notifies once of the next completion', async () => {
    const c = await rc({ receives: 3 });
    c.rig.x.cqArm(c.qp.cq, false);
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .events('COMPLETION')
      .in(1, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }))
      .events()
      .wc({ wrId: 1 }, { wrId: 2 });
  });

  test('does not notify of earlier completions', async () => {
    const c = await rc({ receives: 2 });
    c.in(0, send({ psn: 100 })).out(ack({ psn: 100, msn: 1 }));
    c.rig.x.cqArm(c.qp.cq, false);
    c.at(1)
      .events()
      .in(2, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }))
      .events('COMPLETION')
      .wc({ wrId: 1 }, { wrId: 2 });
  });

  test('notifies of a completed SEND of ours too', async () => {
    const c = await rc();
    c.rig.x.cqArm(c.qp.cq, false);
    c.post(0, ping(1))
      .out(sent(1000))
      .events()
      .in(1, ack({ psn: 1000, msn: 1 }))
      .events('COMPLETION')
      .wc({ wrId: 1 });
  });
});

describe('a completion queue armed for solicited completions', () => {
  const asking = (psn: number) => send({ psn, solicited: true });

  test('notifies of a message with the solicited bit', async () => {
    const c = await rc({ receives: 2 });
    c.rig.x.cqArm(c.qp.cq, true);
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .events()
      .in(1, asking(101))
      .out(ack({ psn: 101, msn: 2 }))
      .events('COMPLETION')
      .wc({ wrId: 1 }, { wrId: 2 });
  });

  test('does not notify of completions of our own requests, but of their failure', async () => {
    const c = await rc();
    c.rig.x.cqArm(c.qp.cq, true);
    c.post(0, { ...ping(1), solicited: true }, ping(2))
      .out({ ...sent(1000), bth: { ...sent(1000).bth, solicited: true } }, sent(1001))
      .in(1, ack({ psn: 1000, msn: 1 }))
      .events()
      .in(2, nak.invalidRequest({ psn: 1001, msn: 1 }))
      .events('COMPLETION')
      .wc({ wrId: 1 }, { wrId: 2, status: 'REM_INV_REQ_ERR' })
      .state('ERR');
  });

  test('ignores the solicited bit of requests that take no receive at the peer', async () => {
    const c = await rc();
    const remote = { va: 0x1000n, rkey: 5 };
    const opcodes = ['SEND', 'RDMA_WRITE_WITH_IMM', 'RDMA_WRITE', 'RDMA_READ'];
    c.post(0, ...opcodes.map((opcode, i) => ({ wrId: i, opcode, remote, solicited: true })));
    expect(c.take().map((bytes) => decode(bytes).bth.solicited)).toEqual([true, true, false, false]);
  });

  test('stays armed for all when it was armed for all before', async () => {
    const c = await rc({ receives: 1 });
    c.rig.x.cqArm(c.qp.cq, false);
    c.rig.x.cqArm(c.qp.cq, true);
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .events('COMPLETION')
      .wc({ wrId: 1 });
  });

  test('is armed for all when that is requested later', async () => {
    const c = await rc({ receives: 1 });
    c.rig.x.cqArm(c.qp.cq, true);
    c.rig.x.cqArm(c.qp.cq, false);
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .events('COMPLETION')
      .wc({ wrId: 1 });
  });

  test('notifies of a WRITE with immediate that has the bit in its last packet', async () => {
    const c = await rc({ receives: 1 });
    c.rig.x.cqArm(c.qp.cq, true);
    c.in(0, request.writeOnlyImm({ psn: 100, va: 0n, rkey: 0, imm: 1, ackReq: true, solicited: true }))
      .out(ack({ psn: 100, msn: 1 }))
      .events('COMPLETION')
      .wc({ wrId: 1 });
  });
});

test('has the bit from the last packet of a message only', async () => {
  const c = await rc({ mtu: 256 });
  const payload = c.buffer.bytes.slice(0, 300);
  c.post(0, { wrId: 1, opcode: 'SEND', pieces: [c.buffer.piece(0, 300)], solicited: true })
    .out(...request.send({ psn: 1000, payload, mtu: 256, solicited: true }))
    .in(1, ack({ psn: 1001, msn: 1 }))
    .wc({ wrId: 1 });
});

describe('a completion queue that is full', () => {
  test('loses the completion, reports it once, and ends the queue pair without a response', async () => {
    const c = await rc({ receives: 4, cqe: 2 });
    c.in(0, send({ psn: 100 }), send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }))
      .in(1, send({ psn: 102 }))
      .silent()
      .events('CQ_ERR', 'QP_FATAL')
      .state('ERR')
      .wc({ wrId: 1 }, { wrId: 2 })
      .in(2, send({ psn: 103 }))
      .silent()
      .cardCounts({ cq_overrun: 1 });
    expect(c.rig.x.cqOverrun(c.qp.cq)).toBeTruthy();
  });

  test('reports completions of our own requests that do not fit, too', async () => {
    const c = await rc({ cqe: 1 });
    c.post(0, ping(1), ping(2))
      .out(sent(1000), sent(1001))
      .in(1, ack({ psn: 1001, msn: 2 }))
      .events('CQ_ERR', 'QP_FATAL')
      .state('ERR')
      .wc({ wrId: 1 });
  });

  test('does not overrun while the program takes completions in time', async () => {
    const c = await rc({ receives: 9, cqe: 1 });
    for (let i = 0; i < 9; i++)
      c.in(i, send({ psn: 100 + i }))
        .out(ack({ psn: 100 + i, msn: i + 1 }))
        .wc({ wrId: i + 1 });
  });
});

describe('COMM_EST', () => {
  test('reports the first request in RTR', async () => {
    const c = await rc({ until: 'RTR', receives: 2 });
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .events('COMM_EST')
      .in(1, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }))
      .events()
      .wc({ wrId: 1 }, { wrId: 2 });
  });

  test('is not raised in RTS', async () => {
    const c = await rc({ receives: 1 });
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .events()
      .wc({ wrId: 1 });
  });
});

describe('SQ_DRAINED', () => {
  test('is raised when what was in flight is done; what was not started waits', async () => {
    const c = await rc({ maxRdAtomic: 1 });
    const remote = { va: 0x1000n, rkey: 5 };
    const read = (wrId: number) => ({ wrId, opcode: 'RDMA_READ', remote });
    const asked = (psn: number) => request.read({ psn, ...remote, length: 0, ackReq: true });
    c.post(0, ping(1), read(2), read(3))
      .out(sent(1000), asked(1001))
      .at(1, () => c.qp.modify({ STATE: 4, EN_SQD_ASYNC_NOTIFY: 1 }))
      .state('SQD')
      .in(2, ack({ psn: 1000, msn: 1 }))
      .silent()
      .events()
      .wc({ wrId: 1 })
      .in(3, response.readOnly({ psn: 1001, msn: 2 }))
      .silent()
      .events('SQ_DRAINED')
      .wc({ wrId: 2 })
      .at(4, () => c.qp.modify({ STATE: 3 }))
      .out(asked(1002))
      .in(5, response.readOnly({ psn: 1002, msn: 3 }))
      .wc({ wrId: 3 });
  });

  test('is raised at once when nothing is in flight', async () => {
    const c = await rc();
    c.at(1, () => c.qp.modify({ STATE: 4, EN_SQD_ASYNC_NOTIFY: 1 }))
      .events('SQ_DRAINED')
      .state('SQD');
  });

  test('is not raised unless it was requested', async () => {
    const c = await rc();
    c.post(0, ping(1))
      .out(sent(1000))
      .at(1, () => c.qp.modify({ STATE: 4 }))
      .in(2, ack({ psn: 1000, msn: 1 }))
      .events()
      .wc({ wrId: 1 });
  });

  test('a request that waits for a limit that becomes 0 fails in its turn', async () => {
    const c = await rc({ maxRdAtomic: 1 });
    const remote = { va: 0x1000n, rkey: 5 };
    const read = (wrId: number) => ({ wrId, opcode: 'RDMA_READ', remote });
    c.post(0, read(1), read(2))
      .out(request.read({ psn: 1000, ...remote, length: 0, ackReq: true }))
      .at(1, () => c.qp.modify({ STATE: 4 }))
      .at(2, () => c.qp.modify({ MAX_QP_RD_ATOMIC: 0 }))
      .at(3, () => c.qp.modify({ STATE: 3 }))
      .in(4, response.readOnly({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 }, { wrId: 2, status: 'LOC_QP_OP_ERR' })
      .state('ERR');
  });

  test('is raised also when attributes change meanwhile', async () => {
    const c = await rc();
    c.post(0, ping(1))
      .out(sent(1000))
      .at(1, () => c.qp.modify({ STATE: 4, EN_SQD_ASYNC_NOTIFY: 1 }))
      .at(2, () => c.qp.modify({ TIMEOUT: 15 }))
      .in(3, ack({ psn: 1000, msn: 1 }))
      .events('SQ_DRAINED')
      .wc({ wrId: 1 });
  });

  test('is raised after repetitions: SQD goes on with what was started', async () => {
    const c = await rc({ timeout: 1 });
    c.post(0, ping(1))
      .out(sent(1000))
      .at(1, () => c.qp.modify({ STATE: 4, EN_SQD_ASYNC_NOTIFY: 1 }))
      .at(9)
      .out(sent(1000))
      .in(10, ack({ psn: 1000, msn: 1 }))
      .events('SQ_DRAINED')
      .wc({ wrId: 1 });
  });
});

test('an object that is destroyed takes its events with it', async () => {
  const c = await rc({ until: 'RTR', receives: 1 });
  c.rig.x.cqArm(c.qp.cq, false);
  c.in(0, send({ psn: 100 })).out(ack({ psn: 100, msn: 1 }));
  c.wc({ wrId: 1 });
  expect(c.rig.x.cqDestroy(c.qp.cq)).toBe(c.rig.x.Errno.EBUSY);
  c.rig.x.qpDestroy(c.qp.handle);
  expect(c.rig.x.cqDestroy(c.qp.cq)).toBe(0);
  expect(c.rig.events()).toEqual([]);
});
