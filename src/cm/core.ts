/**
 * The communication manager without sockets, queue pairs and clocks. Messages of peers and calls of the program go in, with
 * the time; messages, events and the next deadline come out:
 *
 *     core.receive(bytes, { local, remote }, now);  core.connect(...);  core.expire(now);
 *     for (const { local, remote, bytes } of core.takeMessages()) ...
 *     for (const event of core.takeEvents()) ...
 *     wait until core.nextDeadline()
 *
 * After any call there may be messages, events and another deadline. Times are milliseconds without an origin; addresses
 * are IP addresses or GIDs as text. An id names a connection, or a question for a datagram service, until it has ended:
 * by CLOSED, that is after REJECTED, UNREACHABLE or TIMEWAIT_EXIT, or after `close`.
 */
import { VerbsError } from '../errors.js';
import { ActiveConnection, type ConnectParameters } from './active.js';
import { admit, type Host } from './admission.js';
import { Connection } from './connection.js';
import type { DerivedAttributes, OwnChoice } from './derive.js';
import type { CoreEvent, DatagramPeer } from './events.js';
import { Listeners, type ListenParameters } from './listeners.js';
import { parseMad } from './mad.js';
import { Manager, type ManagerOptions, type Outgoing, type Route, refuse } from './manager.js';
import { type Message, Subject } from './messages.js';
import { isServedByOthers } from './neighbours.js';
import { type AcceptParameters, PassiveConnection } from './passive.js';
import { RejectReason, SidrStatus } from './reasons.js';
import { Sidr, SidrInquiry, type SidrParameters } from './sidr.js';
import type { ConnectionState } from './states.js';

export interface CoreOptions extends ManagerOptions {
  readonly host: Host;
}

const NOTHING: Uint8Array = new Uint8Array(0);

export class CmCore {
  readonly #manager: Manager;
  readonly #host: Host;
  readonly #listeners = new Listeners();
  readonly #sidr: Sidr;

  constructor(options: CoreOptions) {
    this.#manager = new Manager(options);
    this.#host = options.host;
    this.#sidr = new Sidr(this.#manager, this.#listeners);
  }

  // ---- the program ----

  /** Asks for a connection: CONNECT_RESPONSE, REJECTED or UNREACHABLE follow. @returns its id */
  connect(parameters: ConnectParameters, now: number, own: OwnChoice = {}): number {
    this.#manager.now = now;
    return new ActiveConnection(this.#manager, this.#manager.newId(), parameters, own).id;
  }

  /** Asks where datagrams for a service go: ESTABLISHED or UNREACHABLE follow. @returns the question's id */
  resolveService(parameters: SidrParameters, now: number): number {
    this.#manager.now = now;
    const id = this.#manager.newId();
    this.#sidr.ask(id, parameters);
    return id;
  }

  /** From now on CONNECT_REQUEST events come. @returns a handle @throws VerbsError EADDRINUSE */
  listen(parameters: ListenParameters): number {
    return this.#listeners.add(parameters).handle;
  }

  /** Requests that were told of already are the program's to decide. */
  unlisten(listener: number): void {
    this.#listeners.remove(listener);
  }

  /** Somebody listens on the port, on whatever address. */
  isListening(space: ListenParameters['space'], port: number): boolean {
    return this.#listeners.isTaken(space, port);
  }

  /**
   * What accepting will mean for the queue pair, which has to be up before `accept`.
   * @throws VerbsError EINVAL when the request is not there any more
   */
  prepareAccept(id: number, parameters: AcceptParameters, own: OwnChoice = {}): DerivedAttributes {
    return this.#find(id, PassiveConnection).prepare(parameters, own).attributes;
  }

  /** Accepts a request: ESTABLISHED, REJECTED, DISCONNECTED or UNREACHABLE follow. @throws VerbsError EINVAL */
  accept(id: number, parameters: AcceptParameters, now: number): void {
    this.#manager.now = now;
    const connection = this.#find(id, PassiveConnection);
    connection.accept(connection.prepare(parameters).rep);
  }

  /** Answers a question for a datagram service. @throws VerbsError EINVAL */
  acceptDatagrams(id: number, peer: DatagramPeer, privateData: Uint8Array, now: number): void {
    this.#manager.now = now;
    this.#inquiry(id).answer(SidrStatus.SUCCESS, privateData, peer);
  }

  /** After CONNECT_RESPONSE: the queue pair is up, the connection is established. @throws VerbsError EINVAL */
  establish(id: number, privateData: Uint8Array, now: number): void {
    this.#manager.now = now;
    this.#find(id, ActiveConnection).establish(privateData);
  }

  /** Data has come on the connection's queue pair: it is established, even if the peer's RTU is lost. */
  communicationEstablished(id: number, now: number): void {
    this.#manager.now = now;
    const connection = this.#manager.connections.find(id);
    if (connection instanceof PassiveConnection) connection.onData();
  }

  /**
   * Refuses a request, or a reply.
   * @param reason see `RejectReason` @param info at most 72 bytes
   * @throws VerbsError EINVAL when there is nothing to refuse
   */
  reject(
    id: number,
    now: number,
    privateData = NOTHING,
    reason: number = RejectReason.CONSUMER_DEFINED,
    info = NOTHING,
  ) {
    this.#manager.now = now;
    const inquiry = this.#sidr.find(id);
    if (inquiry instanceof SidrInquiry) inquiry.answer(SidrStatus.REJECT, privateData);
    else this.#find(id, Connection).reject(reason, info, privateData);
  }

  /**
   * Ends a connection: DISCONNECTED follows; or agrees to the peer's end of it. Nothing when it has ended already.
   * @throws VerbsError EINVAL before it is established
   */
  disconnect(id: number, now: number, privateData = NOTHING): void {
    this.#manager.now = now;
    this.#find(id, Connection).disconnect(privateData);
  }

  /** Forgets a connection or question: the peer is told as fits its state, the program is told nothing any more. */
  close(id: number, now: number): void {
    this.#manager.now = now;
    this.#manager.connections.find(id)?.close();
    this.#sidr.find(id)?.close();
  }

  /** Closes all. What is to be sent then is the last: nothing is sent again. */
  closeAll(now: number): void {
    const connections = Array.from(this.#manager.connections, ({ id }) => id);
    for (const id of [...connections, ...this.#sidr.ids]) this.close(id, now);
  }

  // ---- peers and time ----

  /** Takes what came to queue pair 1. Whatever it is, nothing is thrown: what is wrong is counted and dropped. */
  receive(bytes: Uint8Array, route: Route, now: number): void {
    this.#manager.now = now;
    const message = parseMad(bytes);
    if (typeof message === 'string') {
      this.#manager.count(`drop_${message}`);
    } else {
      this.#manager.count('rx_msgs', message.name);
      this.#dispatch(message, route);
    }
  }

  /** Lets the deadlines that have come take effect. */
  expire(now: number): void {
    this.#manager.now = now;
    for (;;) {
      const due = this.#manager.deadlines.takeExpired(now);
      if (due === undefined) return;
      due.onDeadline();
    }
  }

  /** When `expire` has something to do; Infinity = never. */
  nextDeadline(): number {
    return this.#manager.deadlines.next;
  }

  /** What is to be sent, oldest first; each message once. */
  takeMessages(): Outgoing[] {
    return this.#manager.takeMessages();
  }

  takeEvents(): CoreEvent[] {
    return this.#manager.takeEvents();
  }

  // ---- for those who look ----

  /** `cm_rx_msgs.<message>`, `cm_tx_msgs.…`, `cm_tx_retries.…`, `cm_rx_duplicates.…` as Linux has them; `cm_ignored.…` for
   * what does not fit the connection's state; `cm_drop_…` for what is none of the messages. */
  counters(): Readonly<Record<string, number>> {
    return this.#manager.counters;
  }

  /** Undefined: there is no such connection (any more). */
  stateOf(id: number): ConnectionState | undefined {
    return this.#manager.connections.find(id)?.state;
  }

  /** The peer's id of a connection; undefined while it is not known. */
  peerOf(id: number): number | undefined {
    return this.#manager.connections.find(id)?.peer.commId || undefined;
  }

  /** Connections and questions that are known, also of those that have been closed and are still saying good-bye. */
  get size(): number {
    return this.#manager.connections.size + this.#sidr.ids.length;
  }

  #dispatch(message: Message, route: Route): void {
    switch (message.name) {
      case 'REQ':
        this.#onReq(message, route);
        break;
      case 'REP':
        this.#onRep(message, route);
        break;
      case 'SIDR_REQ':
        this.#sidr.onSidrReq(message, route);
        break;
      case 'SIDR_REP':
        this.#sidr.onSidrRep(message);
        break;
      case 'LAP':
      case 'APR':
        this.#manager.count('ignored', message.name);
        break;
      default: {
        const connection = this.#connectionOf(message);
        if (connection !== undefined) connection.receive(message);
        else this.#onUnknown(message, route);
      }
    }
  }

  #onReq(req: Message<'REQ'>, route: Route): void {
    const manager = this.#manager;
    const { connections } = manager;
    const { localCaGuid, localCommId, localQpn, startingPsn } = req;
    const known = connections.findRemoteId(localCaGuid, localCommId);
    const isSame = known?.peer.qpn === localQpn && known.req.startingPsn === startingPsn;
    // The same id for something else: the peer has started anew.
    const old = known ?? connections.findRemoteQpn(localCaGuid, localQpn);
    if (known instanceof PassiveConnection && isSame) {
      known.onDuplicateReq(req, route);
    } else if (old !== undefined) {
      refuse(manager, route, req, Subject.REQ, RejectReason.STALE_CONNECTION);
      old.onStale();
    } else {
      const admission = admit(req, this.#listeners, this.#host, manager.partitions);
      if ('refused' in admission) {
        if (isServedByOthers(manager.others, req, route)) manager.count('ignored', req.name);
        else refuse(manager, route, req, Subject.REQ, admission.refused, admission.info);
      } else new PassiveConnection(manager, manager.newId(), req, admission.listener, admission.hdr);
    }
  }

  #onRep(rep: Message<'REP'>, route: Route): void {
    const connection = this.#manager.connections.find(rep.remoteCommId);
    if (connection instanceof ActiveConnection) connection.onRep(rep, route);
    else if (this.#manager.others.hasId(rep.remoteCommId)) this.#manager.count('ignored', rep.name);
    else refuse(this.#manager, route, rep, Subject.REP, RejectReason.INVALID_COMM_ID);
  }

  #connectionOf(message: Message<'MRA' | 'REJ' | 'RTU' | 'DREQ' | 'DREP'>): Connection | undefined {
    const { connections } = this.#manager;
    const { localCommId, remoteCommId } = message;
    if (message.name === 'REJ') return this.#rejected(message);
    const pair = connections.findPair(remoteCommId, localCommId);
    // The peer's id is news while our REQ is unanswered.
    if (pair !== undefined || (message.name !== 'MRA' && message.name !== 'DREQ')) return pair;
    const connection = connections.find(remoteCommId);
    return connection?.state === 'REQ_SENT' ? connection : undefined;
  }

  /** Which connection a REJ is about: see IBTA 12.6.7, and Linux, which finds it in the same ways. */
  #rejected(rej: Message<'REJ'>): Connection | undefined {
    const { connections } = this.#manager;
    if (rej.reason === RejectReason.TIMEOUT && rej.infoLength >= 8) {
      const { buffer, byteOffset } = rej.info;
      return connections.findRemoteId(new DataView(buffer, byteOffset).getBigUint64(0), rej.localCommId);
    }
    if (rej.messageRejected !== Subject.REQ) return connections.findPair(rej.remoteCommId, rej.localCommId);
    const connection = connections.find(rej.remoteCommId);
    return connection?.state === 'REQ_SENT' ? connection : undefined;
  }

  #onUnknown(message: Message, route: Route): void {
    this.#manager.count('ignored', message.name);
    if (message.name !== 'DREQ' || this.#manager.others.hasId(message.remoteCommId)) return;
    // Who ends what we do not know of shall be content (IBTA 12.9.8.3.2).
    const ids = { localCommId: message.remoteCommId, remoteCommId: message.localCommId };
    this.#manager.send(route, 'DREP', message.tid, ids);
  }

  #find<C extends Connection>(id: number, role: abstract new (...args: never[]) => C): C {
    const connection = this.#manager.connections.find(id);
    if (connection instanceof role) return connection;
    const what = `0x${id.toString(16).padStart(8, '0')}`;
    throw new VerbsError(
      'EINVAL',
      connection ? `connection ${what} has the other role` : `connection ${what} has ended`,
    );
  }

  #inquiry(id: number): SidrInquiry {
    const inquiry = this.#sidr.find(id);
    if (inquiry instanceof SidrInquiry) return inquiry;
    throw new VerbsError('EINVAL', `request 0x${id.toString(16).padStart(8, '0')} is not there any more`);
  }
}
