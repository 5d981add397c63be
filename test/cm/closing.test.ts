/** Calls in the wrong state, and connections that the application closes. */
import { expect, describe as group, test } from 'vitest';
import { ACCEPT, CONNECT, Conversation, inState, OUR_GUID } from './conversation.js';
import * as mads from './mads.js';

group('a call on a connection in a later state throws and names the state', () => {
  test.each([
    ['accept', (t: Conversation) => t.accept(), 'passive REJ_SENT', 'state REJ_SENT, accept needs REQ_RCVD'],
    ['prepareAccept', (t: Conversation) => t.core.prepareAccept(t.id, ACCEPT), 'passive REP_SENT', 'needs REQ_RCVD'],
    ['establish', (t: Conversation) => t.establish(), 'active DREQ_RCVD', 'state DREQ_RCVD, establish needs REP_RCVD'],
    ['reject', (t: Conversation) => t.reject(), 'passive ESTABLISHED', 'state ESTABLISHED, reject needs REQ_RCVD'],
    ['reject', (t: Conversation) => t.reject(), 'active REQ_SENT', 'state REQ_SENT, reject needs REP_RCVD'],
    [
      'disconnect',
      (t: Conversation) => t.disconnect(),
      'active REQ_SENT',
      'state REQ_SENT, disconnect needs ESTABLISHED',
    ],
    ['accept', (t: Conversation) => t.accept(), 'active REQ_SENT', 'has the other role'],
  ] as const)('%s', (_, call, way, message) => {
    const talk = inState(way);
    expect(() => call(talk)).toThrow(message);
    expect(talk.sent()).toEqual([]);
  });

  test('a call on a connection that has ended throws', () => {
    const talk = new Conversation().connect().discard();
    talk.receive(mads.rej({ ...talk.ids, subject: 0, reason: 28 }));
    expect(() => talk.establish()).toThrow('has ended');
    talk.core.close(talk.id, talk.now);
  });

  test('disconnect of a connection that is disconnecting does nothing', () => {
    for (const way of ['active DREQ_SENT', 'active TIMEWAIT'] as const)
      expect(inState(way).disconnect().sent()).toEqual([]);
  });
});

group('close sends the message that fits the state of the connection', () => {
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
  ] as const)('%s', (way, sent, next) => {
    const talk = inState(way);
    talk.core.close(talk.id, talk.now);
    const names = talk.sent().map((m) => (m.name === 'REJ' ? `REJ ${m.reason}` : m.name));
    expect([names, talk.state]).toEqual([sent, next]);
    // no further event, and the connection is removed in the end
    talk.wait(200_000);
    expect(talk.events()).toEqual([]);
    expect(talk.core.size).toBe(0);
  });

  test('a REJ that closes a connection in REQ_SENT names our CA GUID', () => {
    const talk = inState('active REQ_SENT');
    talk.core.close(talk.id, talk.now);
    const rej = talk.sentOne('REJ');
    expect(rej).toMatchObject({ reason: 4, messageRejected: 2, infoLength: 8, localCommId: talk.id, remoteCommId: 0 });
    expect([...rej.info.subarray(0, 8)]).toEqual(mads.u64Bytes(OUR_GUID));
  });

  test('close of a connection whose peer disconnects at the same time sends a DREP', () => {
    const talk = inState('active ESTABLISHED');
    talk.core.close(talk.id, talk.now);
    talk.discard().dreq();
    talk.sentOne('DREP');
    expect([talk.state, talk.events()]).toEqual(['TIMEWAIT', []]);
  });

  test('closeAll closes every connection and exchange', () => {
    const talk = inState('active ESTABLISHED');
    talk.connect({ qpNum: 0x70, destination: { ...CONNECT.destination, port: 1 } });
    talk
      .receive(mads.req({ id: 5, qpn: 5 }))
      .receive(mads.sidrReq())
      .discard();
    talk.core.closeAll(talk.now);
    expect(talk.sent().map(({ name }) => name)).toEqual(['DREQ', 'REJ', 'REJ']);
  });
});

group('a peer that connects and disconnects without end loses its own oldest connections only', () => {
  const GUID = 0x0200_0000_0000_0000n;
  /** Connects, and lets one end disconnect. @returns the connection's id */
  const comeAndGo = (talk: Conversation, id: number, host: number, isOurs: boolean) => {
    const source = [10, 0, 0, host];
    talk.source = source.join('.');
    const patient = { ackTimeout: 31, localTimeout: 31 };
    talk.receive(mads.req({ id, qpn: id, guid: GUID | BigInt(host), from: source, ...patient }));
    const local = talk.event('CONNECT_REQUEST').id;
    talk.core.accept(local, ACCEPT, talk.now);
    const ids = { tid: mads.REQ.tid, id, remote: local };
    talk.receive(mads.rtu(ids));
    if (!isOurs) talk.receive(mads.dreq({ ...ids, qpn: ACCEPT.qpNum }));
    talk.core.disconnect(local, talk.now);
    if (isOurs) talk.core.close(local, talk.now);
    talk.discard();
    return local;
  };

  test.each([
    ['its DREQs are answered: TIMEWAIT', false, 'TIMEWAIT'],
    ['it does not answer ours: DREQ_SENT', true, 'DREQ_SENT'],
  ])('%s', (_, isOurs, state) => {
    const talk = new Conversation({ maxEndedConnections: 20 });
    const honest = comeAndGo(talk, 1, 7, isOurs);
    const first = comeAndGo(talk, 2, 8, isOurs);
    for (let id = 3; id < 30; id++) comeAndGo(talk, id, 8, isOurs);
    expect(talk.core.size).toBe(20);
    expect([honest, first].map((id) => talk.core.stateOf(id))).toEqual([state, undefined]);
    talk.wait(100_000);
    expect([talk.core.size, talk.core.nextDeadline()]).toEqual([0, Number.POSITIVE_INFINITY]);
  });
});
