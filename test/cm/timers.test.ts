/** What happens when nobody answers: virtual time, and a peer that vanishes in every state. */
import { expect, describe as group, test } from 'vitest';
import * as mads from './mads.js';
import { inState, OUR_GUID, PEER_ID, Talk, WAYS, type Way } from './talk.js';

/** Waits between messages, and what was said at the end of each. */
function repeats(talk: Talk): [number, string][] {
  const seen: [number, string][] = [];
  while (talk.core.nextDeadline() !== Number.POSITIVE_INFINITY) {
    const waited = talk.untilDeadline();
    seen.push([
      waited,
      talk
        .said()
        .map((m) => (m.name === 'REJ' ? `REJ ${m.reason}` : m.name))
        .join(),
    ]);
    if (talk.told().length > 0) break;
  }
  return seen;
}

const times = (count: number, wait: number, said: string) => Array.from({ length: count }, () => [wait, said]);

group('nobody answers', () => {
  test('REQ: sixteen in all, 4.6 s apart; then UNREACHABLE', () => {
    const talk = new Talk().connect();
    const first = talk.saidOne('REQ');
    const start = talk.now;
    for (let i = 0; i < 15; i++) {
      expect(talk.untilDeadline()).toBe(4608);
      expect(talk.saidOne('REQ')).toEqual(first);
    }
    talk.untilDeadline();
    // the peer may have heard us although we did not hear it
    expect(talk.saidOne('REJ')).toMatchObject({ reason: 4, info: expect.anything() });
    expect(talk.toldOne('UNREACHABLE').status).toBe(0);
    expect(talk.now - start).toBe(16 * 4608);
    expect(talk.core.size).toBe(0);
    expect(talk.core.counters()['cm_tx_retries.req']).toBe(15);
  });

  test('a REQ waits longer on a longer way', () => {
    const talk = new Talk().connect({ packetLifeTime: 19 }).quiet();
    expect(talk.untilDeadline()).toBe(2 * 2048 + 4096);
  });

  test('REP: as the REQ asks, then UNREACHABLE and timewait', () => {
    const talk = new Talk().request({ localTimeout: 19, cmRetries: 3 }).accept().quiet();
    const start = talk.now;
    expect(repeats(talk)).toEqual([...times(3, 2048, 'REP'), [2048, 'REJ 4']]);
    expect(talk.now - start).toBe(4 * 2048);
    expect(talk.state).toBe('TIMEWAIT');
    expect(talk.untilDeadline()).toBe(512);
    talk.toldOne('TIMEWAIT_EXIT');
  });

  test('REP: the last word names the connection by our GUID', () => {
    const talk = new Talk().request({ cmRetries: 0 }).accept().quiet();
    talk.untilDeadline();
    const rej = talk.saidOne('REJ');
    expect(rej).toMatchObject({ reason: 4, localCommId: talk.id, remoteCommId: PEER_ID, infoLength: 8 });
    expect([...rej.info.subarray(0, 8)]).toEqual(mads.u64Bytes(OUR_GUID));
    talk.toldOne('UNREACHABLE');
  });

  test('DREQ of the active end: 4.6 s; of the passive one as the REQ says. Then it is disconnected all the same', () => {
    for (const [way, period] of [
      ['active DREQ_SENT', 4608],
      ['passive DREQ_SENT', 4096],
    ] as const) {
      const talk = inState(way);
      expect(repeats(talk)).toEqual([...times(15, period, 'DREQ'), [period, '']]);
      expect(talk.state).toBe('TIMEWAIT');
    }
  });

  test('DREQ: the program is told that nobody agreed', () => {
    const talk = inState('active DREQ_SENT').wait(16 * 4608);
    expect(talk.told()).toMatchObject([{ type: 'DISCONNECTED', timedOut: true }]);
  });

  test('timewait is the ACK timeout of the queue pair', () => {
    const talk = new Talk().request({ ackTimeout: 18 }).accept().rtu().dreq().disconnect().quiet();
    expect(talk.untilDeadline()).toBe(1024);
    const other = new Talk().connect().reply({ ackDelay: 18 }).establish().dreq().disconnect().quiet();
    expect(other.untilDeadline()).toBe(2048);
  });

  test('however long a peer wants us to wait, there is a bound', () => {
    const talk = new Talk().request({ localTimeout: 31 }).accept().quiet();
    expect(talk.untilDeadline()).toBe(65536);
    talk.hear(mads.mra({ ...talk.ids, subject: 1, timeout: 31 }));
    expect(talk.core.nextDeadline() - talk.now).toBeLessThanOrEqual(65536 + 512);
  });

  test('nothing is due before its time', () => {
    const talk = new Talk().connect().quiet();
    talk.wait(4607);
    expect(talk.said()).toEqual([]);
    talk.wait(1);
    talk.saidOne('REQ');
  });

  test('a late turn sends one message, not all that were missed', () => {
    const talk = new Talk().connect().quiet();
    talk.now += 100_000;
    talk.core.expire(talk.now);
    talk.saidOne('REQ');
  });
});

group('a peer that vanishes', () => {
  const ends: Readonly<Record<Way, readonly string[]>> = {
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
  /** States that wait for the program, and what it then does. */
  const decisions: Partial<Record<Way, (talk: Talk) => Talk>> = {
    'active REP_RCVD': (talk) => talk.establish().disconnect(),
    'active ESTABLISHED': (talk) => talk.disconnect(),
    'active DREQ_RCVD': (talk) => talk.disconnect(),
    'passive REQ_RCVD': (talk) => talk.accept(),
    'passive ESTABLISHED': (talk) => talk.disconnect(),
    'passive DREQ_RCVD': (talk) => talk.disconnect(),
  };

  test.each(Object.keys(WAYS) as Way[])('%s', (way) => {
    const talk = inState(way).wait(1_000_000);
    expect(talk.told().map(({ type }) => type)).toEqual(ends[way]);
    const decide = decisions[way];
    if (decide === undefined) return expect(talk.core.size).toBe(0);
    decide(talk).wait(1_000_000);
    expect(talk.told().at(-1)?.type).toBe('TIMEWAIT_EXIT');
    expect(talk.core.size).toBe(0);
  });
});
