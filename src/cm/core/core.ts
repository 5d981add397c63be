/**
 * The communication manager as a protocol machine, without sockets, queue pairs and clocks. Messages of peers and calls
 * of the application go in, with the time. Messages, events and the next deadline come out:
 *
 *     core.receive(bytes, { local, remote }, now);  core.connect(...);  core.expire(now);
 *     for (const { local, remote, bytes } of core.takeMessages()) ...
 *     for (const event of core.takeEvents()) ...
 *     wait until core.nextDeadline()
 *
 * Any call can produce messages and events, and change the deadline. Times are milliseconds without an origin.
 * Addresses are IP addresses or GIDs as text. An id names a connection (its local communication id) or a SIDR exchange.
 * It is valid until REJECTED, UNREACHABLE, TIMEWAIT_EXIT, or `close`.
 */

import { gidText } from '../../base/gid.js';
import { type IcmpErrorCode, VerbsError } from '../../errors.js';
import { ActiveConnection, type ConnectParameters } from './active.js';
import { admit, type Host, mustWait } from './admission.js';
import { replyToGet } from './classportinfo.js';
import { Connection } from './connection.js';
import { type ContextOptions, CoreContext, type Outgoing, type Route, sendRejFor } from './context.js';
import type { DerivedAttributes, LocalQpOptions } from './derive.js';
import type { CoreEvent, DatagramPeer } from './events.js';
import { Listeners, type ListenParameters } from './listeners.js';
import { type MadFault, parseBody, parseHeader } from './mad.js';
import { LAYOUTS, type Message, NO_DATA, Subject } from './messages.js';
import { isForOtherCard } from './othercards.js';
import { type AcceptParameters, PassiveConnection } from './passive.js';
import { RejectReason, SidrStatus } from './reasons.js';
import { parseServiceId } from './serviceid.js';
import { ActiveSidr, PassiveSidr, type SidrParameters, SidrTable } from './sidr.js';
import type { ConnectionState } from './states.js';

/** Options of a core. */
export interface CoreOptions extends ContextOptions {
  readonly host: Host;
  /**
   * Connections in all states, with those that have ended but are still in timewait. Requests beyond are ignored, so
   * that clients cannot take all memory. Default 65536, four times the queue pairs of a card.
   */
  readonly maxConnections?: number;
}

/** See the head of this file. */
export class CmCore {
  readonly #context: CoreContext;
  readonly #host: Host;
  readonly #maxConnections: number;
  readonly #listeners = new Listeners();
  readonly #sidr: SidrTable;

  constructor(options: CoreOptions) {
    this.#context = new CoreContext(options);
    this.#host = options.host;
    this.#maxConnections = options.maxConnections ?? 65536;
    this.#sidr = new SidrTable(this.#context, this.#listeners);
  }

  // ---- calls of the application ----

  /** Sends a REQ. CONNECT_RESPONSE, REJECTED or UNREACHABLE follows. @returns the connection's id */
  connect(parameters: ConnectParameters, now: number, qpOptions: LocalQpOptions = {}): number {
    this.#context.now = now;
    return new ActiveConnection(this.#context, this.#context.allocateId(), parameters, qpOptions).localCommId;
  }

  /** Sends a SIDR_REQ for a datagram service. ESTABLISHED or UNREACHABLE follows. @returns the exchange's id */
  resolveService(parameters: SidrParameters, now: number): number {
    this.#context.now = now;
    const id = this.#context.allocateId();
    this.#sidr.resolve(id, parameters);
    return id;
  }

  /**
   * Accepts requests for a port: CONNECT_REQUEST events follow.
   * @returns the listener's handle
   * @throws VerbsError EADDRINUSE
   */
  listen(parameters: ListenParameters): number {
    return this.#listeners.add(parameters).handle;
  }

  /** Removes a listener. The application still decides about requests that it has received. */
  unlisten(listener: number): void {
    this.#listeners.remove(listener);
  }

  /** Whether a listener has the port, on any address. */
  isListening(space: ListenParameters['space'], port: number): boolean {
    return this.#listeners.hasPort(space, port);
  }

  /**
   * Returns the attributes of the queue pair for `accept` with these parameters. The queue pair must be in RTR before
   * `accept`.
   * @throws VerbsError EINVAL when the request has ended
   */
  prepareAccept(id: number, parameters: AcceptParameters, qpOptions: LocalQpOptions = {}): DerivedAttributes {
    return this.#find(id, PassiveConnection).prepareAccept(parameters, qpOptions);
  }

  /** Sends a REP. ESTABLISHED, REJECTED, DISCONNECTED or UNREACHABLE follows. @throws VerbsError EINVAL */
  accept(id: number, parameters: AcceptParameters, now: number): void {
    this.#context.now = now;
    this.#find(id, PassiveConnection).accept(parameters);
  }

  /** Sends a SIDR_REP that names the queue pair of a datagram service. @throws VerbsError EINVAL */
  acceptService(id: number, peer: DatagramPeer, privateData: Uint8Array, now: number): void {
    this.#context.now = now;
    this.#findPassiveSidr(id).reply(SidrStatus.SUCCESS, privateData, peer);
  }

  /** Sends an RTU after CONNECT_RESPONSE: the queue pair is in RTS. @throws VerbsError EINVAL */
  establish(id: number, privateData: Uint8Array, now: number): void {
    this.#context.now = now;
    this.#find(id, ActiveConnection).establish(privateData);
  }

  /** Data has arrived on the queue pair: the connection is established even if the RTU is lost. */
  communicationEstablished(id: number, now: number): void {
    this.#context.now = now;
    const connection = this.#context.connections.find(id);
    if (connection instanceof PassiveConnection) connection.onCommunicationEstablished();
  }

  /**
   * Sends a REJ for a REQ or REP, or a SIDR_REP that refuses.
   * @param reason see `RejectReason` @param info additional rejection information, at most 72 bytes
   * @throws VerbsError EINVAL when there is nothing to reject
   */
  reject(
    id: number,
    now: number,
    privateData = NO_DATA,
    reason: number = RejectReason.CONSUMER_DEFINED,
    info = NO_DATA,
  ) {
    this.#context.now = now;
    const sidr = this.#sidr.find(id);
    if (sidr instanceof PassiveSidr) sidr.reply(SidrStatus.REJECT, privateData);
    else this.#find(id, Connection).reject(reason, info, privateData);
  }

  /**
   * Sends a DREQ, and DISCONNECTED follows; or sends the DREP that a DREQ of the peer waits for. Does nothing when the
   * connection has ended.
   * @throws VerbsError EINVAL before the connection is established
   */
  disconnect(id: number, now: number, privateData = NO_DATA): void {
    this.#context.now = now;
    this.#context.connections.find(id)?.disconnect(privateData);
  }

  /**
   * Returns the DREQ of an established connection for the end of the process, without sending it. Undefined for every
   * other id.
   */
  writeExitDreq(id: number): Outgoing | undefined {
    return this.#context.connections.find(id)?.writeExitDreq();
  }

  /** Ends a connection or SIDR exchange with the message that fits its state. No further event follows. */
  close(id: number, now: number): void {
    this.#context.now = now;
    this.#context.connections.find(id)?.close();
    this.#sidr.find(id)?.close();
  }

  /** Closes all connections and SIDR exchanges. The caller sends the messages and then drops the core. */
  closeAll(now: number): void {
    const connections = Array.from(this.#context.connections, ({ localCommId }) => localCommId);
    for (const id of [...connections, ...this.#sidr.ids]) this.close(id, now);
  }

  // ---- messages and time ----

  /**
   * Handles a datagram that arrived at queue pair 1. Never throws: invalid datagrams are counted and dropped.
   * @returns whether a connection or an exchange has changed
   */
  receive(bytes: Uint8Array, route: Route, now: number): boolean {
    const context = this.#context;
    const before = context.changes;
    context.now = now;
    const header = parseHeader(bytes);
    if (typeof header === 'string') {
      this.#onOther(bytes, header, route);
    } else {
      context.count('rx_msgs', header.name);
      if (header.name === 'REQ' && this.#mustWait(header.body, route)) context.count('ignored', header.name);
      else this.#dispatch(parseBody(header), route);
    }
    return context.changes !== before;
  }

  /**
   * Handles an ICMP error for a message with `Outgoing.fails`: UNREACHABLE follows, or DISCONNECTED. Does nothing if
   * the id has ended or a reply has arrived.
   */
  fail(id: number, error: IcmpErrorCode, now: number): void {
    this.#context.now = now;
    this.#context.connections.find(id)?.onIcmpError(error);
    const sidr = this.#sidr.find(id);
    if (sidr instanceof ActiveSidr) sidr.endUnanswered(error);
  }

  /** Handles the deadlines that have passed. */
  expire(now: number): void {
    this.#context.now = now;
    for (;;) {
      const due = this.#context.deadlines.takeExpired(now);
      if (due === undefined) return;
      due.onDeadline();
    }
  }

  /** Returns the time for the next `expire`; Infinity when there is none. */
  nextDeadline(): number {
    return this.#context.deadlines.next;
  }

  /** Returns the messages to send, oldest first, and removes them. */
  takeMessages(): Outgoing[] {
    return this.#context.takeMessages();
  }

  /** Returns the events, oldest first, and removes them. */
  takeEvents(): CoreEvent[] {
    return this.#context.takeEvents();
  }

  // ---- queries ----

  /**
   * Returns the counters. `cm_rx_msgs.<message>`, `cm_tx_msgs.…`, `cm_tx_retries.…` and `cm_rx_duplicates.…` are as in
   * Linux. `cm_ignored.…` counts messages that do not fit the state, `cm_drop_…` datagrams that are no message.
   */
  counters(): Readonly<Record<string, number>> {
    return this.#context.counters;
  }

  /** Returns the state of a connection, or undefined when there is none with this id. */
  stateOf(id: number): ConnectionState | undefined {
    return this.#context.connections.find(id)?.state;
  }

  /** Whether an id names a connection or SIDR exchange. */
  has(id: number): boolean {
    return this.#context.connections.has(id) || this.#context.sidrIds.has(id);
  }

  /** Whether an id is that of the peer of a connection. */
  hasPeer(id: number): boolean {
    return this.#context.connections.hasPeer(id);
  }

  /** Returns the peer's communication id of a connection, or undefined while it is not known. */
  remoteCommIdOf(id: number): number | undefined {
    return this.#context.connections.find(id)?.peer.commId || undefined;
  }

  /** Number of connections and SIDR exchanges, including closed connections in DREQ_SENT or timewait. */
  get size(): number {
    return this.#context.connections.size + this.#sidr.ids.length;
  }

  /** Handles a datagram that is no message of a connection: answers a Get, and drops what is none. */
  #onOther(bytes: Uint8Array, fault: MadFault, route: Route): void {
    const reply = replyToGet(bytes);
    if (reply === undefined) {
      this.#context.count(`drop_${fault}`);
    } else {
      this.#context.count('rx_msgs', 'get');
      this.#context.sendBytes(route, 'get_resp', reply);
    }
  }

  #dispatch(message: Message, route: Route): void {
    switch (message.name) {
      case 'REQ':
        this.#onReq(message, route);
        break;
      case 'SIDR_REQ':
        this.#sidr.onSidrReq(message, route);
        break;
      case 'REP':
        this.#onRep(message, route);
        break;
      case 'SIDR_REP':
        this.#sidr.onSidrRep(message, route);
        break;
      case 'LAP':
      case 'APR':
        this.#context.count('ignored', message.name);
        break;
      default: {
        const connection = this.#connectionOf(message, gidText(route.remote));
        if (connection !== undefined) connection.receive(message);
        else this.#onUnknownConnection(message, route);
      }
    }
  }

  /**
   * Whether a REQ comes from a peer that has to wait, and belongs to no connection. Reads only what it needs, so that
   * most of a flood is not parsed.
   */
  #mustWait(req: DataView, route: Route): boolean {
    const { serviceId, localCaGuid, localCommId, localQpn } = LAYOUTS.REQ;
    const { connections, now } = this.#context;
    const service = parseServiceId(serviceId.read(req));
    const listeners = service ? this.#listeners.find(service.space, service.port) : [];
    const source = gidText(route.remote);
    if (listeners.length === 0 || !listeners.every((listener) => mustWait(listener, source, now))) return false;
    const guid = localCaGuid.read(req);
    return (
      connections.findByRemoteCommId(source, guid, localCommId.read(req)) === undefined &&
      connections.findByRemoteQpn(source, guid, localQpn.read(req)) === undefined
    );
  }

  #onReq(req: Message<'REQ'>, route: Route): void {
    const context = this.#context;
    const { connections } = context;
    const { localCaGuid, localCommId, localQpn } = req;
    const source = gidText(route.remote);
    const sameCommId = connections.findByRemoteCommId(source, localCaGuid, localCommId);
    if (sameCommId instanceof PassiveConnection && sameCommId.isRepeatedBy(req)) {
      sameCommId.onDuplicateReq(req, route);
      return;
    }
    // The same communication id in another REQ: the peer has restarted.
    const stale = sameCommId ?? connections.findByRemoteQpn(source, localCaGuid, localQpn);
    if (stale !== undefined) {
      sendRejFor(context, route, req, Subject.REQ, RejectReason.STALE_CONNECTION);
      stale.onStale();
      return;
    }
    if (connections.size >= this.#maxConnections) {
      context.count('ignored', 'REQ');
      return;
    }
    const admission = admit(req, source, this.#listeners, this.#host, context.partitions);
    if ('refused' in admission) {
      if (isForOtherCard(context.otherCards, req, route)) context.count('ignored', 'REQ');
      else sendRejFor(context, route, req, Subject.REQ, admission.refused, admission.info);
      return;
    }
    const { listener, hdr } = admission;
    if (mustWait(listener, source, context.now)) {
      context.count('ignored', 'REQ');
      return;
    }
    const displaced = listener.requests.size < listener.backlog ? undefined : listener.requests.oldestOfLargest();
    if (displaced instanceof PassiveConnection) displaced.displace();
    new PassiveConnection(context, context.allocateId(), req, listener, hdr, route);
  }

  #onRep(rep: Message<'REP'>, route: Route): void {
    const connection = this.#context.connections.find(rep.remoteCommId);
    const isFromPeer = connection?.remoteGid === gidText(route.remote);
    if (connection instanceof ActiveConnection && isFromPeer) connection.onRep(rep, route);
    else if (this.#context.otherCards.ownsCommId(rep.remoteCommId)) this.#context.count('ignored', rep.name);
    else sendRejFor(this.#context, route, rep, Subject.REP, RejectReason.INVALID_COMM_ID);
  }

  /** Finds the connection of a message. One from elsewhere than the connection's peer belongs to none. */
  #connectionOf(message: Message<'MRA' | 'REJ' | 'RTU' | 'DREQ' | 'DREP'>, source: string): Connection | undefined {
    const connection =
      message.name === 'REJ' ? this.#connectionOfRej(message, source) : this.#connectionOfOther(message);
    return connection?.remoteGid === source ? connection : undefined;
  }

  #connectionOfOther(message: Message<'MRA' | 'RTU' | 'DREQ' | 'DREP'>): Connection | undefined {
    const { connections } = this.#context;
    const { localCommId, remoteCommId } = message;
    const pair = connections.findByCommIds(remoteCommId, localCommId);
    // The peer's communication id is not known before its REP.
    if (pair !== undefined || (message.name !== 'MRA' && message.name !== 'DREQ')) return pair;
    const connection = connections.find(remoteCommId);
    return connection?.state === 'REQ_SENT' ? connection : undefined;
  }

  /** Finds the connection of a REJ (IBTA 12.6.7), in the same ways as Linux. */
  #connectionOfRej(rej: Message<'REJ'>, source: string): Connection | undefined {
    const { connections } = this.#context;
    if (rej.reason === RejectReason.TIMEOUT && rej.infoLength >= 8) {
      const { buffer, byteOffset } = rej.info;
      const guid = new DataView(buffer, byteOffset).getBigUint64(0);
      return connections.findByRemoteCommId(source, guid, rej.localCommId);
    }
    if (rej.messageRejected !== Subject.REQ) return connections.findByCommIds(rej.remoteCommId, rej.localCommId);
    const connection = connections.find(rej.remoteCommId);
    return connection?.state === 'REQ_SENT' ? connection : undefined;
  }

  #onUnknownConnection(message: Message, route: Route): void {
    this.#context.count('ignored', message.name);
    if (message.name !== 'DREQ' && message.name !== 'RTU') return;
    if (this.#context.otherCards.ownsCommId(message.remoteCommId)) return;
    const ids = { localCommId: message.remoteCommId, remoteCommId: message.localCommId };
    // A DREQ for an unknown connection is answered with a DREP (IBTA 12.9.8.3.2).
    if (message.name === 'DREQ') {
      this.#context.send(route, 'DREP', message.tid, ids);
      return;
    }
    if (this.#context.connections.has(message.remoteCommId)) return;
    // The client has taken longer than we keep a connection half-open. It would hold it for established.
    const reason = RejectReason.INVALID_COMM_ID;
    this.#context.send(route, 'REJ', message.tid, { ...ids, messageRejected: Subject.OTHER, reason });
  }

  #find<C extends Connection>(id: number, role: abstract new (...args: never[]) => C): C {
    const connection = this.#context.connections.find(id);
    if (connection instanceof role) return connection;
    const text = `0x${id.toString(16).padStart(8, '0')}`;
    throw new VerbsError(
      'EINVAL',
      connection ? `connection ${text} has the other role` : `connection ${text} has ended`,
    );
  }

  #findPassiveSidr(id: number): PassiveSidr {
    const sidr = this.#sidr.find(id);
    if (sidr instanceof PassiveSidr) return sidr;
    throw new VerbsError('EINVAL', `request 0x${id.toString(16).padStart(8, '0')} has ended`);
  }
}
