/**
 * The connection manager of the peer that is wrong on purpose: it accepts all requests of one service, in virtual time,
 * with bugs that can be switched on one by one. It shares nothing with our own manager.
 */
import type { CmPeer, CmQueue, CmWay } from '../../../src/probe/checks/target.js';
import { decode } from '../../../src/probe/packet/decode.js';
import {
  decodeMad,
  encodeMad,
  GSI_QKEY,
  gidOf,
  type Mad,
  type MadFields,
  type MadHeader,
  type MadName,
  Method,
} from '../../../src/probe/packet/mad.js';
import {
  ack,
  datagram,
  encodeFrame,
  type Flow,
  flowOf,
  type Packet,
  reverse,
} from '../../../src/probe/packet/packets.js';
import type { Arrival, PacketPort } from '../../../src/probe/script/port.js';
import { Random } from '../../kit/random.js';

/** The bugs, and what each of them does. */
export const MANAGER_BUGS = {
  repTransaction: 'a REP has another transaction id than its REQ',
  repRemoteId: 'a REP has another remote communication id than its REQ',
  repFailover: 'the failover code of REPs is reserved',
  repQueue: 'the queue pair number of REPs is 0xFFFFFF',
  repGuid: 'the CA GUID of REPs is 0',
  repDepth: 'the initiator depth of REPs is 16 whatever the REQ offers',
  duplicateReqSilent: 'a REQ that comes again is dropped',
  duplicateReqNew: 'a REQ that comes again is a new request',
  repOnce: 'REPs are not repeated',
  repForEver: 'REPs are repeated without end',
  repEarly: 'REPs are repeated after 10 ms',
  rtuLateIgnored: 'an RTU after a repetition is ignored',
  rtuRefused: 'an RTU that comes again is refused',
  dataIgnored: 'data does not stand for the RTU',
  dataRefused: 'data before the RTU is dropped',
  mraIgnored: 'an MRA does not put off the end',
  unknownServiceSilent: 'a REQ for an unknown service is dropped',
  unknownServiceReason: 'the reason for an unknown service is 28',
  unknownServiceIds: 'the REJ for an unknown service has another communication id',
  transportAccepted: 'the transport of a REQ is not looked at',
  transportReason: 'the reason for another transport is 28',
  addressAccepted: 'the GID of a REQ is not looked at',
  mtuAccepted: 'the path MTU of a REQ is not looked at',
  mtuReason: 'the reason for an invalid path MTU is 28',
  privateDataAccepted: 'the header of private data is not looked at',
  baseVersionAccepted: 'the base version is not looked at',
  classVersionAccepted: 'the class version is not looked at',
  methodAccepted: 'the method is not looked at',
  sidrAccepted: 'the status for an unknown datagram service is 0',
  sidrId: 'the SIDR_REP has another request id',
  infoNone: 'a Get of ClassPortInfo has a status',
  infoVersion: 'ClassPortInfo has class version 1',
  dreqSilent: 'DREQs are dropped',
  drepTransaction: 'a DREP has another transaction id than its DREQ',
  dreqOnce: 'a DREQ that comes again is dropped',
  unknownDreqRefused: 'a DREQ of no connection is refused',
  dreqQueueIgnored: 'the queue pair number of a DREQ is not looked at',
  staleAccepted: 'a REQ whose queue pair is connected is accepted',
  staleReason: 'the reason for a stale connection is 28',
  rejIgnored: 'a REJ of the REP is ignored',
  ackAfterDrep: 'the queue pair goes on after the DREP',
  psnCounts: 'starting PSNs count up',
  psnSteps: 'starting PSNs count up by random steps of 16 bits',
  psnShort: 'starting PSNs have 16 random bits',
  queueTwice: 'all connections have the same queue pair number',
  idTwice: 'all connections have the same communication id',
  queueKeyUnchecked: 'the queue key of datagrams is not looked at',
  madShort: 'its datagrams lack four bytes',
  gidDeaf: 'datagrams to its second address are dropped',
  gidElsewhere: 'it answers from its first address whichever was asked',
  madKey: 'its datagrams have another queue key',
} as const;

export type ManagerBug = keyof typeof MANAGER_BUGS;

const MTU = 1024;
const SERVICE = 0x0106_1d30n;
const MS = 1e6;
/** The second address. */
const SECOND = '10.0.0.9';
const GUID = 0x0002_c900_0001_0203n;
const [CONSUMER, TIMEOUT] = [28, 4];
const times = (code: number) => 4096 * 2 ** code;

interface Connection {
  readonly req: MadFields<'REQ'>;
  readonly tid: bigint;
  readonly id: number;
  readonly qpn: number;
  readonly rep: Uint8Array;
  state: 'replied' | 'ready' | 'ended';
  repeatAt: number;
  repeated: number;
  giveUpAt: number;
}

export class DoubleManager implements CmPeer {
  readonly service = SERVICE;
  readonly unknownService = SERVICE + 1n;
  readonly start = 'the double';
  readonly port: ManagerPort;
  readonly #connections: Connection[] = [];
  readonly #random = new Random(11);
  /** Its addresses, and the way back to who has sent the last message. */
  readonly ways: readonly CmWay[];
  #back: Flow;
  #queues = 0x700;
  #psn = 5;

  constructor(
    /** Has the clock. */
    readonly peer: { now: number },
    readonly bug?: string,
  ) {
    const first = flowOf({ srcQp: 1, destQp: 1 });
    this.port = new ManagerPort(this, first);
    this.#back = reverse(first);
    const [from, second] = [first.srcIp, { ...first, dstIp: SECOND }];
    this.ways = [first, second].map((way) => ({ from, to: way.dstIp, flow: async () => way }));
  }

  async queue(): Promise<CmQueue> {
    const qpn = this.#queues++;
    return { qpn, port: (destQp) => new ManagerPort(this, flowOf({ srcQp: qpn, destQp })) };
  }

  /** Handles a frame of the check. */
  take(bytes: Uint8Array, port: ManagerPort): void {
    const { bth, deth, ip, payload } = decode(bytes);
    const mad = decodeMad(payload);
    if (ip.dst === SECOND && this.#has('gidDeaf')) return;
    this.#back = reverse({ ...this.port.flow, dstIp: this.#has('gidElsewhere') ? this.port.flow.dstIp : ip.dst });
    if (bth.destQp !== 1) this.#onData(bth.psn, port);
    else if (deth?.qkey !== GSI_QKEY && !this.#has('queueKeyUnchecked')) return;
    else if (mad !== undefined && this.#isAdmitted(mad)) this.#onMad(mad);
  }

  /** Does what is due until a time. @returns when the next thing is due */
  expire(): number {
    for (const connection of this.#connections) this.#onTime(connection);
    return Math.min(...this.#connections.map((one) => (one.state === 'replied' ? one.repeatAt : Infinity)), Infinity);
  }

  #has(bug: ManagerBug): boolean {
    return this.bug === bug;
  }

  #isAdmitted({ name, header: { baseVersion, classVersion, method } }: Mad): boolean {
    if (baseVersion !== 1 && !this.#has('baseVersionAccepted')) return false;
    if (classVersion !== 2 && !this.#has('classVersionAccepted')) return false;
    return method === (name === 'CLASS_PORT_INFO' ? Method.GET : Method.SEND) || this.#has('methodAccepted');
  }

  #say<N extends MadName>(name: N, fields: Partial<MadFields<N>>, header: Partial<MadHeader>): Uint8Array {
    const bytes = encodeMad(name, fields, header);
    this.#sayAgain(bytes);
    return bytes;
  }

  #sayAgain(payload: Uint8Array): void {
    const bytes = this.#has('madShort') ? payload.subarray(0, payload.length - 4) : payload;
    const qkey = this.#has('madKey') ? 0x11111111 : GSI_QKEY;
    this.port.say(datagram.sendOnly({ psn: 0, qkey, srcQp: 1, payload: bytes }), this.#back);
  }

  #onMad(mad: Mad): void {
    const { header } = mad;
    switch (mad.name) {
      case 'REQ':
        this.#onReq(mad.fields, header.tid);
        return;
      case 'DREQ':
        this.#onDreq(mad.fields, header.tid);
        return;
      case 'RTU':
        this.#onRtu(mad.fields, header.tid);
        return;
      case 'MRA': {
        const connection = this.#find(mad.fields);
        if (connection === undefined || this.#has('mraIgnored')) return;
        connection.giveUpAt = this.peer.now + times(mad.fields.serviceTimeout) + connection.giveUpAt;
        connection.repeatAt = this.peer.now + times(mad.fields.serviceTimeout);
        return;
      }
      case 'REJ': {
        const connection = this.#find(mad.fields);
        if (connection !== undefined && !this.#has('rejIgnored')) connection.state = 'ended';
        return;
      }
      case 'SIDR_REQ': {
        const { requestId, serviceId } = mad.fields;
        const status = this.#has('sidrAccepted') ? 0 : 1;
        this.#say(
          'SIDR_REP',
          { requestId: requestId ^ (this.#has('sidrId') ? 1 : 0), serviceId, status },
          { tid: header.tid },
        );
        return;
      }
      case 'CLASS_PORT_INFO': {
        const fields = { baseVersion: 1, classVersion: this.#has('infoVersion') ? 1 : 2, capabilities: 0x3200 };
        const status = this.#has('infoNone') ? 0x0c : 0;
        this.#say('CLASS_PORT_INFO', fields, { ...header, method: Method.GET_RESP, status });
      }
    }
  }

  #onReq(req: MadFields<'REQ'>, tid: bigint): void {
    const known = this.#connections.find((one) => one.req.localCommId === req.localCommId);
    if (known !== undefined && !this.#has('duplicateReqNew')) {
      if (known.state === 'replied' && !this.#has('duplicateReqSilent')) this.#sayAgain(known.rep);
      return;
    }
    const reason = this.#refusalOf(req);
    if (reason === undefined) {
      this.#accept(req, tid);
      return;
    }
    if (reason === 8 && this.#has('unknownServiceSilent')) return;
    const isOther = reason === 8 && this.#has('unknownServiceIds');
    const code = this.#reasonOf(reason);
    this.#say('REJ', { remoteCommId: req.localCommId ^ (isOther ? 1 : 0), reason: code }, { tid });
  }

  #reasonOf(reason: number): number {
    const changed: readonly [number, ManagerBug][] = [
      [8, 'unknownServiceReason'],
      [9, 'transportReason'],
      [10, 'staleReason'],
      [26, 'mtuReason'],
    ];
    return changed.some(([code, bug]) => code === reason && this.#has(bug)) ? CONSUMER : reason;
  }

  /** Returns the reason for which a REQ is refused. */
  #refusalOf(req: MadFields<'REQ'>): number | undefined {
    const isLive = this.#connections.some(
      ({ req: { localQpn }, state }) => localQpn === req.localQpn && state === 'ready',
    );
    if (isLive && !this.#has('staleAccepted')) return 10;
    if (req.serviceId !== SERVICE) return 8;
    const ours = gidOf(this.port.flow.dstIp);
    if (!req.remoteGid.every((byte, i) => byte === ours[i]) && !this.#has('addressAccepted')) return 12;
    const [version, ip] = req.privateData;
    if ((version !== 0 || ip !== 0x40) && !this.#has('privateDataAccepted')) return CONSUMER;
    if (req.transport !== 0 && !this.#has('transportAccepted')) return 9;
    if ((req.pathMtu < 1 || req.pathMtu > 5) && !this.#has('mtuAccepted')) return 26;
    return undefined;
  }

  #accept(req: MadFields<'REQ'>, tid: bigint): void {
    const count = this.#connections.length;
    const id = 0x5000 + (this.#has('idTwice') ? 0 : count);
    const qpn = this.#has('repQueue') ? 0xffffff : 0x300 + (this.#has('queueTwice') ? 0 : count);
    const fields = {
      ...{ localCommId: id, remoteCommId: req.localCommId + (this.#has('repRemoteId') ? 1 : 0), localQpn: qpn },
      ...{ startingPsn: this.#startingPsn(), targetAckDelay: 15, failover: this.#has('repFailover') ? 3 : 0 },
      ...{ responderResources: req.initiatorDepth, rnrRetryCount: 7, localCaGuid: this.#has('repGuid') ? 0n : GUID },
      initiatorDepth: this.#has('repDepth') ? 16 : req.responderResources,
    };
    const rep = this.#say('REP', fields, { tid: this.#has('repTransaction') ? tid + 2n : tid });
    const period = this.#has('repEarly') ? 10 * MS : times(req.localResponseTimeout);
    const repeatAt = this.#has('repOnce') ? Number.POSITIVE_INFINITY : this.peer.now + period;
    const giveUpAt = this.peer.now + period * (req.maxCmRetries + 1);
    this.#connections.push({ req, tid, id, qpn, rep, state: 'replied', repeatAt, repeated: 0, giveUpAt });
  }

  #startingPsn(): number {
    if (this.#has('psnCounts')) return this.#psn++;
    if (this.#has('psnShort')) return 0x120000 | this.#random.below(2 ** 16);
    if (this.#has('psnSteps')) {
      this.#psn = (this.#psn + this.#random.below(2 ** 16)) & 0xffffff;
      return this.#psn;
    }
    return this.#random.below(2 ** 24);
  }

  #onTime(connection: Connection): void {
    const { req, state, tid, id } = connection;
    if (state !== 'replied' || this.peer.now < connection.repeatAt) return;
    if (connection.repeated >= req.maxCmRetries && !this.#has('repForEver')) {
      connection.state = 'ended';
      const info = new Uint8Array(8);
      const fields = {
        localCommId: id,
        remoteCommId: req.localCommId,
        subject: 2,
        reason: TIMEOUT,
        infoLength: 8,
        info,
      };
      this.#say('REJ', fields, { tid });
      return;
    }
    connection.repeated++;
    connection.repeatAt += this.#has('repEarly') ? 10 * MS : times(req.localResponseTimeout);
    this.#sayAgain(connection.rep);
  }

  #onRtu(ids: Ids, tid: bigint): void {
    const connection = this.#find(ids);
    if (connection === undefined) return;
    const { id, req, state, repeated } = connection;
    if (state === 'ready' && this.#has('rtuRefused'))
      this.#say('REJ', { localCommId: id, remoteCommId: req.localCommId, subject: 2, reason: 6 }, { tid });
    if (state === 'replied' && !(repeated > 0 && this.#has('rtuLateIgnored'))) connection.state = 'ready';
  }

  #onDreq({ localCommId, remoteCommId, remoteQpn }: MadFields<'DREQ'>, dreqTid: bigint): void {
    if (this.#has('dreqSilent')) return;
    const tid = this.#has('drepTransaction') ? dreqTid + 2n : dreqTid;
    const ids = { localCommId: remoteCommId, remoteCommId: localCommId };
    const connection = this.#find({ localCommId, remoteCommId });
    if (connection === undefined) {
      if (this.#has('unknownDreqRefused')) this.#say('REJ', { ...ids, subject: 2, reason: 6 }, { tid });
      else this.#say('DREP', ids, { tid });
      return;
    }
    if (remoteQpn !== connection.qpn && !this.#has('dreqQueueIgnored')) return;
    if (connection.state === 'ended' && this.#has('dreqOnce')) return;
    connection.state = 'ended';
    this.#say('DREP', ids, { tid });
  }

  #onData(psn: number, port: ManagerPort): void {
    const connection = this.#connections.find(({ req }) => req.localQpn === port.flow.srcQp);
    if (connection === undefined) return;
    if (connection.state === 'ended' && !this.#has('ackAfterDrep')) return;
    if (connection.state === 'replied') {
      if (this.#has('dataRefused')) return;
      if (!this.#has('dataIgnored')) connection.state = 'ready';
    }
    port.say(ack({ psn, msn: 1 }));
  }

  /** Finds the connection of a message by the ids of the check's end. */
  #find({ localCommId, remoteCommId }: Ids): Connection | undefined {
    return this.#connections.find(({ id, req }) => id === remoteCommId && req.localCommId === localCommId);
  }
}

interface Ids {
  readonly localCommId: number;
  readonly remoteCommId: number;
}

class ManagerPort implements PacketPort {
  readonly mtu = MTU;
  readonly #arrivals: Arrival[] = [];

  constructor(
    readonly manager: DoubleManager,
    readonly flow: Flow,
  ) {}

  now(): number {
    return this.manager.peer.now;
  }

  send(bytes: Uint8Array): number {
    this.manager.take(bytes, this);
    return this.now();
  }

  async receive(until: number): Promise<Arrival | undefined> {
    const { manager } = this;
    for (;;) {
      const due = manager.expire();
      const first = this.#arrivals.shift();
      if (first !== undefined) return first;
      if (this.now() >= until) return undefined;
      manager.peer.now = Math.min(due, until);
    }
  }

  /** Lets the check receive a packet. */
  say(packet: Packet, back = reverse(this.flow)): void {
    this.#arrivals.push({ frame: encodeFrame(back, packet), at: this.now() });
  }
}
