/** Calls that come too late, and connections that their program gives up. */
import { expect, describe as group, test } from 'vitest';
import * as mads from './mads.js';
import { ACCEPT, CONNECT, inState, OUR_GUID, Talk } from './talk.js';

group('calls that come too late say so', () => {
  test.each([
    ['accept', (t: Talk) => t.accept(), 'passive REJ_SENT', 'state REJ_SENT, accept needs REQ_RCVD'],
    ['prepareAccept', (t: Talk) => t.core.prepareAccept(t.id, ACCEPT), 'passive REP_SENT', 'needs REQ_RCVD'],
    ['establish', (t: Talk) => t.establish(), 'active DREQ_RCVD', 'state DREQ_RCVD, establish needs REP_RCVD'],
    ['reject', (t: Talk) => t.reject(), 'passive ESTABLISHED', 'state ESTABLISHED, reject needs REQ_RCVD'],
    ['reject', (t: Talk) => t.reject(), 'active REQ_SENT', 'state REQ_SENT, reject needs REP_RCVD'],
    ['disconnect', (t: Talk) => t.disconnect(), 'active REQ_SENT', 'state REQ_SENT, disconnect needs ESTABLISHED'],
    ['accept', (t: Talk) => t.accept(), 'active REQ_SENT', 'has the other role'],
  ] as const)('%s', (_, call, way, message) => {
    const talk = inState(way);
    expect(() => call(talk)).toThrow(message);
    expect(talk.said()).toEqual([]);
  });

  test('of a connection that has ended', () => {
    const talk = new Talk().connect().quiet();
    talk.hear(mads.rej({ ...talk.ids, subject: 0, reason: 28 }));
    expect(() => talk.establish()).toThrow('has ended');
    talk.core.close(talk.id, talk.now);
  });

  test('disconnecting what is being disconnected does nothing', () => {
    for (const way of ['active DREQ_SENT', 'active TIMEWAIT'] as const)
      expect(inState(way).disconnect().said()).toEqual([]);
  });
});

group('a connection that the program closes', () => {
  test.each([
    ['active REQ_SENT', ['REJ 4'], 'CLOSED'],
    ['active REP_RCVD', ['REJ 28'], 'CLOSED'],
    ['active ESTABLISHED', ['DREQ'], 'DREQ_SENT'],
    ['active DREQ_SENT', [], 'DREQ_SENT'],
    ['active DREQ_RCVD', ['DREP'], 'TIMEWAIT'],
    ['active TIMEWAIT', [], 'TIMEWAIT'],
    ['passive REQ_RCVD', ['REJ 28'], 'REJ_SENT'],
    ['passive REJ_SENT', [], 'REJ_SENT'],
    ['passive REP_SENT', ['DREQ'], 'DREQ_SENT'],
    ['passive ESTABLISHED', ['DREQ'], 'DREQ_SENT'],
    ['passive DREQ_RCVD', ['DREP'], 'TIMEWAIT'],
  ] as const)('%s', (way, said, next) => {
    const talk = inState(way);
    talk.core.close(talk.id, talk.now);
    const words = talk.said().map((m) => (m.name === 'REJ' ? `REJ ${m.reason}` : m.name));
    expect([words, talk.state]).toEqual([said, next]);
    // it is heard of no more, and does not stay for ever
    talk.wait(200_000);
    expect(talk.told()).toEqual([]);
    expect(talk.core.size).toBe(0);
  });

  test('in REQ_SENT: the refusal names us by our GUID', () => {
    const talk = inState('active REQ_SENT');
    talk.core.close(talk.id, talk.now);
    const rej = talk.saidOne('REJ');
    expect(rej).toMatchObject({ reason: 4, messageRejected: 2, infoLength: 8, localCommId: talk.id, remoteCommId: 0 });
    expect([...rej.info.subarray(0, 8)]).toEqual(mads.u64Bytes(OUR_GUID));
  });

  test('and whose peer disconnects at the same time', () => {
    const talk = inState('active ESTABLISHED');
    talk.core.close(talk.id, talk.now);
    talk.quiet().dreq();
    talk.saidOne('DREP');
    expect([talk.state, talk.told()]).toEqual(['TIMEWAIT', []]);
  });

  test('all of them at once', () => {
    const talk = inState('active ESTABLISHED');
    talk.connect({ qpNum: 0x70, destination: { ...CONNECT.destination, port: 1 } });
    talk
      .hear(mads.req({ id: 5, qpn: 5 }))
      .hear(mads.sidrReq())
      .quiet();
    talk.core.closeAll(talk.now);
    expect(talk.said().map(({ name }) => name)).toEqual(['DREQ', 'REJ', 'REJ']);
  });
});
