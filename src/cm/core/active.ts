/** The active side of a connection: it sends the REQ (IBTA 12.9.7.1). */

import { gidBytes } from '../../base/gid.js';
import type { IcmpErrorCode } from '../../errors.js';
import { type RetryPolicy, retryPolicy } from './backoff.js';
import { withCmaHdr } from './cmahdr.js';
import { Connection } from './connection.js';
import { type CoreContext, type Route, sendRejFor } from './context.js';
import { deriveAttributes, type LocalQpOptions, mtuCode, queuePairTimeout, type ReqTerms } from './derive.js';
import { type Ece, eceOf, eceOfReq } from './ece.js';
import type { CmAddress, ConnectReply } from './events.js';
import { type Message, NO_DATA, Subject, Transport } from './messages.js';
import { RejectReason } from './reasons.js';
import { type PortSpaceName, serviceId } from './serviceid.js';
import {
  ACK_DELAY,
  ackTimeout,
  MAX_CM_RETRIES,
  REP_SERVICE_TIMEOUT,
  RESPONSE_TIMEOUT,
  requestPeriod,
} from './times.js';

/** Fields of a REQ that the caller decides. Depths are from this end's view. */
export interface ConnectParameters {
  readonly space: PortSpaceName;
  readonly transport: 'RC' | 'UC';
  readonly source: CmAddress;
  readonly destination: CmAddress;
  readonly qpNum: number;
  /** First PSN that the peer is to send, 24 bits. */
  readonly startingPsn: number;
  /** READs and atomics of the peer that this end serves at a time. */
  readonly responderResources: number;
  /** READs and atomics that this end has outstanding at most. */
  readonly initiatorDepth: number;
  readonly retryCnt: number;
  readonly rnrRetry: number;
  readonly flowControl: boolean;
  readonly srq: boolean;
  /** Bytes. */
  readonly pathMtu: number;
  readonly hopLimit: number;
  readonly trafficClass: number;
  /** Service level, 0..7. */
  readonly sl: number;
  /** Encoded time, see times.ts. */
  readonly packetLifeTime: number;
  readonly privateData: Uint8Array;
  /** Vendor options. Default none. */
  readonly ece?: Ece;
  /** Index of the P_Key of the connection and its messages. Default: `Partitions.defaultIndex`. */
  readonly pkeyIndex?: number;
}

/** RoCE has no LIDs. A REQ that leaves the subnet carries this value in their place. */
const PERMISSIVE_LID = 0xffff;

export class ActiveConnection extends Connection {
  readonly role = 'active';
  /** Until the connection is established. */
  #req: ReqTerms | undefined;
  readonly #qpOptions: LocalQpOptions;
  protected readonly retryPolicy: RetryPolicy;
  readonly #pkeyIndex: number;
  /** Private data of our RTU, once it was sent. */
  #rtuData: Uint8Array | undefined;

  constructor(context: CoreContext, id: number, parameters: ConnectParameters, qpOptions: LocalQpOptions) {
    const { pkeyIndex = context.partitions.defaultIndex } = parameters;
    const route = { local: parameters.source.address, remote: parameters.destination.address, pkeyIndex };
    super(context, id, route, context.tidOf(id), 'REQ_SENT');
    this.#pkeyIndex = pkeyIndex;
    // the message has 3 bits for it
    this.#qpOptions = parameters.retryCnt > 7 ? { ...qpOptions, retryCnt: parameters.retryCnt } : qpOptions;
    const req = reqFields(context, id, parameters);
    this.#req = req;
    this.localQpn = req.localQpn;
    this.setTimewait(req.primary.ackTimeout);
    const period = requestPeriod(parameters.packetLifeTime, req.remoteResponseTimeout);
    this.retryPolicy = retryPolicy(period, MAX_CM_RETRIES);
    this.awaitReply('REQ', this.send('REQ', this.tid, req), this.retryPolicy);
  }

  protected onHandshakeEnd(): void {
    this.#req = undefined;
  }

  /** Sends the RTU: the application's queue pair is in RTS. @throws VerbsError EINVAL in another state than REP_RCVD */
  establish(privateData: Uint8Array): void {
    if (this.state !== 'REP_RCVD') throw this.wrongState('establish', 'REP_RCVD');
    this.setState('ESTABLISHED');
    this.#rtuData = privateData;
    this.send('RTU', this.tid, { privateData });
  }

  reject(reason: number, info: Uint8Array, privateData: Uint8Array): void {
    if (this.state !== 'REP_RCVD') throw this.wrongState('reject', 'REP_RCVD');
    this.sendRej(Subject.REP, reason, info, privateData);
    this.setState('CLOSED');
  }

  /** @param route addresses of the REP, for a REJ */
  onRep(rep: Message<'REP'>, route: Route): void {
    if (this.state !== 'REQ_SENT' || this.#req === undefined) {
      this.#onDuplicateRep(rep);
      return;
    }
    const { connections } = this.context;
    const peer = { guid: rep.localCaGuid, commId: rep.localCommId, qpn: rep.localQpn };
    const existing =
      connections.findByRemoteCommId(this.remoteGid, peer.guid, peer.commId) ??
      connections.findByRemoteQpn(this.remoteGid, peer.guid, peer.qpn);
    if (existing !== undefined) {
      sendRejFor(this.context, route, rep, Subject.REP, RejectReason.STALE_CONNECTION);
      existing.onStale();
      // Timewait of the existing connection passes at both ends before the REQ is sent again.
      this.context.deadlines.set(this, this.context.now + 2 * existing.timewait);
      return;
    }
    this.peer = peer;
    this.setTimewait(queuePairTimeout('active', this.#req, rep));
    connections.indexPeer(this);
    const reply = this.#connectReply(this.#req, rep);
    this.setState('REP_RCVD');
    this.emit({ type: 'CONNECT_RESPONSE', reply });
  }

  protected onRtu(): boolean {
    return false;
  }

  protected onRetriesExhausted(icmpError?: IcmpErrorCode): void {
    this.sendTimeoutRej();
    this.setState('CLOSED');
    this.emit({ type: 'UNREACHABLE', status: 0, privateData: NO_DATA, icmpError });
  }

  protected closeUnestablished(): void {
    if (this.state === 'REQ_SENT') {
      this.sendTimeoutRej();
      this.setState('CLOSED');
    } else if (this.state === 'REP_RCVD') {
      this.reject(RejectReason.CONSUMER_DEFINED, NO_DATA, NO_DATA);
    }
  }

  #onDuplicateRep(rep: Message<'REP'>): void {
    const { context } = this;
    context.count('rx_duplicates', 'REP');
    if (rep.localCommId !== this.peer.commId) return;
    if (this.state === 'ESTABLISHED' && this.#rtuData !== undefined)
      this.repeat('RTU', this.tid, { privateData: this.#rtuData });
    else if (this.state === 'REP_RCVD')
      this.send('MRA', this.tid, { messageMraed: Subject.REP, serviceTimeout: REP_SERVICE_TIMEOUT });
  }

  #connectReply(req: ReqTerms, rep: Message<'REP'>): ConnectReply {
    const { responderResources, initiatorDepth, rnrRetry, localQpn, privateData } = rep;
    const ece = eceOf(rep);
    return {
      // From our view: we serve what the peer has outstanding.
      responderResources: initiatorDepth,
      initiatorDepth: responderResources,
      rnrRetry,
      flowControl: rep.flowControl === 1,
      srq: rep.srq === 1,
      qpNum: localQpn,
      privateData,
      ...(ece && { ece }),
      attributes: deriveAttributes('active', req, rep, this.#pkeyIndex, this.#qpOptions),
    };
  }
}

function reqFields(context: CoreContext, id: number, parameters: ConnectParameters) {
  const { source, destination, hopLimit } = parameters;
  const isRouted = hopLimit > 1;
  const lid = isRouted ? PERMISSIVE_LID : 0;
  return {
    localCommId: id,
    serviceId: serviceId(parameters.space, destination.port),
    localCaGuid: context.guid,
    localQpn: parameters.qpNum,
    responderResources: parameters.responderResources,
    initiatorDepth: parameters.initiatorDepth,
    remoteResponseTimeout: RESPONSE_TIMEOUT,
    transport: Transport[parameters.transport],
    flowControl: parameters.flowControl ? 1 : 0,
    startingPsn: parameters.startingPsn,
    localResponseTimeout: RESPONSE_TIMEOUT,
    retryCnt: Math.min(parameters.retryCnt, 7),
    pkey: context.partitions.at(parameters.pkeyIndex),
    pathMtu: mtuCode(parameters.pathMtu),
    rnrRetry: parameters.rnrRetry,
    maxCmRetries: MAX_CM_RETRIES,
    srq: parameters.srq ? 1 : 0,
    primary: {
      localLid: lid,
      remoteLid: lid,
      localGid: gidBytes(source.address),
      remoteGid: gidBytes(destination.address),
      flowLabel: flowLabel(source.port, destination.port),
      packetRate: 0,
      trafficClass: parameters.trafficClass,
      hopLimit,
      sl: parameters.sl,
      subnetLocal: isRouted ? 0 : 1,
      ackTimeout: ackTimeout(ACK_DELAY, parameters.packetLifeTime),
    },
    privateData: withCmaHdr(
      { source: source.address, destination: destination.address, sourcePort: source.port },
      parameters.privateData,
    ),
    ...eceOfReq(parameters.ece),
  };
}

/** Flow label of a connection, as Linux computes it: spreads connections over equal-cost paths. */
export function flowLabel(sourcePort: number, destinationPort: number): number {
  return (sourcePort * 31 + destinationPort) & 0xfffff;
}
