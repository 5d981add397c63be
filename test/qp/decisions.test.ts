/** The trace of decisions: what it records of states, retransmissions, failures and NAKs, and that it is a ring. */
import { describe, expect, test } from 'vitest';
import { type Decision, decisions } from '../../src/device/decisions.js';
import { ack, nak, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, pattern, rc, send } from '../kit/conversation.js';
import { Rig } from '../kit/rig.js';
import { ACK_TIMER, MIN_RTO, measured, ping, REMOTE, START, sent, WAIT } from './measured-rtt.js';

/** The decisions of a conversation since the connection, without what differs from run to run. */
function decided(c: Conversation): Omit<Decision, 'number' | 'qpNum' | 'text'>[] {
  const all = decisions(c.rig.card, c.qp.qpn).map(({ number: _number, qpNum: _qpNum, text: _text, ...rest }) => rest);
  return all.slice(all.findIndex((each) => each.kind === 'STATE' && each.to === 'RTS') + 1);
}
const at = (us: number) => us * 1000;

describe('decisions about states', () => {
  test('name the old and the new state, and the reason of each change', async () => {
    const c = await rc();
    c.qp.modify({ STATE: 4 });
    c.qp.modify({ STATE: 3 });
    c.qp.modify({ STATE: 6 });
    c.qp.modify({ STATE: 6 });
    c.rig.x.qpDestroy(c.qp.handle);
    const moves = decisions(c.rig.card, c.qp.qpn).map((each) => (each.kind === 'STATE' ? each : undefined));
    expect(moves.map((move) => `${move?.from} ${move?.to} ${move?.reason}`)).toEqual([
      'RESET INIT MODIFY',
      'INIT RTR MODIFY',
      'RTR RTS MODIFY',
      'RTS SQD MODIFY',
      'SQD RTS MODIFY',
      'RTS ERR MODIFY',
      'ERR RESET DESTROY',
    ]);
  });

  test('name status, PSN and syndrome of a failed send before the state', async () => {
    const c = await rc();
    c.post(1, ping(1)).out(sent(1000));
    c.in(5, nak.remoteAccess({ psn: 1000, msn: 0 })).wc({ wrId: 1, status: 'REM_ACCESS_ERR' });
    expect(decided(c)).toEqual([
      { kind: 'SEND_FAILED', at: at(5), status: 'REM_ACCESS_ERR', psn: 1000, syndrome: 0x62 },
      { kind: 'STATE', at: at(5), from: 'RTS', to: 'ERR', reason: 'SEND_FAILED' },
    ]);
  });

  test('name a full completion queue', async () => {
    const c = await rc({ cqe: 1 });
    c.post(1, ping(1), ping(2))
      .out(sent(1000), sent(1001))
      .in(2, ack({ psn: 1001, msn: 2 }));
    c.wc({ wrId: 1 }).events('CQ_ERR', 'QP_FATAL');
    expect(decided(c)).toEqual([{ kind: 'STATE', at: at(2), from: 'RTS', to: 'ERR', reason: 'CQ_OVERRUN' }]);
  });
});

describe('decisions about retransmissions', () => {
  test('by the ACK timer name the first PSN and the number of packets, and that no retry was left', async () => {
    const c = await rc({ retryCnt: 1 });
    c.post(1, ping(1), ping(2)).out(sent(1000), sent(1001));
    c.at(1 + ACK_TIMER).out(sent(1000), sent(1001));
    c.at(1 + 2 * ACK_TIMER).wc({ wrId: 1, status: 'RETRY_EXC_ERR' }, { wrId: 2, status: 'WR_FLUSH_ERR' });
    const [first, second] = [at(1 + ACK_TIMER), at(1 + 2 * ACK_TIMER)];
    expect(decided(c)).toEqual([
      { kind: 'RETRANSMIT', at: first, reason: 'ACK_TIMEOUT', psn: 1000, packets: 2, retriesLeft: 0 },
      { kind: 'SEND_FAILED', at: second, status: 'RETRY_EXC_ERR', psn: 1000, syndrome: 0 },
      { kind: 'STATE', at: second, from: 'RTS', to: 'ERR', reason: 'SEND_FAILED' },
    ]);
  });

  test('by a sequence NAK name its PSN', async () => {
    const c = await rc();
    c.post(1, ping(1), ping(2), ping(3)).out(sent(1000), sent(1001), sent(1002));
    c.in(2, nak.sequence({ psn: 1001, msn: 1 }))
      .wc({ wrId: 1 })
      .out(sent(1001), sent(1002));
    c.in(3, ack({ psn: 1001, msn: 2 })).wc({ wrId: 2 });
    c.in(4, ack({ psn: 1002, msn: 3 })).wc({ wrId: 3 });
    expect(decided(c)).toEqual([
      { kind: 'RETRANSMIT', at: at(2), reason: 'SEQUENCE_NAK', psn: 1001, packets: 2, retriesLeft: 6 },
      { kind: 'RECOVERED', at: at(3), psn: 1002, packets: 0 },
    ]);
  });

  test('by an RNR NAK, and of an ACK that makes the retransmission needless', async () => {
    const c = await rc({ rnrRetry: 3 });
    c.post(1, ping(1)).out(sent(1000));
    c.in(2, nak.rnr({ psn: 1000, timer: 1, msn: 0 })).silent();
    c.in(3, ack({ psn: 1000, msn: 1 })).wc({ wrId: 1 });
    expect(decided(c)).toEqual([
      { kind: 'RETRANSMIT', at: at(2), reason: 'RNR_NAK', psn: 1000, packets: 1, retriesLeft: 2 },
      { kind: 'RECOVERED', at: at(3), psn: 1001, packets: 0 },
      { kind: 'SKIPPED', at: at(3), psn: 1001, packets: 1 },
    ]);
  });

  test('by a missing READ response: an implied NAK, and the READ resumed in its middle', async () => {
    const c = await rc();
    const pieces = [c.buffer.piece(0, 3072)];
    c.post(1, { wrId: 1, opcode: 'RDMA_READ', pieces, remote: REMOTE });
    c.take();
    const data = pattern(3072);
    c.in(2, response.readFirst({ psn: 1000, msn: 1, payload: data.subarray(0, 1024) }));
    c.in(3, response.readLast({ psn: 1002, msn: 1, payload: data.subarray(2048) })).out(
      request.read({ psn: 1001, va: REMOTE.va + 1024n, rkey: REMOTE.rkey, length: 2048, ackReq: true }),
    );
    expect(decided(c)).toEqual([
      { kind: 'RETRANSMIT', at: at(3), reason: 'IMPLIED_NAK', psn: 1001, packets: 2, retriesLeft: 6 },
      { kind: 'READ_RESUMED', at: at(3), psn: 1001, packets: 1 },
    ]);
  });
});

describe('adaptive retransmission', () => {
  const early = { kind: 'RETRANSMIT', at: at(START + MIN_RTO), reason: 'EARLY', psn: 1001, packets: 1, retriesLeft: 7 };
  /** Three packets are in flight, and the first is sent again because its ACK is overdue. */
  async function probing(): Promise<Conversation> {
    const c = await measured();
    c.post(START, ping(1), ping(2), ping(3)).out(sent(1001), sent(1002), sent(1003));
    return c.at(START + MIN_RTO).out(sent(1001));
  }

  test('of the lost packet name those behind it, which are sent again', async () => {
    const c = await probing();
    const us = START + MIN_RTO + WAIT / 3;
    c.in(us, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 })
      .out(sent(1002), sent(1003));
    expect(decided(c)).toEqual([early, { kind: 'PROBE_LOST', at: at(us), psn: 1002, packets: 2 }]);
  });

  test('because of a late peer: nothing else is sent again', async () => {
    const c = await probing();
    const us = START + MIN_RTO + 1;
    c.in(us, ack({ psn: 1003, msn: 4 })).wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 });
    expect(decided(c)).toEqual([early, { kind: 'PROBE_DELIVERED', at: at(us), psn: 1004, packets: 0 }]);
  });
});

describe('decisions of the responder', () => {
  test('name a gap, and a message without a receive', async () => {
    const c = await rc({ receives: 1 });
    c.in(1, send({ psn: 102 })).out(nak.sequence({ psn: 100, msn: 0 }));
    c.in(2, send({ psn: 100 }), send({ psn: 101 })).out(nak.rnr({ psn: 101, timer: 12, msn: 1 }));
    c.wc({ wrId: 1 });
    expect(decided(c)).toEqual([
      { kind: 'NAK', at: at(1), psn: 100, syndrome: 0x60, gap: 2 },
      { kind: 'NAK', at: at(2), psn: 101, syndrome: 0x2c, gap: 0 },
    ]);
  });

  test('name an invalid key: the queue pair fails once the NAK is sent', async () => {
    const c = await rc();
    c.in(1, request.writeOnly({ psn: 100, va: 0n, rkey: 7, payload: PING, ackReq: true }));
    c.out(nak.remoteAccess({ psn: 100, msn: 0 })).events('QP_ACCESS_ERR');
    expect(decided(c)).toEqual([
      { kind: 'NAK', at: at(1), psn: 100, syndrome: 0x62, gap: 0 },
      { kind: 'STATE', at: at(1), from: 'RTS', to: 'ERR', reason: 'REQUEST_REJECTED' },
    ]);
  });
});

describe('the ring of decisions', () => {
  const errno = (rig: Rig, entries: number) => rig.errno(rig.x.traceDecisions(entries));

  test('keeps the last decisions, and its numbers show what was overwritten', async () => {
    const rig = await Rig.create();
    expect(errno(rig, 4)).toBe('OK');
    const qp = rig.qp();
    for (let i = 0; i < 5; i++) qp.connect({ destQpn: 9, sqPsn: 0, rqPsn: 0, until: 'INIT' }).modify({ STATE: 0 });
    expect(decisions(rig.card).map(({ number }) => number)).toEqual([6, 7, 8, 9]);
    expect(rig.decisions().at(-1)).toMatch(/state INIT -> RESET: modified by the application$/);
  });

  test('refuses impossible sizes, and 0 gives its memory back', async () => {
    const rig = await Rig.create();
    errno(rig, 0);
    const free = rig.x.memAvailable();
    expect([errno(rig, 3), errno(rig, 131072)]).toEqual(['EINVAL', 'EINVAL']);
    expect(errno(rig, 65536)).toBe('OK');
    expect(rig.x.memAvailable()).toBeLessThan(free);
    expect(errno(rig, 0)).toBe('OK');
    expect(rig.x.memAvailable()).toBe(free);
    expect(decisions(rig.card)).toEqual([]);
  });

  test('has the decisions of all queue pairs, or of one', async () => {
    const rig = await Rig.create();
    const [a, b] = [rig.qp(), rig.qp()];
    for (const qp of [a, b, a]) qp.modify({ STATE: 1, PKEY_INDEX: 0, PORT: 1, ACCESS_FLAGS: 0 });
    const found = (qpn?: number) => decisions(rig.card, qpn).map(({ qpNum }) => qpNum);
    expect(found()).toEqual([a.qpn, b.qpn]);
    expect(found(b.qpn)).toEqual([b.qpn]);
  });
});

test('is shown by a test that fails', async () => {
  const c = await rc();
  c.post(1, ping(1))
    .out(sent(1000))
    .at(1 + ACK_TIMER)
    .out(sent(1000));
  expect(() => c.wc({ wrId: 1 })).toThrow(
    /the card decided\n[\s\S]*67109\.864 {2}retransmits 1 packet from psn 1000 on: the ACK timer expired, retries left: 6/,
  );
});
