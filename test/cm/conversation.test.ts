/** Conversations of one core with a simulated peer, message by message. */
import { expect, describe as group, test } from 'vitest';
import { RejectReason } from '../../src/cm/core/reasons.js';
import { ACCEPT, Conversation, inState, OUR_GUID, OUR_QPN, PEER_ID } from './conversation.js';
import * as mads from './mads.js';

const bytes = (...of: number[]) => Uint8Array.from(of);

group('the active end', () => {
  test('REQ, REP and RTU establish a connection, DREQ and DREP end it, and timewait forgets it', () => {
    const talk = new Conversation().connect({ privateData: bytes(1, 2, 3) });
    const req = talk.sentOne('REQ');
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
    const { reply } = talk.event('CONNECT_RESPONSE');
    expect(reply).toMatchObject({ responderResources: 1, initiatorDepth: 3, rnrRetry: 5, qpNum: 0x50 });
    expect(reply.privateData[0]).toBe(9);
    expect(reply.attributes.rts).toMatchObject({ sqPsn: 0xdef, rnrRetry: 5, maxRdAtomic: 3, timeout: 17 });
    expect(talk.sent()).toEqual([]);

    talk.core.establish(talk.id, bytes(5), talk.now);
    const rtu = talk.sentOne('RTU');
    expect(rtu).toMatchObject({ tid: req.tid, localCommId: talk.id, remoteCommId: PEER_ID });
    expect(rtu.privateData[0]).toBe(5);
    expect(talk.core.nextDeadline()).toBe(Number.POSITIVE_INFINITY);

    talk.core.disconnect(talk.id, talk.now, bytes(6));
    const dreq = talk.sentOne('DREQ');
    expect(dreq).toMatchObject({ localCommId: talk.id, remoteCommId: PEER_ID, remoteQpn: 0x50 });
    expect(dreq.privateData[0]).toBe(6);
    talk.receive(mads.drep({ ...talk.ids, privateData: [8] }));
    const end = talk.event('DISCONNECTED');
    expect([end.timedOut, end.reason, end.privateData[0]]).toEqual([false, undefined, 8]);
    expect(talk.untilDeadline()).toBe(512);
    talk.event('TIMEWAIT_EXIT');
    expect(talk.core.size).toBe(0);
  });

  test('a REQ with hop limit 1 has LIDs 0 and is for the local subnet', () => {
    const { primary } = new Conversation().connect({ hopLimit: 1 }).sentOne('REQ');
    expect(primary).toMatchObject({ localLid: 0, remoteLid: 0, subnetLocal: 1, hopLimit: 1 });
  });

  test('a REQ carries UC, flow control, a shared receive queue and the packet life time', () => {
    const changes = {
      transport: 'UC',
      flowControl: true,
      srq: true,
      packetLifeTime: 13,
      trafficClass: 0x20,
      sl: 3,
    } as const;
    const req = new Conversation().connect(changes).sentOne('REQ');
    expect(req).toMatchObject({
      transport: 1,
      flowControl: 1,
      srq: 1,
      primary: { ackTimeout: 16, trafficClass: 0x20, sl: 3 },
    });
  });

  test('a REJ is reported with its reason, its information and its private data', () => {
    const talk = new Conversation().connect().discard();
    const rej = { ...talk.ids, id: 0, subject: 0, reason: 12, info: [1, 2], privateData: [3] };
    talk.receive(mads.rej(rej));
    const event = talk.event('REJECTED');
    expect([event.reason, [...event.info], event.privateData[0]]).toEqual([12, [1, 2], 3]);
    expect(event.privateData.length).toBe(148);
    expect(talk.core.size).toBe(0);
  });

  test('a REJ for a stale connection puts the queue pair into timewait', () => {
    const talk = new Conversation().connect().discard();
    talk.receive(mads.rej({ ...talk.ids, id: 0, subject: 0, reason: 10 }));
    expect(talk.event('REJECTED').reason).toBe(10);
    expect(talk.state).toBe('TIMEWAIT');
    expect(talk.untilDeadline()).toBe(512);
    talk.event('TIMEWAIT_EXIT');
  });

  test('an MRA prolongs the wait once for each REQ', () => {
    const talk = new Conversation().connect().discard();
    const mra = () => talk.receive(mads.mra({ ...talk.ids, subject: 0, timeout: 21 }));
    mra();
    expect(talk.core.nextDeadline() - talk.now).toBe(8192 + 512);
    talk.wait(5000);
    mra();
    expect(talk.core.nextDeadline() - talk.now).toBe(8192 + 512 - 5000);
    talk.untilDeadline();
    talk.sentOne('REQ');
    expect(talk.core.nextDeadline() - talk.now).toBe(500);
    mra();
    expect(talk.core.nextDeadline() - talk.now).toBe(8192 + 512);
    talk.reply();
    talk.event('CONNECT_RESPONSE');
    expect(talk.core.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });

  test('a REP that is repeated while the program decides gets an MRA of 4 s', () => {
    const talk = inState('active REP_RCVD').discard();
    talk.reply();
    expect(talk.sentOne('MRA')).toMatchObject({ remoteCommId: PEER_ID, messageMraed: 1, serviceTimeout: 20 });
    expect(talk.events()).toEqual([]);
  });

  test('the program may reject a REP', () => {
    const talk = inState('active REP_RCVD');
    talk.core.reject(talk.id, talk.now, bytes(4), RejectReason.CONSUMER_DEFINED);
    const rej = talk.sentOne('REJ');
    expect(rej).toMatchObject({ localCommId: talk.id, remoteCommId: PEER_ID, messageRejected: 1, reason: 28 });
    expect(talk.core.size).toBe(0);
    // a duplicate of the REP is rejected with another reason
    talk.reply();
    expect(talk.sentOne('REJ')).toMatchObject({ reason: 6, messageRejected: 1, remoteCommId: PEER_ID });
  });

  test('a REP that names the queue pair of another connection ends that connection', () => {
    const talk = inState('active ESTABLISHED');
    const first = talk.id;
    talk.connect({ qpNum: 0x61 }).discard();
    talk.reply({ id: 0x999 });
    const [rej, dreq] = talk.sent();
    expect(rej).toMatchObject({ name: 'REJ', reason: 10, messageRejected: 1, remoteCommId: 0x999 });
    expect(dreq).toMatchObject({ name: 'DREQ', localCommId: first });
    expect(talk.state).toBe('REQ_SENT');
    // the REQ is sent again after timewait of the first connection at both ends
    talk.receive(mads.drep({ ...talk.ids, remote: first }));
    expect(talk.events()).toMatchObject([{ type: 'DISCONNECTED', id: first, reason: 10 }]);
    expect(talk.untilDeadline()).toBe(512);
    expect(talk.events()).toMatchObject([{ type: 'TIMEWAIT_EXIT', id: first }]);
    expect(talk.untilDeadline()).toBe(512);
    talk.sentOne('REQ');
    talk.reply({ id: 0x999 });
    talk.event('CONNECT_RESPONSE');
  });
});

group('the passive end', () => {
  test('a request is accepted and established, and its peer disconnects', () => {
    const talk = new Conversation();
    talk.receive(mads.req({ privateData: [1, 2], mtu: 4, srq: 0 } as Partial<mads.ReqFields>));
    const { id, listener, request } = talk.event('CONNECT_REQUEST');
    talk.id = id;
    expect(listener).toBe(talk.listener);
    expect(request).toMatchObject({
      space: 'TCP',
      transport: 'RC',
      source: { address: '10.0.0.2', port: 40000 },
      destination: { address: '10.0.0.1', port: 7174 },
      // the server's view: the server serves what the client has outstanding
      responderResources: 2,
      initiatorDepth: 4,
      retryCnt: 7,
      rnrRetry: 6,
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
    expect(talk.sent()).toEqual([]);
    talk.accept({ privateData: bytes(7) });
    const rep = talk.sentOne('REP');
    expect(rep).toMatchObject({
      tid: mads.REQ.tid,
      localCommId: id,
      remoteCommId: PEER_ID,
      localQpn: OUR_QPN,
      startingPsn: 0x456,
      responderResources: 2,
      initiatorDepth: 4,
      targetAckDelay: 15,
      rnrRetry: 7,
      localCaGuid: OUR_GUID,
    });
    expect(rep.privateData[0]).toBe(7);
    talk.receive(mads.rtu({ ...talk.ids, privateData: [8] }));
    expect(talk.event('ESTABLISHED').privateData[0]).toBe(8);
    expect(talk.core.nextDeadline()).toBe(Number.POSITIVE_INFINITY);

    talk.receive(mads.dreq({ ...talk.ids, tid: 77n, qpn: OUR_QPN, privateData: [9] }));
    expect(talk.event('DISCONNECTED').privateData[0]).toBe(9);
    expect(talk.sent()).toEqual([]);
    talk.core.disconnect(id, talk.now, bytes(3));
    const drep = talk.sentOne('DREP');
    expect(drep).toMatchObject({ tid: 77n, localCommId: id, remoteCommId: PEER_ID });
    expect(drep.privateData[0]).toBe(3);
    expect(talk.untilDeadline()).toBe(512);
    talk.event('TIMEWAIT_EXIT');
    expect(talk.core.size).toBe(0);
  });

  test('ECE options of a client are reported, and those of the server sent in the REP', () => {
    const ece = { vendorId: 0x0102c9, options: 0x3000_0001 };
    const talk = new Conversation();
    const req = mads.req();
    req.set([0x30, 0, 0, 1], 20);
    req.set([0x01, 0x02, 0xc9], 24 + 5);
    talk.receive(req);
    const { id, request } = talk.event('CONNECT_REQUEST');
    talk.id = id;
    expect(request.ece).toEqual(ece);
    talk.core.accept(id, { ...ACCEPT, ece }, talk.now);
    const [{ bytes: rep } = { bytes: new Uint8Array() }] = talk.core.takeMessages();
    expect([...rep.subarray(20, 24)]).toEqual([0x30, 0, 0, 1]);
    expect([rep[24 + 15], rep[24 + 19], rep[24 + 23]]).toEqual([0x01, 0x02, 0xc9]);
    const client = new Conversation().connect({ ece });
    expect(client.sentOne('REQ')).toMatchObject({ vendorId: 0x0102c9, modifier: 0x3000_0001 });
    const reply = mads.rep({ ...client.ids });
    for (const [at, byte] of [
      [20, 0x30],
      [23, 1],
      [24 + 15, 0x01],
      [24 + 19, 0x02],
      [24 + 23, 0xc9],
    ] as const)
      reply[at] = byte;
    expect(client.receive(reply).event('CONNECT_RESPONSE').reply.ece).toEqual(ece);
    expect(new Conversation().connect().reply().discard().connect().sentOne('REQ')).toMatchObject({
      vendorId: 0,
      modifier: 0,
    });
  });

  test.each([
    ['no alternate path', 0, 0],
    ['an alternate path, which we do not fail over to', 10, 1],
  ])('%s', (_, lastByte, failoverAccepted) => {
    const talk = new Conversation();
    const req = mads.req();
    req[24 + 115] = lastByte;
    talk.receive(req);
    talk.id = talk.event('CONNECT_REQUEST').id;
    expect(talk.accept().sentOne('REP').failoverAccepted).toBe(failoverAccepted);
  });

  test('a REQ that is repeated while the program decides gets an MRA, and is no second request', () => {
    const talk = new Conversation().request().discard();
    talk.receive(mads.req());
    expect(talk.sentOne('MRA')).toMatchObject({
      tid: mads.REQ.tid,
      localCommId: talk.id,
      remoteCommId: PEER_ID,
      messageMraed: 0,
      serviceTimeout: 24,
    });
    expect(talk.events()).toEqual([]);
  });

  test('a repeated REQ gets the same REJ, until no more can come', () => {
    const talk = new Conversation().request().discard();
    talk.core.reject(talk.id, talk.now, bytes(5), 27, bytes(1));
    const first = talk.sentOne('REJ');
    expect(first).toMatchObject({
      messageRejected: 0,
      reason: 27,
      infoLength: 1,
      remoteCommId: PEER_ID,
      tid: mads.REQ.tid,
    });
    expect(first.privateData[0]).toBe(5);
    talk.wait(4000).receive(mads.req());
    expect(talk.sentOne('REJ')).toEqual(first);
    talk.wait(20_000);
    expect(talk.core.size).toBe(0);
    expect(talk.events()).toEqual([]);
  });

  test('a queue pair whose request was refused may ask again at once', () => {
    const talk = new Conversation().request().discard().reject().discard();
    talk.receive(mads.req({ id: 0x999 }));
    talk.event('CONNECT_REQUEST');
  });

  test('data stands for an RTU that is late', () => {
    const talk = inState('passive REP_SENT');
    talk.core.communicationEstablished(talk.id, talk.now);
    talk.event('ESTABLISHED');
    expect(talk.state).toBe('ESTABLISHED');
    talk.rtu();
    talk.core.communicationEstablished(talk.id, talk.now);
    expect(talk.events()).toEqual([]);
    expect(talk.core.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });

  test('a REP is repeated although an MRA came, as the RTU may be lost', () => {
    const talk = inState('passive REP_SENT');
    talk.receive(mads.mra({ ...talk.ids, subject: 1, timeout: 24 }));
    expect(talk.untilDeadline()).toBe(250);
    talk.sentOne('REP');
    talk.rtu();
    talk.event('ESTABLISHED');
  });

  test('a UC request needs a listener for UC', () => {
    const talk = new Conversation({ transport: 'UC' });
    talk.receive(mads.req());
    expect(talk.sentOne('REJ').reason).toBe(RejectReason.INVALID_TRANSPORT_TYPE);
    expect(talk.request({ id: 0x999, transport: 1 }).state).toBe('REQ_RCVD');
  });
});

group('a peer that has started anew', () => {
  test('a REQ with the queue pair of an old connection is refused, and the old connection ends', () => {
    const talk = inState('passive ESTABLISHED');
    const old = talk.id;
    talk.receive(mads.req({ id: 0x999 }));
    const [rej, dreq] = talk.sent();
    expect(rej).toMatchObject({ name: 'REJ', reason: 10, remoteCommId: 0x999 });
    expect(dreq).toMatchObject({ name: 'DREQ', localCommId: old, remoteCommId: PEER_ID });
    // the peer does not know that connection
    talk.drep();
    expect(talk.event('DISCONNECTED').reason).toBe(RejectReason.STALE_CONNECTION);
    // within timewait it is rejected again
    talk.receive(mads.req({ id: 0x99a }));
    expect(talk.sentOne('REJ').reason).toBe(10);
    talk.wait(600).discard();
    talk.receive(mads.req({ id: 0x99b }));
    talk.event('CONNECT_REQUEST');
  });

  test('a REQ from the queue pair of a connection that waits for its DREP ends that wait', () => {
    const talk = inState('passive DREQ_SENT');
    talk.receive(mads.req({ id: 0x999 }));
    expect(talk.sentOne('REJ').reason).toBe(RejectReason.STALE_CONNECTION);
    const { timedOut, reason } = talk.event('DISCONNECTED');
    expect([timedOut, reason, talk.state]).toEqual([false, undefined, 'TIMEWAIT']);
    talk
      .wait(512)
      .discard()
      .receive(mads.req({ id: 0x99a }));
    talk.event('CONNECT_REQUEST');
  });

  test('a REQ with another queue pair has no effect on earlier connections', () => {
    const talk = inState('passive ESTABLISHED');
    talk.receive(mads.req({ id: 0x999, qpn: 0x41 }));
    talk.event('CONNECT_REQUEST');
  });

  test('a REQ with another CA GUID is one of another peer', () => {
    const talk = inState('passive ESTABLISHED');
    talk.receive(mads.req({ guid: 0x0200_00ff_fe00_0003n }));
    talk.event('CONNECT_REQUEST');
  });

  test('a new REQ of a restarted peer ends its request that waits for the program or for its RTU', () => {
    for (const way of ['passive REQ_RCVD', 'passive REP_SENT'] as const) {
      const talk = inState(way);
      talk.receive(mads.req({ id: 0x999 }));
      expect(talk.sentOne('REJ').reason).toBe(10);
      expect(talk.event('REJECTED').reason).toBe(10);
      talk.receive(mads.req({ id: 0x99a }));
      talk.event('CONNECT_REQUEST');
    }
  });
});

test('one core connects with itself', () => {
  const talk = new Conversation();
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

test('messages are counted by name, and dropped datagrams by their reason', () => {
  const talk = new Conversation().request();
  talk.receive(mads.req()).receive(new Uint8Array(255)).rtu();
  expect(talk.core.counters()).toMatchObject({
    'cm_rx_msgs.req': 2,
    'cm_rx_duplicates.req': 1,
    'cm_tx_msgs.mra': 1,
    'cm_rx_msgs.rtu': 1,
    'cm_ignored.rtu': 1,
    cm_drop_length: 1,
  });
});

test('receive returns whether a message has changed a connection: a repetition has not', () => {
  const talk = new Conversation();
  const changes = (...messages: readonly Uint8Array[]) => messages.map((bytes) => talk.receive(bytes).hasChanged);
  expect(changes(mads.req({ port: 7175 }), new Uint8Array(255))).toEqual([false, false]);
  talk.request();
  expect([talk.hasChanged, ...changes(mads.req())]).toEqual([true, false]);
  talk.accept();
  expect(changes(mads.req(), mads.rtu(talk.ids), mads.rtu(talk.ids), mads.req())).toEqual([false, true, false, false]);
  const dreq = mads.dreq({ ...talk.ids, qpn: OUR_QPN });
  expect(changes(dreq, dreq)).toEqual([true, false]);
  talk.disconnect();
  expect(changes(dreq, mads.req())).toEqual([false, false]);
});
