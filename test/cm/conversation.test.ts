/** Conversations of one core with a peer that the test plays, message by message. */
import { expect, describe as group, test } from 'vitest';
import { RejectReason } from '../../src/cm/reasons.js';
import * as mads from './mads.js';
import { ACCEPT, inState, OUR_GUID, OUR_QPN, PEER_ID, Talk } from './talk.js';

const bytes = (...of: number[]) => Uint8Array.from(of);

group('the active end', () => {
  test('REQ, REP, RTU; then DREQ, DREP, and after a while it is forgotten', () => {
    const talk = new Talk().connect({ privateData: bytes(1, 2, 3) });
    const req = talk.saidOne('REQ');
    expect(req).toMatchObject({
      localCommId: talk.id,
      serviceId: 0x0106_1c06n,
      localCaGuid: OUR_GUID,
      localQpn: OUR_QPN,
      responderResources: 8,
      initiatorDepth: 6,
      startingPsn: 0x123,
      remoteResponseTimeout: 20,
      localResponseTimeout: 20,
      maxCmRetries: 15,
      pathMtu: 3,
      pkey: 0xffff,
    });
    expect(req.primary).toMatchObject({
      localLid: 0xffff,
      flowLabel: (50000 * 31 + 7174) & 0xfffff,
      ackTimeout: 17,
      hopLimit: 64,
      subnetLocal: 0,
    });
    expect([...req.privateData.subarray(36, 40)]).toEqual([1, 2, 3, 0]);

    talk.reply({ privateData: [9] });
    const { reply } = talk.toldOne('CONNECT_RESPONSE');
    expect(reply).toMatchObject({ responderResources: 1, initiatorDepth: 3, rnrRetryCount: 5, qpNum: 0x50 });
    expect(reply.privateData[0]).toBe(9);
    expect(reply.attributes.rts).toMatchObject({ sqPsn: 0xdef, rnrRetry: 5, maxRdAtomic: 3, timeout: 17 });
    expect(talk.said()).toEqual([]);

    talk.core.establish(talk.id, bytes(5), talk.now);
    const rtu = talk.saidOne('RTU');
    expect(rtu).toMatchObject({ tid: req.tid, localCommId: talk.id, remoteCommId: PEER_ID });
    expect(rtu.privateData[0]).toBe(5);
    expect(talk.core.nextDeadline()).toBe(Number.POSITIVE_INFINITY);

    talk.core.disconnect(talk.id, talk.now, bytes(6));
    const dreq = talk.saidOne('DREQ');
    expect(dreq).toMatchObject({ localCommId: talk.id, remoteCommId: PEER_ID, remoteQpn: 0x50 });
    expect(dreq.privateData[0]).toBe(6);
    talk.hear(mads.drep({ ...talk.ids, privateData: [8] }));
    const end = talk.toldOne('DISCONNECTED');
    expect([end.timedOut, end.reason, end.privateData[0]]).toEqual([false, undefined, 8]);
    expect(talk.untilDeadline()).toBe(512);
    talk.toldOne('TIMEWAIT_EXIT');
    expect(talk.core.size).toBe(0);
  });

  test('a REQ to the same subnet only has no LIDs and says so', () => {
    const { primary } = new Talk().connect({ hopLimit: 1 }).saidOne('REQ');
    expect(primary).toMatchObject({ localLid: 0, remoteLid: 0, subnetLocal: 1, hopLimit: 1 });
  });

  test('UC, flow control, shared receive queue, packet life time', () => {
    const changes = { transport: 'UC', flowControl: true, srq: true, packetLifeTime: 13, trafficClass: 0x20 } as const;
    const req = new Talk().connect(changes).saidOne('REQ');
    expect(req).toMatchObject({
      transport: 1,
      flowControl: 1,
      srq: 1,
      primary: { ackTimeout: 16, trafficClass: 0x20 },
    });
  });

  test('refused: the reason, its information and the private data are told', () => {
    const talk = new Talk().connect().quiet();
    const rej = { ...talk.ids, id: 0, subject: 0, reason: 12, info: [1, 2], privateData: [3] };
    talk.hear(mads.rej(rej));
    const event = talk.toldOne('REJECTED');
    expect([event.reason, [...event.info], event.privateData[0]]).toEqual([12, [1, 2], 3]);
    expect(event.privateData.length).toBe(148);
    expect(talk.core.size).toBe(0);
  });

  test('refused as stale: the queue pair rests before another may use it', () => {
    const talk = new Talk().connect().quiet();
    talk.hear(mads.rej({ ...talk.ids, id: 0, subject: 0, reason: 10 }));
    expect(talk.toldOne('REJECTED').reason).toBe(10);
    expect(talk.state).toBe('TIMEWAIT');
    expect(talk.untilDeadline()).toBe(512);
    talk.toldOne('TIMEWAIT_EXIT');
  });

  test('MRA: more time, once for each REQ', () => {
    const talk = new Talk().connect().quiet();
    const mra = () => talk.hear(mads.mra({ ...talk.ids, subject: 0, timeout: 21 }));
    mra();
    expect(talk.core.nextDeadline() - talk.now).toBe(8192 + 512);
    talk.wait(5000);
    mra();
    expect(talk.core.nextDeadline() - talk.now).toBe(8192 + 512 - 5000);
    talk.untilDeadline();
    talk.saidOne('REQ');
    expect(talk.core.nextDeadline() - talk.now).toBe(4608);
    mra();
    expect(talk.core.nextDeadline() - talk.now).toBe(8192 + 512);
    talk.reply();
    talk.toldOne('CONNECT_RESPONSE');
    expect(talk.core.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });

  test('the program may go back on a reply', () => {
    const talk = inState('active REP_RCVD');
    talk.core.reject(talk.id, talk.now, bytes(4), RejectReason.CONSUMER_DEFINED);
    const rej = talk.saidOne('REJ');
    expect(rej).toMatchObject({ localCommId: talk.id, remoteCommId: PEER_ID, messageRejected: 1, reason: 28 });
    expect(talk.core.size).toBe(0);
    // the REP comes once more: it is refused for good
    talk.reply();
    expect(talk.saidOne('REJ')).toMatchObject({ reason: 6, messageRejected: 1, remoteCommId: PEER_ID });
  });

  test('a REP whose queue pair we know from a connection ends that one', () => {
    const talk = inState('active ESTABLISHED');
    const first = talk.id;
    talk.connect({ qpNum: 0x61 }).quiet();
    talk.reply({ id: 0x999 });
    const [rej, dreq] = talk.said();
    expect(rej).toMatchObject({ name: 'REJ', reason: 10, messageRejected: 1, remoteCommId: 0x999 });
    expect(dreq).toMatchObject({ name: 'DREQ', localCommId: first });
    expect(talk.state).toBe('REQ_SENT');
    // asked again, not before both ends may have forgotten the first
    talk.hear(mads.drep({ ...talk.ids, remote: first }));
    expect(talk.told()).toMatchObject([{ type: 'DISCONNECTED', id: first, reason: 10 }]);
    expect(talk.untilDeadline()).toBe(512);
    expect(talk.told()).toMatchObject([{ type: 'TIMEWAIT_EXIT', id: first }]);
    expect(talk.untilDeadline()).toBe(512);
    talk.saidOne('REQ');
    talk.reply({ id: 0x999 });
    talk.toldOne('CONNECT_RESPONSE');
  });
});

group('the passive end', () => {
  test('request, REP, RTU; then the peer disconnects', () => {
    const talk = new Talk();
    talk.hear(mads.req({ privateData: [1, 2], mtu: 4, srq: 0 } as Partial<mads.ReqFields>));
    const { id, listener, request } = talk.toldOne('CONNECT_REQUEST');
    talk.id = id;
    expect(listener).toBe(talk.listener);
    expect(request).toMatchObject({
      space: 'TCP',
      transport: 'RC',
      source: { address: '10.0.0.2', port: 40000 },
      destination: { address: '10.0.0.1', port: 7174 },
      // the server's view: what the client will ask for is what the server shall serve
      responderResources: 2,
      initiatorDepth: 4,
      retryCount: 7,
      rnrRetryCount: 6,
      qpNum: 0x40,
      pathMtu: 2048,
      flowControl: false,
      srq: false,
    });
    expect(request.privateData.length).toBe(56);
    expect([...request.privateData.subarray(0, 3)]).toEqual([1, 2, 0]);

    const attributes = talk.core.prepareAccept(id, ACCEPT);
    expect(attributes.rtr).toMatchObject({ destQpNum: 0x40, rqPsn: 0x456, pathMtu: 2048, maxDestRdAtomic: 2 });
    expect(attributes.rts).toMatchObject({ sqPsn: 0xabc, maxRdAtomic: 4, rnrRetry: 6 });
    expect(talk.said()).toEqual([]);
    talk.accept({ privateData: bytes(7) });
    const rep = talk.saidOne('REP');
    expect(rep).toMatchObject({
      tid: mads.REQ.tid,
      localCommId: id,
      remoteCommId: PEER_ID,
      localQpn: OUR_QPN,
      startingPsn: 0x456,
      responderResources: 2,
      initiatorDepth: 4,
      targetAckDelay: 15,
      rnrRetryCount: 7,
      localCaGuid: OUR_GUID,
    });
    expect(rep.privateData[0]).toBe(7);
    talk.hear(mads.rtu({ ...talk.ids, privateData: [8] }));
    expect(talk.toldOne('ESTABLISHED').privateData[0]).toBe(8);
    expect(talk.core.nextDeadline()).toBe(Number.POSITIVE_INFINITY);

    talk.hear(mads.dreq({ ...talk.ids, tid: 77n, qpn: OUR_QPN, privateData: [9] }));
    expect(talk.toldOne('DISCONNECTED').privateData[0]).toBe(9);
    expect(talk.said()).toEqual([]);
    talk.core.disconnect(id, talk.now, bytes(3));
    const drep = talk.saidOne('DREP');
    expect(drep).toMatchObject({ tid: 77n, localCommId: id, remoteCommId: PEER_ID });
    expect(drep.privateData[0]).toBe(3);
    expect(talk.untilDeadline()).toBe(512);
    talk.toldOne('TIMEWAIT_EXIT');
    expect(talk.core.size).toBe(0);
  });

  test('the peer asks again while the program thinks: MRA, and no second request', () => {
    const talk = new Talk().request().quiet();
    talk.hear(mads.req());
    expect(talk.saidOne('MRA')).toMatchObject({
      tid: mads.REQ.tid,
      localCommId: talk.id,
      remoteCommId: PEER_ID,
      messageMraed: 0,
      serviceTimeout: 24,
    });
    expect(talk.told()).toEqual([]);
  });

  test('refused by the program: the same word for a REQ that comes again, until it cannot come any more', () => {
    const talk = new Talk().request().quiet();
    talk.core.reject(talk.id, talk.now, bytes(5), 27, bytes(1));
    const first = talk.saidOne('REJ');
    expect(first).toMatchObject({
      messageRejected: 0,
      reason: 27,
      infoLength: 1,
      remoteCommId: PEER_ID,
      tid: mads.REQ.tid,
    });
    expect(first.privateData[0]).toBe(5);
    talk.wait(4000).hear(mads.req());
    expect(talk.saidOne('REJ')).toEqual(first);
    talk.wait(20_000);
    expect(talk.core.size).toBe(0);
    expect(talk.told()).toEqual([]);
  });

  test('refused, the same queue pair may ask anew at once', () => {
    const talk = new Talk().request().quiet().reject().quiet();
    talk.hear(mads.req({ id: 0x999 }));
    talk.toldOne('CONNECT_REQUEST');
  });

  test('data stands for an RTU that is late', () => {
    const talk = inState('passive REP_SENT');
    talk.core.communicationEstablished(talk.id, talk.now);
    talk.toldOne('ESTABLISHED');
    expect(talk.state).toBe('ESTABLISHED');
    talk.rtu();
    talk.core.communicationEstablished(talk.id, talk.now);
    expect(talk.told()).toEqual([]);
    expect(talk.core.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });

  test('MRA to the REP: more time', () => {
    const talk = inState('passive REP_SENT');
    talk.hear(mads.mra({ ...talk.ids, subject: 1, timeout: 24 }));
    expect(talk.core.nextDeadline() - talk.now).toBe(65536 + 512);
    talk.rtu();
    talk.toldOne('ESTABLISHED');
  });

  test('UC is for listeners of UC', () => {
    const talk = new Talk({ transport: 'UC' });
    talk.hear(mads.req());
    expect(talk.saidOne('REJ').reason).toBe(RejectReason.INVALID_TRANSPORT_TYPE);
    expect(talk.request({ id: 0x999, transport: 1 }).state).toBe('REQ_RCVD');
  });
});

group('a peer that has started anew', () => {
  test('asks with a queue pair of an old connection: refused, and the old one is ended', () => {
    const talk = inState('passive ESTABLISHED');
    const old = talk.id;
    talk.hear(mads.req({ id: 0x999 }));
    const [rej, dreq] = talk.said();
    expect(rej).toMatchObject({ name: 'REJ', reason: 10, remoteCommId: 0x999 });
    expect(dreq).toMatchObject({ name: 'DREQ', localCommId: old, remoteCommId: PEER_ID });
    // it does not know of that one
    talk.drep();
    expect(talk.toldOne('DISCONNECTED').reason).toBe(RejectReason.STALE_CONNECTION);
    // within timewait it is refused once more
    talk.hear(mads.req({ id: 0x99a }));
    expect(talk.saidOne('REJ').reason).toBe(10);
    talk.wait(600).quiet();
    talk.hear(mads.req({ id: 0x99b }));
    talk.toldOne('CONNECT_REQUEST');
  });

  test('asks while our farewell waits for its answer, which will not come: that is the answer', () => {
    const talk = inState('passive DREQ_SENT');
    talk.hear(mads.req({ id: 0x999 }));
    expect(talk.saidOne('REJ').reason).toBe(RejectReason.STALE_CONNECTION);
    const { timedOut, reason } = talk.toldOne('DISCONNECTED');
    expect([timedOut, reason, talk.state]).toEqual([false, undefined, 'TIMEWAIT']);
    talk
      .wait(512)
      .quiet()
      .hear(mads.req({ id: 0x99a }));
    talk.toldOne('CONNECT_REQUEST');
  });

  test('asks with another queue pair: nothing is known against it', () => {
    const talk = inState('passive ESTABLISHED');
    talk.hear(mads.req({ id: 0x999, qpn: 0x41 }));
    talk.toldOne('CONNECT_REQUEST');
  });

  test('with another GUID it is another peer', () => {
    const talk = inState('passive ESTABLISHED');
    talk.hear(mads.req({ guid: 0x0200_00ff_fe00_0003n }));
    talk.toldOne('CONNECT_REQUEST');
  });

  test('while its REQ waits for the program, or for its RTU: the program hears that it is gone', () => {
    for (const way of ['passive REQ_RCVD', 'passive REP_SENT'] as const) {
      const talk = inState(way);
      talk.hear(mads.req({ id: 0x999 }));
      expect(talk.saidOne('REJ').reason).toBe(10);
      expect(talk.toldOne('REJECTED').reason).toBe(10);
      talk.hear(mads.req({ id: 0x99a }));
      talk.toldOne('CONNECT_REQUEST');
    }
  });
});

test('both ends in one core: a connection with itself', () => {
  const talk = new Talk();
  talk.connect({ destination: { address: mads.OUR_ADDRESS, port: 7174 } });
  const pass = () => {
    for (const { bytes: mad, local, remote } of talk.core.takeMessages())
      talk.core.receive(mad, { local: remote, remote: local }, talk.now);
    return talk.core.takeEvents();
  };
  const [request] = pass();
  expect(request?.type).toBe('CONNECT_REQUEST');
  const server = request?.id as number;
  talk.core.accept(server, { ...ACCEPT, qpNum: 0x61 }, talk.now);
  expect(pass().map(({ type, id }) => [type, id])).toEqual([['CONNECT_RESPONSE', talk.id]]);
  talk.establish();
  expect(pass().map(({ type, id }) => [type, id])).toEqual([['ESTABLISHED', server]]);
  talk.disconnect();
  expect(pass().map(({ type, id }) => [type, id])).toEqual([['DISCONNECTED', server]]);
  talk.core.disconnect(server, talk.now);
  expect(pass().map(({ type, id }) => [type, id])).toEqual([['DISCONNECTED', talk.id]]);
  talk.wait(1000);
  expect(talk.core.size).toBe(0);
});

test('messages are counted by name, and what is dropped by its reason', () => {
  const talk = new Talk().request();
  talk.hear(mads.req()).hear(new Uint8Array(255)).rtu();
  expect(talk.core.counters()).toMatchObject({
    'cm_rx_msgs.req': 2,
    'cm_rx_duplicates.req': 1,
    'cm_tx_msgs.mra': 1,
    'cm_rx_msgs.rtu': 1,
    'cm_ignored.rtu': 1,
    cm_drop_length: 1,
  });
});
