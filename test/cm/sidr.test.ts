/** Datagram services: SIDR_REQ and SIDR_REP. */
import { expect, describe as group, test } from 'vitest';
import { Conversation } from './conversation.js';
import * as mads from './mads.js';

const QKEY = 0x01234567;

function ask(talk: Conversation): Conversation {
  const source = { address: mads.OUR_ADDRESS, port: 50000 };
  const destination = { address: mads.PEER_ADDRESS, port: 7174 };
  talk.id = talk.core.resolveService({ source, destination, privateData: Uint8Array.of(1, 2) }, talk.now);
  return talk;
}

function listening(backlog = 10): Conversation {
  const talk = new Conversation();
  talk.core.listen({ space: 'UDP', port: 7174, transport: 'UD', backlog });
  return talk;
}

function asked(talk = listening()): Conversation {
  talk.receive(mads.sidrReq({ privateData: [5] }));
  talk.id = talk.event('CONNECT_REQUEST').id;
  return talk;
}

const accept = (talk: Conversation) =>
  talk.core.acceptService(talk.id, { qpNum: 0x60, qkey: QKEY }, Uint8Array.of(9), talk.now);

group('the client of a datagram service', () => {
  const answer = (talk: Conversation, status: number) =>
    talk.receive(mads.sidrRep({ tid: 1n, id: talk.id, status, qpn: 0x55, qkey: QKEY, port: 7174, privateData: [3] }));

  test('gets the queue pair and the Q_Key', () => {
    const talk = ask(new Conversation());
    const request = talk.sentOne('SIDR_REQ');
    expect(request).toMatchObject({ requestId: talk.id, pkey: 0xffff, serviceId: 0x0111_1c06n });
    expect([...request.privateData.subarray(36, 39)]).toEqual([1, 2, 0]);
    answer(talk, 0);
    const event = talk.event('ESTABLISHED');
    expect(event).toMatchObject({ id: talk.id, datagram: { qpNum: 0x55, qkey: QKEY } });
    expect([event.privateData.length, event.privateData[0]]).toEqual([136, 3]);
    expect(talk.core.size).toBe(0);
    answer(talk, 0);
    expect(talk.events()).toEqual([]);
  });

  test('ignores answers from other addresses', () => {
    const talk = ask(new Conversation());
    talk.source = '10.0.0.66';
    answer(talk, 0);
    expect(talk.events()).toEqual([]);
    talk.source = mads.PEER_ADDRESS;
    answer(talk, 0);
    talk.event('ESTABLISHED');
  });

  test('gets the status of a refusal', () => {
    const talk = ask(new Conversation());
    answer(talk, 1);
    expect(talk.event('UNREACHABLE').status).toBe(1);
    expect(talk.core.size).toBe(0);
  });

  test('repeats its request after 0.25 s, then ever later, at last 4.1 s apart, for 66 s', () => {
    const talk = ask(new Conversation());
    const first = talk.sentOne('SIDR_REQ');
    const start = talk.now;
    for (const wait of [250, 500, 1000, 2000, 4000, ...Array.from({ length: 14 }, () => 4096)]) {
      expect(talk.untilDeadline()).toBe(wait);
      expect(talk.sentOne('SIDR_REQ')).toEqual(first);
    }
    talk.untilDeadline();
    expect(talk.event('UNREACHABLE').status).toBe(0);
    expect(talk.now - start).toBe(16 * 4096);
    expect(talk.core.size).toBe(0);
  });

  test('may close its exchange before the answer', () => {
    const talk = ask(new Conversation());
    talk.core.close(talk.id, talk.now);
    answer(talk, 0);
    expect([talk.events(), talk.core.size]).toEqual([[], 0]);
  });
});

group('a datagram service', () => {
  test('answers with queue pair and Q_Key, and repeats the answer for a repeated request', () => {
    const talk = listening();
    talk.receive(mads.sidrReq({ privateData: [5] }));
    const { request, id } = talk.event('CONNECT_REQUEST');
    talk.id = id;
    expect(request).toMatchObject({
      space: 'UDP',
      transport: 'UD',
      source: { address: '10.0.0.2', port: 40001 },
      destination: { address: '10.0.0.1', port: 7174 },
      remoteGid: '::ffff:10.0.0.2',
      localGid: '::ffff:10.0.0.1',
    });
    expect([request.privateData.length, request.privateData[0]]).toEqual([180, 5]);
    // a duplicate meanwhile: the application sees one request only
    talk.receive(mads.sidrReq({ privateData: [5] }));
    expect([talk.events(), talk.sent()]).toEqual([[], []]);
    accept(talk);
    const reply = talk.sentOne('SIDR_REP');
    expect(reply).toMatchObject({
      tid: mads.SIDR_REQ.tid,
      requestId: mads.SIDR_REQ.id,
      status: 0,
      qpn: 0x60,
      qkey: QKEY,
      serviceId: 0x0111_1c06n,
    });
    expect(reply.privateData[0]).toBe(9);
    talk.wait(4096).receive(mads.sidrReq({ privateData: [5] }));
    expect(talk.sentOne('SIDR_REP')).toEqual(reply);
    talk.wait(10_000);
    expect([talk.core.size, talk.events()]).toEqual([0, []]);
  });

  test('refuses a request with a status', () => {
    const talk = asked();
    talk.core.reject(talk.id, talk.now, Uint8Array.of(4));
    const reply = talk.sentOne('SIDR_REP');
    expect([reply.status, reply.privateData[0]]).toEqual([2, 4]);
  });

  test('answers a request once', () => {
    const talk = asked();
    accept(talk);
    expect(() => accept(talk)).toThrow('has been answered already');
    talk.wait(20_000);
    expect(() => accept(talk)).toThrow('has ended');
  });

  test('refuses a request that the program closes', () => {
    const talk = asked();
    talk.core.close(talk.id, talk.now);
    expect(talk.sentOne('SIDR_REP').status).toBe(2);
  });

  test('keeps a bounded number of answered requests', () => {
    const talk = listening();
    for (let i = 0; i < 5000; i++) {
      const remote = `10.${i >> 8}.${i & 255}.9`;
      talk.core.receive(mads.sidrReq(), { local: mads.OUR_ADDRESS, remote }, talk.now);
      talk.id = talk.event('CONNECT_REQUEST').id;
      accept(talk);
      talk.sentOne('SIDR_REP');
    }
    expect(talk.core.size).toBe(4096);
    talk.wait(10_000);
    expect([talk.core.size, talk.core.nextDeadline()]).toEqual([0, Number.POSITIVE_INFINITY]);
  });

  test('tells apart the requests of two peers with the same id', () => {
    const talk = asked();
    talk.core.receive(mads.sidrReq(), { local: mads.OUR_ADDRESS, remote: '10.0.0.3' }, talk.now);
    talk.event('CONNECT_REQUEST');
  });

  test.each([
    ['nobody listens', { port: 1 }, 1],
    ['the service is one for connections', { space: 0x0106 }, 1],
    ['another version of the header', { hdrVersion: 1 }, 2],
    ['from a group', { from: [224, 0, 0, 1] }, 2],
  ])('%s', (_, changes, status) => {
    const talk = listening().receive(mads.sidrReq(changes));
    expect(talk.sentOne('SIDR_REP')).toMatchObject({ status, requestId: mads.SIDR_REQ.id });
    expect([talk.events(), talk.core.size]).toEqual([[], 0]);
  });

  test('refuses requests beyond the backlog', () => {
    const talk = asked(listening(1));
    talk.receive(mads.sidrReq({ id: 2 }));
    expect(talk.sentOne('SIDR_REP').status).toBe(2);
    accept(talk);
    talk.discard().receive(mads.sidrReq({ id: 3 }));
    talk.event('CONNECT_REQUEST');
  });

  test('makes room for another peer by refusing the oldest request of the peer that fills the backlog', () => {
    const talk = listening(8);
    const from = (remote: string, id: number) =>
      talk.core.receive(mads.sidrReq({ id }), { local: mads.OUR_ADDRESS, remote }, talk.now);
    for (let id = 1; id <= 8; id++) from(mads.PEER_ADDRESS, id);
    const [oldest] = talk.events();
    if (oldest?.type !== 'CONNECT_REQUEST') throw new Error('no request');
    from(mads.PEER_ADDRESS, 9);
    expect(talk.sentOne('SIDR_REP')).toMatchObject({ status: 2, requestId: 9 });
    from('10.0.0.3', 1);
    expect(talk.sentOne('SIDR_REP')).toMatchObject({ status: 2, requestId: 1 });
    const [rejected, request] = talk.events();
    expect(rejected).toMatchObject({ type: 'REJECTED', id: oldest.id });
    expect(request).toMatchObject({ type: 'CONNECT_REQUEST', request: { remoteGid: '::ffff:10.0.0.3' } });
    // the one with most keeps what is left, and gets no more of it
    from(mads.PEER_ADDRESS, 10);
    expect(talk.sentOne('SIDR_REP')).toMatchObject({ status: 2, requestId: 10 });
    talk.id = oldest.id;
    expect(() => accept(talk)).toThrow('has been answered already');
    // a repetition of the displaced one is answered from the record
    from(mads.PEER_ADDRESS, 1);
    expect(talk.sentOne('SIDR_REP')).toMatchObject({ status: 2, requestId: 1 });
    expect(talk.events()).toEqual([]);
  });

  test('counts repetitions of a waiting request once', () => {
    const talk = listening(2);
    for (let i = 0; i < 100; i++) talk.receive(mads.sidrReq({ id: 7 }));
    expect([talk.event('CONNECT_REQUEST').type, talk.sent(), talk.core.size]).toEqual(['CONNECT_REQUEST', [], 1]);
  });
});
