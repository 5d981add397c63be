/** Timeouts and retransmissions in virtual time, and a peer that vanishes in every state. */
import { expect, describe as group, test } from 'vitest';
import { CONVERSATIONS, Conversation, inState, OUR_GUID, PEER_ID, type RoleAndState } from './conversation.js';
import * as mads from './mads.js';

/** Returns the waits between transmissions, and the messages after each wait, until an event. */
function retransmissions(talk: Conversation): [number, string][] {
  const sequence: [number, string][] = [];
  while (talk.core.nextDeadline() !== Number.POSITIVE_INFINITY) {
    const waited = talk.untilDeadline();
    sequence.push([
      waited,
      talk
        .sent()
        .map((m) => (m.name === 'REJ' ? `REJ ${m.reason}` : m.name))
        .join(),
    ]);
    if (talk.events().length > 0) break;
  }
  return sequence;
}

/** Waits of 250 ms, 500 ms and so on up to `period`, `total` ms in all, each with what is sent after it. */
function backoff(period: number, total: number, sent: string, last: string): [number, string][] {
  const sequence: [number, string][] = [];
  for (let wait = 250, left = total; left > 0; wait *= 2) {
    const next = Math.min(wait, period, left);
    left -= next;
    sequence.push([next, left > 0 ? sent : last]);
  }
  return sequence;
}

group('a peer that does not answer', () => {
  test('a REQ is repeated after 0.25 s, then ever later, at last 4.6 s apart; UNREACHABLE comes after 74 s', () => {
    const talk = new Conversation().connect();
    const first = talk.sentOne('REQ');
    const start = talk.now;
    const waits = [250, 500, 1000, 2000, 4000, ...Array.from({ length: 14 }, () => 4608)];
    for (const wait of waits) {
      expect(talk.untilDeadline()).toBe(wait);
      expect(talk.sentOne('REQ')).toEqual(first);
    }
    talk.untilDeadline();
    // the peer may have received the REQ although no reply arrived
    expect(talk.sentOne('REJ')).toMatchObject({ reason: 4, info: expect.anything() });
    expect(talk.event('UNREACHABLE').status).toBe(0);
    expect(talk.now - start).toBe(16 * 4608);
    expect(talk.core.size).toBe(0);
    expect(talk.core.counters()['cm_tx_retries.req']).toBe(waits.length);
  });

  test('the period of a REQ grows with the packet life time', () => {
    const talk = new Conversation().connect({ packetLifeTime: 19 }).discard();
    const period = 2 * 2048 + 4096;
    expect(retransmissions(talk)).toEqual(backoff(period, 16 * period, 'REQ', 'REJ 4'));
  });

  test('a lost REQ, REP or RTU delays a connection by 0.25 s each', () => {
    const talk = new Conversation().connect().discard();
    expect(talk.untilDeadline()).toBe(250);
    talk.sentOne('REQ');
    const server = new Conversation().request().accept().discard();
    expect(server.untilDeadline()).toBe(250);
    server.sentOne('REP');
    server.rtu().event('ESTABLISHED');
  });

  test.each([
    ['as short as the REQ asks', { localTimeout: 17, cmRetries: 3 }, backoff(512, 2048, 'REP', 'REJ 4')],
    [
      'repeated more often than it asks, in the time that it asks for',
      { localTimeout: 19, cmRetries: 1 },
      backoff(625, 4096, 'REP', 'REJ 4'),
    ],
    ['10 s in all, however long it asks', { localTimeout: 31 }, backoff(625, 10_000, 'REP', 'REJ 4')],
  ])('a REP is repeated %s, then UNREACHABLE and timewait follow', (_, changes, sequence) => {
    const talk = new Conversation().request(changes).accept().discard();
    expect(retransmissions(talk)).toEqual(sequence);
    expect(talk.state).toBe('TIMEWAIT');
    expect(talk.untilDeadline()).toBe(512);
    talk.event('TIMEWAIT_EXIT');
  });

  test('the REJ after the last REP names the connection by our CA GUID', () => {
    const talk = new Conversation().request({ localTimeout: 15, cmRetries: 0 }).accept().discard();
    expect(talk.untilDeadline()).toBe(128);
    const rej = talk.sentOne('REJ');
    expect(rej).toMatchObject({ reason: 4, localCommId: talk.id, remoteCommId: PEER_ID, infoLength: 8 });
    expect([...rej.info.subarray(0, 8)]).toEqual(mads.u64Bytes(OUR_GUID));
    talk.event('UNREACHABLE');
  });

  test('a DREQ is repeated for up to 4.6 s, by the passive end as the REQ says; then the connection is disconnected', () => {
    for (const [way, period] of [
      ['active DREQ_SENT', 4608],
      ['passive DREQ_SENT', 4096],
    ] as const) {
      const talk = inState(way);
      expect(retransmissions(talk)).toEqual(backoff(period, 16 * period, 'DREQ', ''));
      expect(talk.state).toBe('TIMEWAIT');
    }
  });

  test('DISCONNECTED tells that no DREP came', () => {
    const talk = inState('active DREQ_SENT').wait(16 * 4608);
    expect(talk.events()).toMatchObject([{ type: 'DISCONNECTED', timedOut: true }]);
  });

  test('timewait is as long as the ACK timeout of the queue pair', () => {
    const talk = new Conversation().request({ ackTimeout: 18 }).accept().rtu().dreq().disconnect().discard();
    expect(talk.untilDeadline()).toBe(1024);
    const other = new Conversation().connect().reply({ ackDelay: 18 }).establish().dreq().disconnect().discard();
    expect(other.untilDeadline()).toBe(2048);
  });

  test('an MRA does not keep a connection half-open for longer', () => {
    const talk = new Conversation().request({ localTimeout: 31 }).accept().discard();
    for (const wait of [0, 3000, 6500]) {
      talk.wait(wait).receive(mads.mra({ ...talk.ids, subject: 1, timeout: 31 }));
      expect(talk.state).toBe('REP_SENT');
    }
    expect(talk.discard().wait(500).event('UNREACHABLE').status).toBe(0);
  });

  test('an MRA gives the client the time that it asks for', () => {
    const talk = new Conversation().request({ localTimeout: 15, cmRetries: 1 }).accept();
    talk.receive(mads.mra({ ...talk.ids, subject: 1, timeout: 18 })).wait(1000);
    expect(talk.state).toBe('REP_SENT');
    expect(talk.sent().every(({ name }) => name === 'REP')).toBe(true);
    expect(talk.wait(24).event('UNREACHABLE').status).toBe(0);
    expect(talk.sentOne('REJ')).toMatchObject({ reason: 4 });
  });

  test('an RTU after the end of the wait gets a REJ', () => {
    const talk = new Conversation().request().accept().wait(10_000).discard().rtu();
    expect(talk.sentOne('REJ')).toMatchObject({ reason: 4, remoteCommId: PEER_ID });
    talk.wait(60_000).discard().rtu();
    expect(talk.sentOne('REJ')).toMatchObject({ reason: 6, localCommId: talk.id, remoteCommId: PEER_ID });
  });

  test('the longest times that a peer can ask for are bounded', () => {
    const longest = { localTimeout: 31, remoteTimeout: 31, ackTimeout: 31 };
    const refused = new Conversation().request(longest).reject().discard();
    expect(refused.untilDeadline()).toBe(10_000);
    expect(refused.core.size).toBe(0);
    const ended = new Conversation().request(longest).accept().rtu().dreq().disconnect().discard();
    expect(ended.untilDeadline()).toBe(10_000);
    const leaving = new Conversation().request(longest).accept().rtu().disconnect().discard();
    for (const wait of [250, 500, 1000, 2000, 4000, 4096, 4096]) expect(leaving.untilDeadline()).toBe(wait);
    const closed = new Conversation().request(longest).accept().discard();
    closed.core.close(closed.id, closed.now);
    closed.wait(20_000);
    expect(closed.core.size).toBe(0);
  });

  test('expire does nothing before the next deadline', () => {
    const talk = new Conversation().connect().discard();
    talk.wait(249);
    expect(talk.sent()).toEqual([]);
    talk.wait(1);
    talk.sentOne('REQ');
  });

  test('a late expire sends one message, not all that were due', () => {
    const talk = new Conversation().connect().discard();
    talk.now += 100_000;
    talk.core.expire(talk.now);
    talk.sentOne('REQ');
  });
});

group('a peer that vanishes', () => {
  const ends: Readonly<Record<RoleAndState, readonly string[]>> = {
    'active REQ_SENT': ['UNREACHABLE'],
    'active REP_RCVD': [],
    'active ESTABLISHED': [],
    'active DREQ_SENT': ['DISCONNECTED', 'TIMEWAIT_EXIT'],
    'active DREQ_RCVD': [],
    'active TIMEWAIT': ['TIMEWAIT_EXIT'],
    'passive REQ_RCVD': [],
    'passive REJ_SENT': [],
    'passive REP_SENT': ['UNREACHABLE', 'TIMEWAIT_EXIT'],
    'passive ESTABLISHED': [],
    'passive DREQ_SENT': ['DISCONNECTED', 'TIMEWAIT_EXIT'],
    'passive DREQ_RCVD': [],
    'passive TIMEWAIT': ['TIMEWAIT_EXIT'],
  };
  /** States that wait for the application, and its decision. */
  const decisions: Partial<Record<RoleAndState, (talk: Conversation) => Conversation>> = {
    'active REP_RCVD': (talk) => talk.establish().disconnect(),
    'active ESTABLISHED': (talk) => talk.disconnect(),
    'active DREQ_RCVD': (talk) => talk.disconnect(),
    'passive REQ_RCVD': (talk) => talk.accept(),
    'passive ESTABLISHED': (talk) => talk.disconnect(),
    'passive DREQ_RCVD': (talk) => talk.disconnect(),
  };

  test.each(Object.keys(CONVERSATIONS) as RoleAndState[])('%s', (way) => {
    const talk = inState(way).wait(1_000_000);
    expect(talk.events().map(({ type }) => type)).toEqual(ends[way]);
    const decide = decisions[way];
    if (decide === undefined) return expect(talk.core.size).toBe(0);
    decide(talk).wait(1_000_000);
    expect(talk.events().at(-1)?.type).toBe('TIMEWAIT_EXIT');
    expect(talk.core.size).toBe(0);
  });
});
