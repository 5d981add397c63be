/** The passive side of a connection: it receives the REQ (IBTA 12.9.7.2). */
import { gidText } from '../../base/gid.js';
import { type RetryPolicy, retryPolicy } from './backoff.js';
import { CMA_HDR_BYTES, type CmaHdr } from './cmahdr.js';
import { Connection } from './connection.js';
import { type CoreContext, type Outgoing, type Route, sendRejFor } from './context.js';
import { type DerivedAttributes, deriveAttributes, type LocalQpOptions, mtuBytes } from './derive.js';
import { type Ece, eceOf, eceOfRep } from './ece.js';
import type { ConnectRequest } from './events.js';
import { type Listener, MAX_OF_PEER } from './listeners.js';
import { Failover, type Message, NO_DATA, Subject, Transport } from './messages.js';
import { RejectReason } from './reasons.js';
import {
  ACK_DELAY,
  HALF_OPEN_GRACE,
  HALF_OPEN_TIME,
  MAX_DREQ_PERIOD,
  MAX_HALF_OPEN_PERIOD,
  milliseconds,
  REFUSED_TIME,
  REQ_SERVICE_TIMEOUT,
  requestPeriod,
} from './times.js';

/** Accepted connections of a listener that may wait for their RTU, whatever its backlog is. */
const MIN_HALF_OPEN = 128;
/** Accepted connections of a listener that may wait for longer than they need. */
const MANY_HALF_OPEN = 256;
/** Refused requests that a listener remembers. A duplicate of one that is forgotten is a new request. */
const MAX_REFUSED = 256;

/** Fields of a REP that the caller decides. Depths are from this end's view. */
export interface AcceptParameters {
  readonly qpNum: number;
  /** First PSN that the peer is to send, 24 bits. */
  readonly startingPsn: number;
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly rnrRetry: number;
  readonly flowControl: boolean;
  readonly srq: boolean;
  readonly privateData: Uint8Array;
  /** Vendor options. Default none. */
  readonly ece?: Ece;
}

export class PassiveConnection extends Connection {
  readonly role = 'passive';
  /** Until the application has accepted it, or the connection has ended. */
  #req: Message<'REQ'> | undefined;
  /** First PSN of the REQ. A REQ with another one is no duplicate. */
  readonly #startingPsn: number;
  protected readonly retryPolicy: RetryPolicy;
  /** Our REJ, which is retransmitted for a duplicate REQ. */
  #rejSent: Outgoing | undefined;
  #repSent: Outgoing | undefined;
  /** When the REP was sent (ms). */
  halfOpenSince = 0;
  /** The client's RTU has not arrived in time. */
  #hasTimedOut = false;

  constructor(
    context: CoreContext,
    id: number,
    req: Message<'REQ'>,
    readonly listener: Listener,
    hdr: CmaHdr,
    { pkeyIndex }: Route,
  ) {
    const { localGid, remoteGid } = req.primary;
    super(context, id, { local: gidText(remoteGid), remote: gidText(localGid), pkeyIndex }, req.tid, 'REQ_RCVD');
    this.#req = req;
    this.#startingPsn = req.startingPsn;
    const period = Math.min(milliseconds(req.localResponseTimeout), MAX_DREQ_PERIOD);
    this.retryPolicy = retryPolicy(period, req.maxCmRetries);
    // The queue pair of this role has the REQ's ACK timeout.
    this.setTimewait(req.primary.ackTimeout);
    this.peer = { guid: req.localCaGuid, commId: req.localCommId, qpn: req.localQpn };
    context.connections.indexPeer(this);
    listener.requests.add(this);
    this.emit({ type: 'CONNECT_REQUEST', listener: listener.handle, request: connectRequest(req, hdr, listener) });
  }

  protected onHandshakeEnd(): void {
    this.#req = undefined;
    this.#rejSent = undefined;
    this.#repSent = undefined;
  }

  /** Whether a REQ with our peer's communication id is ours once more. */
  isRepeatedBy({ localQpn, startingPsn }: Message<'REQ'>): boolean {
    return this.peer.qpn === localQpn && this.#startingPsn === startingPsn;
  }

  /**
   * Returns the attributes of our queue pair, which must be in RTR before `accept`.
   * @throws VerbsError EINVAL in another state than REQ_RCVD
   */
  prepareAccept(parameters: AcceptParameters, qpOptions: LocalQpOptions = {}): DerivedAttributes {
    const req = this.#undecided();
    // Admission has found an entry, and the table does not change.
    const pkeyIndex = this.context.partitions.indexOf(req.pkey) as number;
    const rep = { localQpn: parameters.qpNum, targetAckDelay: ACK_DELAY, ...parameters };
    return deriveAttributes('passive', req, rep, pkeyIndex, qpOptions);
  }

  /** Sends the REP. @throws VerbsError EINVAL in another state than REQ_RCVD; RangeError for a value without a place */
  accept(parameters: AcceptParameters): void {
    const req = this.#undecided();
    const rep = this.send('REP', this.tid, {
      localQpn: parameters.qpNum,
      startingPsn: parameters.startingPsn,
      responderResources: parameters.responderResources,
      initiatorDepth: parameters.initiatorDepth,
      targetAckDelay: ACK_DELAY,
      failoverAccepted: hasAlternatePath(req) ? Failover.NOT_SUPPORTED : Failover.ACCEPTED,
      flowControl: parameters.flowControl ? 1 : 0,
      rnrRetry: parameters.rnrRetry,
      srq: parameters.srq ? 1 : 0,
      localCaGuid: this.context.guid,
      privateData: parameters.privateData,
      ...eceOfRep(parameters.ece),
    });
    this.setState('REP_SENT');
    this.localQpn = parameters.qpNum;
    this.#repSent = rep;
    this.#req = undefined;
    const { localResponseTimeout, maxCmRetries } = req;
    const { period, time } = retryPolicy(milliseconds(localResponseTimeout), maxCmRetries);
    const limit = Math.min(time, HALF_OPEN_TIME);
    const policy = { period: Math.min(period, MAX_HALF_OPEN_PERIOD), time: Number.POSITIVE_INFINITY };
    this.awaitReply('REP', rep, policy, limit, HALF_OPEN_TIME);
    this.listener.halfOpen.add(this);
    this.halfOpenSince = this.context.now;
    this.#displaced()?.onRetriesExhausted();
  }

  /**
   * Returns the connection that makes room for this one, if one has to. The RTU of an honest client follows within a
   * round trip: the oldest is the one that least likely gets it.
   */
  #displaced(): PassiveConnection | undefined {
    const { halfOpen, backlog } = this.listener;
    if (halfOpen.countOf(this.remoteGid) > MAX_OF_PEER) return halfOpen.oldestOf(this.remoteGid);
    const oldest = halfOpen.oldestOfLargest();
    if (oldest === undefined || halfOpen.size > Math.max(backlog, MIN_HALF_OPEN)) return oldest;
    const hasHadItsTime = this.context.now - oldest.halfOpenSince >= HALF_OPEN_GRACE;
    return hasHadItsTime && halfOpen.size > MANY_HALF_OPEN ? oldest : undefined;
  }

  /** Returns the request that waits for the application. @throws VerbsError EINVAL when none does */
  #undecided(): Message<'REQ'> {
    if (this.state === 'REQ_RCVD' && this.#req !== undefined) return this.#req;
    throw this.wrongState('accept', 'REQ_RCVD');
  }

  /** Rejects the request, which has not been answered, to make room for one of another peer. */
  displace(): void {
    const reason = RejectReason.NO_RESOURCES;
    this.reject(reason, NO_DATA, NO_DATA);
    this.emit({ type: 'REJECTED', reason, info: NO_DATA, privateData: NO_DATA });
  }

  reject(reason: number, info: Uint8Array, privateData: Uint8Array): void {
    if (this.state !== 'REQ_RCVD') throw this.wrongState('reject', 'REQ_RCVD');
    this.#rejSent = this.sendRej(Subject.REQ, reason, info, privateData);
    this.setState('REJ_SENT');
    this.context.connections.releaseRemoteQpn(this);
    const { refused } = this.listener;
    refused.add(this);
    this.#scheduleForget();
    const [oldest] = refused;
    if (refused.size > MAX_REFUSED) oldest?.setState('CLOSED');
  }

  /** A retransmitted REQ has arrived. @param route addresses of the REQ, for a REJ */
  onDuplicateReq(req: Message<'REQ'>, route: Route): void {
    const { context } = this;
    context.count('rx_duplicates', 'REQ');
    switch (this.state) {
      case 'REQ_RCVD':
        this.send('MRA', this.tid, { messageMraed: Subject.REQ, serviceTimeout: REQ_SERVICE_TIMEOUT });
        break;
      case 'REJ_SENT':
        if (this.#rejSent !== undefined) context.retransmit('REJ', this.#rejSent);
        this.#scheduleForget();
        break;
      case 'REP_SENT':
        if (this.#repSent !== undefined) context.retransmit('REP', this.#repSent);
        break;
      case 'TIMEWAIT':
        sendRejFor(context, route, req, Subject.REQ, RejectReason.STALE_CONNECTION);
    }
  }

  protected onRtu({ privateData }: Message<'RTU'>): boolean {
    if (this.state === 'TIMEWAIT' && this.#hasTimedOut) {
      // The client has not heard that it is too late.
      this.sendTimeoutRej();
      return true;
    }
    if (this.state !== 'REP_SENT') return false;
    this.setState('ESTABLISHED');
    this.emit({ type: 'ESTABLISHED', privateData });
    return true;
  }

  /** Data has arrived: the peer is ready, even if its RTU is late or lost. */
  onCommunicationEstablished(): void {
    if (this.state !== 'REP_SENT') return;
    this.setState('ESTABLISHED');
    this.emit({ type: 'ESTABLISHED', privateData: NO_DATA });
  }

  override onStale(): void {
    super.onStale();
    if (this.state !== 'REQ_RCVD' && this.state !== 'REP_SENT') return;
    this.setState('CLOSED');
    const reason = RejectReason.STALE_CONNECTION;
    this.emit({ type: 'REJECTED', reason, info: NO_DATA, privateData: NO_DATA });
  }

  protected override setState(to: Parameters<Connection['setState']>[0]): void {
    const { requests, halfOpen, refused } = this.listener;
    requests.delete(this);
    halfOpen.delete(this);
    refused.delete(this);
    super.setState(to);
  }

  protected onRetriesExhausted(): void {
    if (this.state === 'REJ_SENT') {
      this.setState('CLOSED');
    } else {
      this.#hasTimedOut = true;
      this.sendTimeoutRej();
      this.setState('TIMEWAIT');
      this.emit({ type: 'UNREACHABLE', status: 0, privateData: NO_DATA });
    }
  }

  protected closeUnestablished(): void {
    if (this.state === 'REQ_RCVD') this.reject(RejectReason.CONSUMER_DEFINED, NO_DATA, NO_DATA);
    // The peer may be in ESTABLISHED by now. A lost REJ would go unnoticed; a DREQ is answered in every state.
    else if (this.state === 'REP_SENT') this.sendDreq(NO_DATA, { period: MAX_HALF_OPEN_PERIOD, time: HALF_OPEN_TIME });
  }

  /** Removes the connection after the time of two more REQs. */
  #scheduleForget(): void {
    if (this.#req === undefined) return;
    const { primary, remoteResponseTimeout } = this.#req;
    const delay = Math.min(2 * requestPeriod(primary.ackTimeout, remoteResponseTimeout), REFUSED_TIME);
    this.context.deadlines.set(this, this.context.now + delay);
  }
}

/** Whether a REQ names an alternate path. All zeroes: there is none. */
function hasAlternatePath({ alternate }: Message<'REQ'>): boolean {
  return alternate.localLid !== 0 || alternate.localGid.some((byte) => byte !== 0);
}

function connectRequest(req: Message<'REQ'>, hdr: CmaHdr, { space, port }: Listener): ConnectRequest {
  const ece = eceOf(req);
  return {
    space,
    transport: req.transport === Transport.UC ? 'UC' : 'RC',
    source: { address: hdr.source, port: hdr.sourcePort },
    destination: { address: hdr.destination, port },
    remoteGid: gidText(req.primary.localGid),
    localGid: gidText(req.primary.remoteGid),
    responderResources: req.initiatorDepth,
    initiatorDepth: req.responderResources,
    retryCnt: req.retryCnt,
    rnrRetry: req.rnrRetry,
    flowControl: req.flowControl === 1,
    srq: req.srq === 1,
    qpNum: req.localQpn,
    pathMtu: mtuBytes(req.pathMtu),
    privateData: req.privateData.subarray(CMA_HDR_BYTES),
    ...(ece && { ece }),
  };
}
