/**
 * The connection of an id below its API (in Linux the ib_cm_id, and cma_ib_handler): calls into the core, the core's
 * events, and what follows from them for the queue pair, the event channel and pending calls.
 */

import type { Channel } from 'node:diagnostics_channel';
import type { Deferred } from '../base/deferred.js';
import { diagnostics, publishTo } from '../base/diagnostics.js';
import { LIMITS } from '../device/codes.js';
import type { Qp } from '../verbs/objects/qp.js';
import type { DatagramDestination, Established } from './channel.js';
import { abandonedError, CmError, disconnectedError, rejectedError, unreachableError } from './cmerror.js';
import type { CmId, CmIdState } from './cmid.js';
import type { ConnectParameters } from './core/active.js';
import type { CmCore } from './core/core.js';
import type { DerivedAttributes, LocalQpOptions } from './core/derive.js';
import type { CmAddress, ConnectReply, CoreEvent, DatagramPeer } from './core/events.js';
import { isExitData } from './core/exit.js';
import { NO_DATA } from './core/messages.js';
import { PACKET_LIFE_TIME } from './core/times.js';
import { Destinations } from './destinations.js';
import type { MadAgent } from './madagent.js';
import { type CheckedConnParam, smallerOffer } from './parameters.js';
import type { Path } from './path.js';
import { toError, toRtr, toRts } from './qpstates.js';

/** Every id has one. `CmId` sets the state, the addresses and the queue pair before it connects or accepts. */
export class IdConnection {
  state: CmIdState = 'IDLE';
  /** The reason for the state FAILED. */
  failure: Error | undefined;
  /** Set with the local address. */
  agent: MadAgent | undefined;
  qp: Qp | undefined;
  local: CmAddress | undefined;
  remote: CmAddress | undefined;
  path: Path | undefined;
  /** The core's id of the connection or SIDR exchange; 0: none. */
  #coreId = 0;
  readonly #startingPsn: number;
  /** Parameters of the REQ that was sent. */
  #requested: CheckedConnParam | undefined;
  /** Attributes of the REP that was sent, until the queue pair is in RTS. */
  #accepted: DerivedAttributes | undefined;
  /** Settles once the queue pair of an accepted connection is in RTS. */
  #toRts: Promise<void> | undefined;
  #destinations: Destinations | undefined;
  #connecting: Deferred<Established> | Deferred<Established | undefined> | undefined;
  #disconnecting: Deferred<void> | undefined;
  /** Drops the DREQ that is kept for the end of the process. */
  #dropDreq: (() => void) | undefined;
  /** Diagnostics have its opening, and not yet its end. */
  #isReported = false;

  constructor(readonly id: CmId) {
    this.#startingPsn = id.device.card.exports.randomPsn();
  }

  /** Services and groups whose address handles belong to the id. Ids of connections have none. */
  get destinations(): Destinations {
    this.#destinations ??= new Destinations(this.id);
    return this.#destinations;
  }

  /** Leaves all groups and retires all address handles of the id. */
  closeDestinations(): void {
    this.#destinations?.close();
  }

  /** The promise of a `disconnect` that has begun. */
  get disconnecting(): Promise<void> | undefined {
    return this.#disconnecting?.promise;
  }

  // ---- calls of the id ----

  /**
   * Sends the REQ, or the SIDR_REQ of a datagram service. `pending` settles with the first event that ends the attempt.
   */
  connect(param: CheckedConnParam, pending: Deferred<Established>): void {
    this.#connecting = pending;
    this.state = 'CONNECTING';
    this.#request(param);
  }

  #request(param: CheckedConnParam): void {
    this.#requested = param;
    this.#callCore((core, now) => {
      if (this.id.space === 'UDP') {
        const [source, destination] = [this.local as CmAddress, this.remote as CmAddress];
        const { privateData } = param;
        const { pkeyIndex } = this.id;
        this.attach(core.resolveService({ source, destination, privateData, pkeyIndex }, now));
      } else this.attach(core.connect(this.#connectParameters(param), now, this.#localQpOptions()));
    });
  }

  /** Sends the RTU: the application has brought its queue pair to RTS. */
  establish(): void {
    this.#callCore((core, now) => core.establish(this.#coreId, NO_DATA, now));
    this.#established(NO_DATA);
  }

  /** Returns the attributes of our queue pair for a REP with these parameters. @throws VerbsError EINVAL */
  prepareAccept(param: CheckedConnParam): DerivedAttributes {
    const qpOptions = { retryCnt: param.retryCnt, ...this.#localQpOptions() };
    return this.#callCore((core) => core.prepareAccept(this.#coreId, this.#repFields(param), qpOptions));
  }

  /** Brings the queue pair to RTR and sends the REP. */
  accept(param: CheckedConnParam, pending: Deferred<Established | undefined>): void {
    const attributes = this.prepareAccept(param);
    this.#connecting = pending;
    this.state = 'CONNECTING';
    void this.#accept(param, attributes);
  }

  /** Sends the SIDR_REP that names our queue pair. */
  acceptService({ qpNum, qkey, privateData }: CheckedConnParam): void {
    this.#callCore((core, now) => core.acceptService(this.#coreId, { qpNum, qkey }, privateData, now));
    this.state = 'ESTABLISHED';
  }

  /**
   * Sends a REJ, or a SIDR_REP that refuses.
   * @param reason code of `RejectReason`
   * @param error for a pending `connect`
   */
  reject(reason: number, privateData: Uint8Array, error: Error): void {
    this.#callCore((core, now) => core.reject(this.#coreId, now, privateData, reason));
    this.setFailed(error);
    this.#report(diagnostics.connectionRefuse, { error });
    this.#connecting?.reject(error);
  }

  /** The id can only be closed. @param error the reason, for later calls */
  setFailed(error: Error): void {
    this.state = 'FAILED';
    this.failure = error;
  }

  /** Brings the queue pair to ERR and sends the DREQ. */
  disconnect(privateData: Uint8Array, pending: Deferred<void>): void {
    this.#disconnecting = pending;
    void this.#disconnect(privateData);
  }

  /** Data has arrived before the RTU (COMM_EST). */
  communicationEstablished(): void {
    if (this.id.isAlive && this.#coreId !== 0)
      this.#callCore((core, now) => core.communicationEstablished(this.#coreId, now));
  }

  /** From now on the core's events of a connection or SIDR exchange are handled here. */
  attach(coreId: number): void {
    const agent = this.agent as MadAgent;
    agent.unsubscribe(this.#coreId);
    this.#coreId = coreId;
    agent.subscribe(coreId, (event) => this.#onEvent(event));
  }

  /** Ends the connection in the core, whatever its state, and receives no further events. */
  detach(): void {
    const { agent } = this;
    this.#dropDreq?.();
    this.#reportEnd('local');
    agent?.unsubscribe(this.#coreId);
    if (this.#coreId !== 0) agent?.callCore((core, now) => core.close(this.#coreId, now));
  }

  /** Rejects pending calls. @param errorOf makes their error; most ids have no pending call */
  rejectPending(errorOf: () => Error): void {
    const pending = [this.#connecting, this.#disconnecting].filter((call) => call?.isPending);
    if (pending.length === 0) return;
    const error = errorOf();
    for (const call of pending) call?.reject(error);
  }

  #callCore<T>(call: (core: CmCore, now: number) => T): T {
    return (this.agent as MadAgent).callCore(call);
  }

  /**
   * Returns the fields of a REQ. Where much connects, a spread comes last, here and elsewhere: V8 makes hidden classes
   * of its own for fields that follow one.
   */
  #connectParameters(param: CheckedConnParam): ConnectParameters {
    const { tos, ackTimeout, qpType } = this.id.options;
    const { mtu, hopLimit } = this.path as Path;
    return {
      source: this.local as CmAddress,
      destination: this.remote as CmAddress,
      pkeyIndex: this.id.pkeyIndex,
      space: 'TCP',
      transport: qpType ?? 'RC',
      startingPsn: this.#startingPsn,
      pathMtu: mtu,
      hopLimit,
      trafficClass: tos ?? 0,
      sl: this.id.sl,
      packetLifeTime: ackTimeout === undefined ? PACKET_LIFE_TIME : ackTimeout - 1,
      ...param,
    };
  }

  #repFields(param: CheckedConnParam) {
    return { startingPsn: this.#startingPsn, ...param };
  }

  #localQpOptions(): LocalQpOptions {
    const { access, minRnrTimer } = this.id.options;
    const { maxRdAtomic } = LIMITS;
    return { maxRdAtomic, ...(access && { access }), ...(minRnrTimer !== undefined && { minRnrTimer }) };
  }

  /**
   * The queue pair is in RTR before the peer learns that it may send. It goes to RTS when the peer is known to be
   * ready.
   */
  async #accept(param: CheckedConnParam, attributes: DerivedAttributes): Promise<void> {
    try {
      this.#accepted = attributes;
      if (this.qp !== undefined) await toRtr(this.qp, attributes, param.flowControl);
      if (!this.id.isClosed) this.#callCore((core, now) => core.accept(this.#coreId, this.#repFields(param), now));
    } catch (error) {
      this.#onQpError(error);
    }
  }

  async #disconnect(privateData: Uint8Array): Promise<void> {
    try {
      await toError(this.qp);
      // the peer may have disconnected meanwhile
      if (!this.id.isClosed && this.state === 'ESTABLISHED')
        this.#callCore((core, now) => core.disconnect(this.#coreId, now, privateData));
      this.#dropDreq?.();
    } catch (error) {
      this.#disconnecting?.reject(error);
    }
  }

  // ---- events of the core ----

  #onEvent(event: CoreEvent): void {
    const { id } = this;
    switch (event.type) {
      case 'CONNECT_RESPONSE':
        void this.#onReply(event.reply);
        break;
      case 'ESTABLISHED':
        if (event.datagram) void this.#onService(event.datagram, event.privateData);
        else this.#toRts = this.#onReady(event.privateData);
        break;
      case 'REJECTED':
        this.#onRejected(event);
        break;
      case 'UNREACHABLE':
        this.#fail('UNREACHABLE', unreachableError(this.#peerText(), event));
        break;
      case 'DISCONNECTED':
        void this.#onDisconnected(event);
        break;
      case 'TIMEWAIT_EXIT':
        id.channel.push({ id, type: 'TIMEWAIT_EXIT' });
        break;
      case 'CONNECT_REQUEST':
        break;
    }
  }

  #onRejected({ reason, privateData }: Extract<CoreEvent, { type: 'REJECTED' }>): void {
    // Of a connection that was refused after its REP, or has overtaken it, timewait remains.
    const isUnanswered = this.#callCore((core) => core.stateOf(this.#coreId)) === undefined;
    const smaller =
      isUnanswered && this.#requested !== undefined ? smallerOffer(this.#requested, reason, privateData) : undefined;
    if (smaller !== undefined) this.#request(smaller);
    else {
      const errorOf = this.id.request === undefined ? rejectedError : abandonedError;
      this.#fail('REJECTED', errorOf(this.#peerText(), reason, privateData));
    }
  }

  async #onReply(reply: ConnectReply): Promise<void> {
    const { id, qp } = this;
    if (qp === undefined) {
      id.channel.push({ id, type: 'CONNECT_RESPONSE', reply });
      return;
    }
    try {
      await toRtr(qp, reply.attributes, this.#requested?.flowControl === true && reply.flowControl);
      await toRts(qp, reply.attributes);
      if (id.isClosed || this.state !== 'CONNECTING') return;
      this.#callCore((core, now) => core.establish(this.#coreId, NO_DATA, now));
      this.#established(reply.privateData);
    } catch (error) {
      this.#onQpError(error);
    }
  }

  /**
   * The peer is ready: its RTU or its data has arrived. The queue pair has stayed in RTR until now, so that data could
   * tell (IBTA 12.9.7.2, 11.6.3.2).
   */
  async #onReady(privateData: Uint8Array): Promise<void> {
    const accepted = this.#accepted;
    // not needed again, and there may be many connections
    this.#accepted = undefined;
    try {
      if (this.qp !== undefined && accepted !== undefined) await toRts(this.qp, accepted);
      if (!this.id.isClosed && this.state === 'CONNECTING') this.#established(privateData);
    } catch (error) {
      this.#onQpError(error);
    }
  }

  async #onService(peer: DatagramPeer, privateData: Uint8Array): Promise<void> {
    const { id } = this;
    try {
      const { address } = this.remote as CmAddress;
      const { sgidIndex } = this.path as Path;
      const datagram = await this.destinations.resolve(address, peer, this.qp, sgidIndex);
      if (id.isAlive) this.#established(privateData, datagram);
    } catch (error) {
      if (!id.isAlive) return;
      this.#fail('UNREACHABLE', new CmError('EHOSTUNREACH', (error as Error).message, 'UNREACHABLE'));
    }
  }

  /**
   * The queue pair goes to ERR before the DREP leaves: the peer may free the connection's memory when it has the DREP.
   */
  async #onDisconnected({
    privateData,
    timedOut,
    reason,
  }: Extract<CoreEvent, { type: 'DISCONNECTED' }>): Promise<void> {
    const { id } = this;
    this.#dropDreq?.();
    await this.#toRts;
    if (!id.isAlive) return;
    const wasConnected = this.state === 'ESTABLISHED';
    this.state = 'DISCONNECTED';
    await toError(this.qp);
    if (!id.isAlive) return;
    this.#callCore((core, now) => core.disconnect(this.#coreId, now));
    const error = reason === undefined ? undefined : disconnectedError(this.#peerText(), reason, privateData);
    this.#reportEnd(this.#disconnecting === undefined ? 'peer' : 'local', error);
    const exit = isExitData(privateData) && ({ hasExited: true } as const);
    id.channel.push({ id, type: 'DISCONNECTED', privateData, timedOut, ...exit, ...(error && { error }) });
    if (!wasConnected) {
      const failure = error ?? disconnectedError(this.#peerText(), undefined, privateData);
      this.#report(diagnostics.connectionRefuse, { error: failure });
      this.#connecting?.reject(failure);
    }
    this.#disconnecting?.resolve();
  }

  #established(privateData: Uint8Array, datagram?: DatagramDestination): void {
    const { id } = this;
    this.state = 'ESTABLISHED';
    if (id.space === 'TCP') this.#dropDreq = this.agent?.keepDreq(this.#coreId);
    this.#isReported = true;
    this.#report(diagnostics.connectionOpen);
    const event = { id, type: 'ESTABLISHED', privateData, ...(datagram && { datagram }) } as const;
    id.channel.push(event);
    this.#connecting?.resolve({ ...event });
  }

  #fail(type: 'REJECTED' | 'UNREACHABLE', error: CmError): void {
    const { id } = this;
    const wasRequested = this.state === 'REQUESTED';
    this.setFailed(error);
    this.#report(diagnostics.connectionRefuse, { error });
    id.channel.push({ id, type, error });
    this.#connecting?.reject(error);
    if (wasRequested) id.onAbandoned();
  }

  /** The queue pair could not be brought up, or the core has ended the connection meanwhile. */
  #onQpError(error: unknown): void {
    const { id } = this;
    if (id.isClosed || this.state !== 'CONNECTING') return;
    this.setFailed(error as Error);
    this.#report(diagnostics.connectionRefuse, { error });
    this.#callCore((core, now) => core.close(this.#coreId, now));
    id.channel.push({ id, type: 'CONNECT_ERROR', error: error as Error });
    this.#connecting?.reject(error);
  }

  /** The device has failed. */
  onDeviceFailure(error: Error): void {
    this.setFailed(error);
    this.#reportEnd('device', error);
  }

  #reportEnd(endedBy: 'local' | 'peer' | 'device', error?: Error): void {
    if (!this.#isReported) return;
    this.#isReported = false;
    this.#report(diagnostics.connectionClose, { endedBy, error });
  }

  /** Datagram services are no connections. */
  #report(to: Channel, more: object = {}): void {
    const { id, qp, local, remote } = this;
    if (id.space !== 'TCP') return;
    const side = id.request === undefined ? 'client' : 'server';
    publishTo(to, () => ({ device: id.device, side, local, remote, qp, ...more }));
  }

  #peerText(): string {
    return `${this.remote?.address} port ${this.remote?.port}`;
  }
}
