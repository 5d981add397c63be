/** Datagram services: a question, an answer, and nothing afterwards. */
import { expect, describe as group, test } from 'vitest';
import * as mads from './mads.js';
import { Talk } from './talk.js';

const QKEY = 0x01234567;

function ask(talk: Talk): Talk {
  const source = { address: mads.OUR_ADDRESS, port: 50000 };
  const destination = { address: mads.PEER_ADDRESS, port: 7174 };
  talk.id = talk.core.resolveService({ source, destination, privateData: Uint8Array.of(1, 2) }, talk.now);
  return talk;
}

function listening(backlog = 10): Talk {
  const talk = new Talk();
  talk.core.listen({ space: 'UDP', port: 7174, transport: 'UD', backlog });
  return talk;
}

function asked(talk = listening()): Talk {
  talk.hear(mads.sidrReq({ privateData: [5] }));
  talk.id = talk.toldOne('CONNECT_REQUEST').id;
  return talk;
}

const accept = (talk: Talk) =>
  talk.core.acceptDatagrams(talk.id, { qpNum: 0x60, qkey: QKEY }, Uint8Array.of(9), talk.now);

group('who asks', () => {
  const answer = (talk: Talk, status: number) =>
    talk.hear(mads.sidrRep({ tid: 1n, id: talk.id, status, qpn: 0x55, qkey: QKEY, port: 7174, privateData: [3] }));

  test('hears queue pair and Q_Key', () => {
    const talk = ask(new Talk());
    const request = talk.saidOne('SIDR_REQ');
    expect(request).toMatchObject({ requestId: talk.id, pkey: 0xffff, serviceId: 0x0111_1c06n });
    expect([...request.privateData.subarray(36, 39)]).toEqual([1, 2, 0]);
    answer(talk, 0);
    const event = talk.toldOne('ESTABLISHED');
    expect(event).toMatchObject({ id: talk.id, datagram: { qpNum: 0x55, qkey: QKEY } });
    expect([event.privateData.length, event.privateData[0]]).toEqual([136, 3]);
    expect(talk.core.size).toBe(0);
    answer(talk, 0);
    expect(talk.told()).toEqual([]);
  });

  test('hears why not', () => {
    const talk = ask(new Talk());
    answer(talk, 1);
    expect(talk.toldOne('UNREACHABLE').status).toBe(1);
    expect(talk.core.size).toBe(0);
  });

  test('asks sixteen times, 4.1 s apart', () => {
    const talk = ask(new Talk());
    const first = talk.saidOne('SIDR_REQ');
    for (let i = 0; i < 15; i++) {
      expect(talk.untilDeadline()).toBe(4096);
      expect(talk.saidOne('SIDR_REQ')).toEqual(first);
    }
    talk.untilDeadline();
    expect(talk.toldOne('UNREACHABLE').status).toBe(0);
    expect(talk.core.size).toBe(0);
  });

  test('may lose interest', () => {
    const talk = ask(new Talk());
    talk.core.close(talk.id, talk.now);
    answer(talk, 0);
    expect([talk.told(), talk.core.size]).toEqual([[], 0]);
  });
});

group('who is asked', () => {
  test('answers with queue pair and Q_Key, and repeats it when the answer was lost', () => {
    const talk = listening();
    talk.hear(mads.sidrReq({ privateData: [5] }));
    const { request, id } = talk.toldOne('CONNECT_REQUEST');
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
    // asked again meanwhile: the program thinks about one request only
    talk.hear(mads.sidrReq({ privateData: [5] }));
    expect([talk.told(), talk.said()]).toEqual([[], []]);
    accept(talk);
    const reply = talk.saidOne('SIDR_REP');
    expect(reply).toMatchObject({
      tid: mads.SIDR_REQ.tid,
      requestId: mads.SIDR_REQ.id,
      status: 0,
      qpn: 0x60,
      qkey: QKEY,
      serviceId: 0x0111_1c06n,
    });
    expect(reply.privateData[0]).toBe(9);
    talk.wait(4096).hear(mads.sidrReq({ privateData: [5] }));
    expect(talk.saidOne('SIDR_REP')).toEqual(reply);
    talk.wait(10_000);
    expect([talk.core.size, talk.told()]).toEqual([0, []]);
  });

  test('refuses', () => {
    const talk = asked();
    talk.core.reject(talk.id, talk.now, Uint8Array.of(4));
    const reply = talk.saidOne('SIDR_REP');
    expect([reply.status, reply.privateData[0]]).toEqual([2, 4]);
  });

  test('answers once only', () => {
    const talk = asked();
    accept(talk);
    expect(() => accept(talk)).toThrow('was answered before');
    talk.wait(20_000);
    expect(() => accept(talk)).toThrow('not there any more');
  });

  test('may lose interest: that is a refusal', () => {
    const talk = asked();
    talk.core.close(talk.id, talk.now);
    expect(talk.saidOne('SIDR_REP').status).toBe(2);
  });

  test('two peers may use the same number', () => {
    const talk = asked();
    talk.core.receive(mads.sidrReq(), { local: mads.OUR_ADDRESS, remote: '10.0.0.3' }, talk.now);
    talk.toldOne('CONNECT_REQUEST');
  });

  test.each([
    ['nobody listens', { port: 1 }, 1],
    ['the service is one for connections', { space: 0x0106 }, 1],
    ['another version of the header', { hdrVersion: 1 }, 2],
    ['from a group', { from: [224, 0, 0, 1] }, 2],
  ])('%s', (_, changes, status) => {
    const talk = listening().hear(mads.sidrReq(changes));
    expect(talk.saidOne('SIDR_REP')).toMatchObject({ status, requestId: mads.SIDR_REQ.id });
    expect([talk.told(), talk.core.size]).toEqual([[], 0]);
  });

  test('more than the backlog are refused', () => {
    const talk = asked(listening(1));
    talk.hear(mads.sidrReq({ id: 2 }));
    expect(talk.saidOne('SIDR_REP').status).toBe(2);
    accept(talk);
    talk.quiet().hear(mads.sidrReq({ id: 3 }));
    talk.toldOne('CONNECT_REQUEST');
  });
});
