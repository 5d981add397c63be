/**
 * Service id resolution (SIDR): a SIDR_REQ asks for the queue pair of a datagram service, a SIDR_REP names it (IBTA
 * 12.11). No connection follows.
 */

import { gidText } from '../../base/gid.js';
import { type IcmpErrorCode, VerbsError } from '../../errors.js';
import { areValidEnds, hasRoom } from './admission.js';
import { Backoff, retryPolicy } from './backoff.js';
import { CMA_HDR_BYTES, type CmaHdr, parseCmaHdr, withCmaHdr } from './cmahdr.js';
import type { CoreContext, Expiring, Outgoing, Route } from './context.js';
import type { CmAddress, DatagramPeer } from './events.js';
import { chooseListener, type Listener, type Listeners } from './listeners.js';
import { type Message, NO_DATA } from './messages.js';
import { isForOtherCard } from './othercards.js';
import { RejectReason, SidrStatus } from './reasons.js';
import { parseServiceId, serviceId } from './serviceid.js';
import { MAX_CM_RETRIES, milliseconds, RESPONSE_TIMEOUT } from './times.js';

/**
 * Most answered exchanges that are kept for duplicates of their SIDR_REQ; the oldest is forgotten. A duplicate of a
 * forgotten one is a new request, and gets the same answer.
 */
const MAX_ANSWERED = 4096;
/** Longest time between two SIDR_REQs, milliseconds. */
const RESPONSE_TIME = milliseconds(RESPONSE_TIMEOUT);

/** The service that a SIDR_REQ asks for. */
export interface SidrParameters {
  readonly source: CmAddress;
  readonly destination: CmAddress;
  readonly privateData: Uint8Array;
  /** Index of the P_Key of the messages. Default: `Partitions.defaultIndex`. */
  readonly pkeyIndex?: number;
}

/** A SIDR exchange of the client: it sends the SIDR_REQ and retransmits it until the SIDR_REP arrives. */
export class ActiveSidr implements Expiring {
  deadline = Number.POSITIVE_INFINITY;
  heapIndex = -1;
  readonly #outgoing: Outgoing;
  /** GID that the SIDR_REP comes from. */
  readonly remoteGid: string;
  readonly #backoff = new Backoff(retryPolicy(RESPONSE_TIME, MAX_CM_RETRIES));

  constructor(
    readonly context: CoreContext,
    readonly id: number,
    { source, destination, privateData, pkeyIndex = context.partitions.defaultIndex }: SidrParameters,
    readonly onClosed: (request: ActiveSidr) => void,
  ) {
    const hdr = { source: source.address, destination: destination.address, sourcePort: source.port };
    const route = { local: source.address, remote: destination.address, pkeyIndex };
    this.remoteGid = gidText(route.remote);
    this.#outgoing = context.send(route, 'SIDR_REQ', context.tidOf(id), {
      requestId: id,
      pkey: context.partitions.at(pkeyIndex),
      serviceId: serviceId('UDP', destination.port),
      privateData: withCmaHdr(hdr, privateData),
    });
    context.deadlines.set(this, context.now + this.#backoff.next());
  }

  onSidrRep({ status, qpn, qkey, privateData }: Message<'SIDR_REP'>): void {
    const { id, context } = this;
    this.close();
    if (status === SidrStatus.SUCCESS)
      context.emit({ type: 'ESTABLISHED', id, privateData, datagram: { qpNum: qpn, qkey } });
    else context.emit({ type: 'UNREACHABLE', id, status, privateData });
  }

  onDeadline(): void {
    const { context, id } = this;
    const wait = this.#backoff.next();
    if (wait > 0) {
      context.retransmit('SIDR_REQ', this.#outgoing, this.#backoff.asksForErrors ? id : undefined);
      context.deadlines.set(this, context.now + wait);
      return;
    }
    this.endUnanswered();
  }

  /** No SIDR_REP comes. @param icmpError the error by which that is known; undefined: the time is over */
  endUnanswered(icmpError?: IcmpErrorCode): void {
    const { context, id } = this;
    this.close();
    context.emit({ type: 'UNREACHABLE', id, status: 0, privateData: NO_DATA, icmpError });
  }

  /** Ends the exchange. */
  close(): void {
    this.context.deadlines.clear(this);
    this.onClosed(this);
  }
}

/**
 * A SIDR exchange of the server. It is kept for a while after the SIDR_REP, which is sent again for a duplicate
 * SIDR_REQ.
 */
export class PassiveSidr implements Expiring {
  deadline = Number.POSITIVE_INFINITY;
  heapIndex = -1;
  /** GID of the client. */
  readonly remoteGid: string;
  #replySent: Outgoing | undefined;

  constructor(
    readonly context: CoreContext,
    readonly id: number,
    readonly key: string,
    readonly route: Route,
    readonly request: Message<'SIDR_REQ'>,
    readonly listener: Listener,
    readonly onAnswered: (sidr: PassiveSidr) => void,
    readonly onClosed: (sidr: PassiveSidr) => void,
  ) {
    this.remoteGid = gidText(route.remote);
    listener.requests.add(this);
  }

  /** Sends the SIDR_REP. @throws VerbsError EINVAL when it has been sent already */
  reply(status: number, privateData: Uint8Array, peer?: DatagramPeer): void {
    if (this.#replySent !== undefined)
      throw new VerbsError('EINVAL', `request 0x${this.id.toString(16)} has been answered already`);
    this.listener.requests.delete(this);
    this.#replySent = sendSidrRep(this.context, this.route, this.request, status, privateData, peer);
    // the time of two more SIDR_REQs
    this.context.deadlines.set(this, this.context.now + 2 * RESPONSE_TIME);
    this.onAnswered(this);
  }

  /** Refuses the request, which has not been answered, to make room for one of another peer. */
  displace(): void {
    this.reply(SidrStatus.REJECT, NO_DATA);
    const { context, id } = this;
    context.emit({ type: 'REJECTED', id, reason: RejectReason.NO_RESOURCES, info: NO_DATA, privateData: NO_DATA });
  }

  onDuplicate(): void {
    this.context.count('rx_duplicates', 'SIDR_REQ');
    if (this.#replySent !== undefined) this.context.retransmit('SIDR_REP', this.#replySent);
  }

  onDeadline(): void {
    this.onClosed(this);
  }

  /** Refuses the request unless it has been answered. */
  close(): void {
    if (this.#replySent === undefined) this.reply(SidrStatus.REJECT, NO_DATA);
  }
}

/** All SIDR exchanges of a core. */
export class SidrTable {
  readonly #active = new Map<number, ActiveSidr>();
  readonly #passive = new Map<number, PassiveSidr>();
  readonly #passiveByKey = new Map<string, PassiveSidr>();
  /** Oldest first. */
  readonly #answered = new Set<PassiveSidr>();

  constructor(
    readonly context: CoreContext,
    readonly listeners: Listeners,
  ) {}

  /** Begins an exchange of the client. */
  resolve(id: number, parameters: SidrParameters): void {
    const onClosed = () => {
      this.#active.delete(id);
      this.context.sidrIds.delete(id);
    };
    this.context.sidrIds.add(id);
    this.#active.set(id, new ActiveSidr(this.context, id, parameters, onClosed));
  }

  /** Ids of all exchanges. */
  get ids(): number[] {
    return [...this.#active.keys(), ...this.#passive.keys()];
  }

  find(id: number): ActiveSidr | PassiveSidr | undefined {
    return this.#active.get(id) ?? this.#passive.get(id);
  }

  onSidrReq(request: Message<'SIDR_REQ'>, route: Route): void {
    const { context } = this;
    // request ids are unique for one peer only
    const key = `${route.remote}/${request.requestId}/${request.serviceId}`;
    const known = this.#passiveByKey.get(key);
    if (known !== undefined) {
      known.onDuplicate();
      return;
    }
    const listener = this.#listenerFor(request, route);
    if (typeof listener !== 'number') {
      this.#addPassive(key, request, route, listener);
      return;
    }
    if (isForOtherCard(context.otherCards, request, route)) context.count('ignored', request.name);
    else sendSidrRep(context, route, request, listener, NO_DATA);
  }

  onSidrRep(reply: Message<'SIDR_REP'>, { remote }: Route): void {
    const request = this.#active.get(reply.requestId);
    if (request?.remoteGid !== gidText(remote)) this.context.count('ignored', 'SIDR_REP');
    else request.onSidrRep(reply);
  }

  /** Returns the listener for a request, or the status of the SIDR_REP that refuses it. */
  #listenerFor({ serviceId, privateData }: Message<'SIDR_REQ'>, { local, remote }: Route): Listener | number {
    const source = gidText(remote);
    const service = parseServiceId(serviceId);
    const candidates = service?.space === 'UDP' ? this.listeners.find('UDP', service.port) : [];
    if (candidates.length === 0) return SidrStatus.UNSUPPORTED;
    const hdr = parseCmaHdr(privateData);
    if (hdr === undefined || !areValidEnds(hdr, local)) return SidrStatus.REJECT;
    const listener = chooseListener(candidates, hdr.destination);
    return listener !== undefined && hasRoom(listener, source) ? listener : SidrStatus.REJECT;
  }

  #addPassive(key: string, request: Message<'SIDR_REQ'>, route: Route, listener: Listener): void {
    const { context } = this;
    const { requests, backlog } = listener;
    const displaced = requests.size < backlog ? undefined : requests.oldestOfLargest();
    if (displaced instanceof PassiveSidr) displaced.displace();
    const hdr = parseCmaHdr(request.privateData) as CmaHdr;
    const id = context.allocateId();
    context.sidrIds.add(id);
    const onAnswered = () => this.#keepAnswered(sidr);
    const onClosed = () => this.#forget(sidr);
    const sidr = new PassiveSidr(context, id, key, route, request, listener, onAnswered, onClosed);
    this.#passive.set(id, sidr);
    this.#passiveByKey.set(key, sidr);
    context.emit({
      type: 'CONNECT_REQUEST',
      id,
      listener: listener.handle,
      request: {
        space: 'UDP',
        transport: 'UD',
        source: { address: hdr.source, port: hdr.sourcePort },
        destination: { address: hdr.destination, port: listener.port },
        remoteGid: gidText(route.remote),
        localGid: gidText(route.local),
        responderResources: 0,
        initiatorDepth: 0,
        retryCnt: 0,
        rnrRetry: 0,
        flowControl: false,
        srq: false,
        qpNum: 0,
        pathMtu: 0,
        privateData: request.privateData.subarray(CMA_HDR_BYTES),
      },
    });
  }

  #keepAnswered(sidr: PassiveSidr): void {
    this.#answered.add(sidr);
    const [oldest] = this.#answered;
    if (this.#answered.size <= MAX_ANSWERED || oldest === undefined) return;
    this.context.deadlines.clear(oldest);
    this.#forget(oldest);
  }

  #forget(sidr: PassiveSidr): void {
    this.#answered.delete(sidr);
    this.context.sidrIds.delete(sidr.id);
    this.#passive.delete(sidr.id);
    this.#passiveByKey.delete(sidr.key);
  }
}

function sendSidrRep(
  context: CoreContext,
  route: Route,
  { tid, requestId, serviceId }: Message<'SIDR_REQ'>,
  status: number,
  privateData: Uint8Array,
  peer?: DatagramPeer,
): Outgoing {
  const address = peer ? { qpn: peer.qpNum, qkey: peer.qkey } : {};
  return context.send(route, 'SIDR_REP', tid, { requestId, status, serviceId, privateData, ...address });
}
