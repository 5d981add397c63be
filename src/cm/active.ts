/** The end that asks for a connection (IBTA 12.9.7.1). */
import { gidBytes } from '../verbs/gid.js';
import { withCmaHdr } from './cmahdr.js';
import { Connection, NOTHING } from './connection.js';
import { deriveAttributes, mtuCode, type OwnChoice } from './derive.js';
import type { CmAddress, ConnectReply } from './events.js';
import { message } from './mad.js';
import { type Manager, type Outgoing, type Route, refuse } from './manager.js';
import { type Message, Subject, Transport } from './messages.js';
import { RejectReason } from './reasons.js';
import { type PortSpaceName, serviceId } from './serviceid.js';
import { ACK_DELAY, ackTimeout, MAX_CM_RETRIES, RESPONSE_TIMEOUT, requestPeriod, SERVICE_TIMEOUT } from './times.js';

/** What a REQ is made from. */
export interface ConnectParameters {
  readonly space: PortSpaceName;
  readonly transport: 'RC' | 'UC';
  readonly source: CmAddress;
  readonly destination: CmAddress;
  readonly qpNum: number;
  /** The first PSN that the peer shall send. */
  readonly startingPsn: number;
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly retryCount: number;
  readonly rnrRetryCount: number;
  readonly flowControl: boolean;
  readonly srq: boolean;
  /** Bytes. */
  readonly pathMtu: number;
  readonly hopLimit: number;
  readonly trafficClass: number;
  /** Encoded, see times.ts. */
  readonly packetLifeTime: number;
  readonly privateData: Uint8Array;
}

/** RoCE has no LIDs; beyond the subnet this stands in their place. */
const PERMISSIVE_LID = 0xffff;

export class ActiveConnection extends Connection {
  readonly role = 'active';
  readonly req: Message<'REQ'>;
  readonly #own: OwnChoice;
  readonly #period: number;
  #rtu: Outgoing | undefined;

  constructor(manager: Manager, id: number, parameters: ConnectParameters, own: OwnChoice) {
    const route = { local: parameters.source.address, remote: parameters.destination.address };
    super(manager, id, route, manager.tidOf(id), 'REQ_SENT');
    this.#own = own;
    this.req = requestOf(manager, id, parameters);
    this.#period = requestPeriod(parameters.packetLifeTime, this.req.remoteResponseTimeout);
    this.sendRepeated('REQ', this.tid, this.req, this.#period, MAX_CM_RETRIES);
  }

  get ownQpn(): number {
    return this.req.localQpn;
  }

  protected get patience() {
    return { period: this.#period, retries: MAX_CM_RETRIES };
  }

  /** The program's queue pair is up. */
  establish(privateData: Uint8Array): void {
    if (this.state !== 'REP_RCVD') throw this.wrongState('establish', 'REP_RCVD');
    this.setState('ESTABLISHED');
    this.#rtu = this.send('RTU', this.tid, { privateData });
  }

  reject(reason: number, info: Uint8Array, privateData: Uint8Array): void {
    if (this.state !== 'REP_RCVD') throw this.wrongState('reject', 'REP_RCVD');
    this.sendRej(Subject.REP, reason, info, privateData);
    this.setState('CLOSED');
  }

  /** @param route whence the reply came, for a refusal */
  onRep(rep: Message<'REP'>, route: Route): void {
    if (this.state !== 'REQ_SENT') {
      this.#onDuplicateRep(rep);
      return;
    }
    const { connections } = this.manager;
    const peer = { guid: rep.localCaGuid, commId: rep.localCommId, qpn: rep.localQpn };
    const old = connections.findRemoteId(peer.guid, peer.commId) ?? connections.findRemoteQpn(peer.guid, peer.qpn);
    if (old !== undefined) {
      refuse(this.manager, route, rep, Subject.REP, RejectReason.STALE_CONNECTION);
      old.onStale();
      // both ends let the old one, or this refusal, rest that long; then the peer can be asked again
      this.manager.deadlines.set(this, this.manager.now + 2 * old.timewait);
      return;
    }
    this.rep = rep;
    this.peer = peer;
    connections.addPeer(this);
    this.setState('REP_RCVD');
    this.tell({ type: 'CONNECT_RESPONSE', reply: this.#replyOf(rep) });
  }

  protected onRtu(): boolean {
    return false;
  }

  protected giveUp(): void {
    this.sendTimeout();
    this.setState('CLOSED');
    this.tell({ type: 'UNREACHABLE', status: 0, privateData: NOTHING });
  }

  protected abandon(): void {
    if (this.state === 'REQ_SENT') {
      this.sendTimeout();
      this.setState('CLOSED');
    } else if (this.state === 'REP_RCVD') {
      this.reject(RejectReason.CONSUMER_DEFINED, NOTHING, NOTHING);
    }
  }

  #onDuplicateRep(rep: Message<'REP'>): void {
    const { manager } = this;
    manager.count('rx_duplicates', 'REP');
    if (rep.localCommId !== this.peer.commId) return;
    if (this.state === 'ESTABLISHED' && this.#rtu !== undefined) manager.repeat('RTU', this.#rtu);
    else if (this.state === 'REP_RCVD')
      this.send('MRA', this.tid, { messageMraed: Subject.REP, serviceTimeout: SERVICE_TIMEOUT });
  }

  #replyOf(rep: Message<'REP'>): ConnectReply {
    const { responderResources, initiatorDepth, rnrRetryCount, localQpn, privateData } = rep;
    return {
      // from our view: what the peer will have outstanding, we serve
      responderResources: initiatorDepth,
      initiatorDepth: responderResources,
      rnrRetryCount,
      flowControl: rep.flowControl === 1,
      srq: rep.srq === 1,
      qpNum: localQpn,
      privateData,
      attributes: deriveAttributes('active', this.req, rep, this.manager.partitions.ownIndex, this.#own),
    };
  }
}

function requestOf(manager: Manager, id: number, of: ConnectParameters): Message<'REQ'> {
  const { source, destination, hopLimit } = of;
  const isBeyond = hopLimit > 1;
  const lid = isBeyond ? PERMISSIVE_LID : 0;
  return message('REQ', manager.tidOf(id), {
    localCommId: id,
    serviceId: serviceId(of.space, destination.port),
    localCaGuid: manager.guid,
    localQpn: of.qpNum,
    responderResources: of.responderResources,
    initiatorDepth: of.initiatorDepth,
    remoteResponseTimeout: RESPONSE_TIMEOUT,
    transport: Transport[of.transport],
    flowControl: of.flowControl ? 1 : 0,
    startingPsn: of.startingPsn,
    localResponseTimeout: RESPONSE_TIMEOUT,
    retryCount: of.retryCount,
    pkey: manager.partitions.ownPkey,
    pathMtu: mtuCode(of.pathMtu),
    rnrRetryCount: of.rnrRetryCount,
    maxCmRetries: MAX_CM_RETRIES,
    srq: of.srq ? 1 : 0,
    primary: {
      localLid: lid,
      remoteLid: lid,
      localGid: gidBytes(source.address),
      remoteGid: gidBytes(destination.address),
      flowLabel: flowLabel(source.port, destination.port),
      packetRate: 0,
      trafficClass: of.trafficClass,
      hopLimit,
      sl: 0,
      subnetLocal: isBeyond ? 0 : 1,
      ackTimeout: ackTimeout(ACK_DELAY, of.packetLifeTime),
    },
    privateData: withCmaHdr(
      { source: source.address, destination: destination.address, sourcePort: source.port },
      of.privateData,
    ),
  });
}

/** As Linux: spreads connections over equal-cost paths. */
export function flowLabel(sourcePort: number, destinationPort: number): number {
  return (sourcePort * 31 + destinationPort) & 0xfffff;
}
