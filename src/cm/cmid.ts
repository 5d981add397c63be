/**
 * Ids (rdma_cm_id): one end of a connection or datagram service, or a listener. This file is their API: it checks the
 * calls and the state; `IdConnection` carries them out.
 */

import { isWildcard } from '../base/address.js';
import { Deferred } from '../base/deferred.js';
import { gidAddress } from '../base/gid.js';
import {
  anything,
  type Checks,
  checkBoolean,
  checkInteger,
  checkOptions,
  instanceOf,
  integer,
  oneOf,
} from '../base/options.js';
import { checkWait, WAIT_CHECKS, type WaitOptions, waitFor } from '../base/waiting.js';
import { invalidValue, VerbsError, withDetails } from '../errors.js';
import { checkZone } from '../link/zones.js';
import { type AccessName, accessBits } from '../verbs/access.js';
import type { Description } from '../verbs/diagnose/describe.js';
import type { Context } from '../verbs/objects/context.js';
import type { AsyncEvent } from '../verbs/objects/events.js';
import type { Pd } from '../verbs/objects/pd.js';
import type { Qp } from '../verbs/objects/qp.js';
import type { QpOptions } from '../verbs/objects/qpoptions.js';
import { Resource } from '../verbs/objects/resource.js';
import { BoundPorts } from './boundports.js';
import { type CmEvent, type DatagramDestination, type Established, EventChannel } from './channel.js';
import { CmError } from './cmerror.js';
import type { DerivedAttributes } from './core/derive.js';
import type { CmAddress, ConnectRequest, CoreEvent } from './core/events.js';
import { RejectReason, type RejectReasonName } from './core/reasons.js';
import { IdConnection } from './idconnection.js';
import { MadAgent } from './madagent.js';
import {
  type CheckedConnParam,
  CONNECT_DEFAULTS,
  type ConnParam,
  checkConnParam,
  checkPrivateData,
  PRIVATE_DATA_BYTES,
  UDP_QKEY,
} from './parameters.js';
import { findPath } from './path.js';
import { checkPkeyIndex } from './pkeys.js';

/** Options of `createCmId`. A listener passes them on to the ids of its requests. */
export interface CmIdOptions {
  /** Port space: connections (RDMA_PS_TCP) or datagram services (RDMA_PS_UDP). Default `TCP`. */
  readonly space?: 'TCP' | 'UDP';
  /** Transport of connections: reliable or unreliable. Default `RC`. */
  readonly qpType?: 'RC' | 'UC';
  /** Channel for the id's events. Default: a new channel. */
  readonly channel?: EventChannel;
  /** IPv4 TOS or IPv6 traffic class of the connection, 0..255 (RDMA_OPTION_ID_TOS). Default 0. */
  readonly tos?: number;
  /**
   * Service level of the connection, 0..7: the priority (PCP) of its frames where the route leaves by a VLAN. A server
   * takes that of the client's REQ. Default: the upper three bits of `tos`, as in Linux.
   */
  readonly sl?: number;
  /**
   * Index into the device's P_Key table (`device.queryPkey`): the partition of the queue pair, and of the messages that
   * connect it. The connection of a request is in the partition that the client's REQ names. Default: the entry of the
   * default partition, 0xffff or 0x7fff; without one, 0.
   */
  readonly pkeyIndex?: number;
  /**
   * ACK timeout that `connect` asks for, 1..31: 4.096 us * 2^n (RDMA_OPTION_ID_ACK_TIMEOUT). The ACK delays of both
   * cards are a lower bound. Default 17, which is 537 ms.
   */
  readonly ackTimeout?: number;
  /** RNR timer of our queue pair, a code: see `QpAttributes.minRnrTimer`. Default 0, which is 655 ms, as in Linux. */
  readonly minRnrTimer?: number;
  /** Whether a listener on `::` gets requests to IPv6 addresses alone (RDMA_OPTION_ID_AFONLY). Default false. */
  readonly ipv6Only?: boolean;
  /** Rights of the peer in addition to WRITE, and to READ, atomics and FLUSH when `responderResources` is not 0. */
  readonly access?: readonly AccessName[];
}

const CHECKS: Checks<CmIdOptions> = {
  space: oneOf('TCP', 'UDP'),
  qpType: oneOf('RC', 'UC'),
  channel: instanceOf(() => EventChannel, 'an event channel'),
  tos: integer(0, 255),
  sl: integer(0, 7),
  pkeyIndex: anything,
  ackTimeout: integer(1, 31),
  minRnrTimer: integer(0, 31),
  ipv6Only: checkBoolean,
  access: accessBits,
};

/**
 * State of an id. `REQUESTED`: it came with CONNECT_REQUEST. `FAILED`: the peer rejected or did not reply, this end
 * rejected, or the device has failed; the id can only be closed.
 */
export type CmIdState =
  | 'IDLE'
  | 'BOUND'
  | 'LISTENING'
  | 'ADDR_RESOLVED'
  | 'ROUTE_RESOLVED'
  | 'REQUESTED'
  | 'CONNECTING'
  | 'ESTABLISHED'
  | 'DISCONNECTED'
  | 'FAILED';

/**
 * Creates an id for one connection, datagram service or listener (rdma_create_id).
 * @throws TypeError, RangeError for invalid options; VerbsError EINVAL, EIO when the device is closed or has failed
 */
export function createCmId(device: Context, options: CmIdOptions = {}): CmId {
  device.assertOpen();
  return new CmId(device, options);
}

/**
 * One end of a connection or datagram service, or a listener (rdma_cm_id). `createCmId` creates ids; a listener creates
 * one for each request. Calls resolve when they are complete; the same is reported as events of `channel`.
 * @example
 * const id = createCmId(device);
 * await id.resolveAddr('10.0.0.2', 7174);
 * await id.resolveRoute();
 * const qp = await id.createQp(pd, { sendCq });
 * qp.postRecv({ wrId: 1, sgList: mr.sge(0, 1024) });
 * await id.connect();
 * // ... use qp ...
 * await id.disconnect();
 * await id.close();
 */
export class CmId extends Resource {
  /** `cm id`. */
  readonly kind = 'cm id';
  readonly label: string;
  /** Channel of the id's events. */
  readonly channel: EventChannel;
  /** Port space: `TCP` for connections, `UDP` for datagram services. */
  readonly space: 'TCP' | 'UDP';
  /** @internal Index of the P_Key of the id's requests. */
  readonly pkeyIndex: number;
  readonly #connection: IdConnection;
  /** Handle of the core's listener; 0: none. */
  #listener = 0;
  /** Listener of the request that the id came with. */
  #listenId: CmId | undefined;
  #request: ConnectRequest | undefined;
  #ownsQp = false;

  /** @internal Use `createCmId`. */
  constructor(
    /** Device of the id. */
    readonly device: Context,
    /** Options that the id was created with. */
    readonly options: CmIdOptions,
  ) {
    super([device]);
    this.label = String(device.nextNumber());
    checkOptions('createCmId', options, CHECKS);
    this.pkeyIndex = checkPkeyIndex(device, options.pkeyIndex);
    this.space = options.space ?? 'TCP';
    this.channel = options.channel ?? new EventChannel();
    this.#connection = new IdConnection(this);
    this.addToParents();
    this.channel.addId();
  }

  /** Current state. */
  get state(): CmIdState {
    return this.#connection.state;
  }

  /** Queue pair of the id; undefined before `createQp` or `useQp`. */
  get qp(): Qp | undefined {
    return this.#connection.qp;
  }

  /** Local address and port (rdma_get_local_addr); undefined before the id is bound. */
  get localAddress(): CmAddress | undefined {
    return this.#connection.local;
  }

  /** Address and port of the peer (rdma_get_peer_addr); undefined for listeners and before `resolveAddr`. */
  get remoteAddress(): CmAddress | undefined {
    return this.#connection.remote;
  }

  /** @internal Service level of a REQ and of datagrams. */
  get sl(): number {
    return this.options.sl ?? (this.options.tos ?? 0) >> 5;
  }

  /** The client's request, for an id that came with CONNECT_REQUEST. */
  get request(): ConnectRequest | undefined {
    return this.#request;
  }

  // ---- addresses ----

  /**
   * Binds the id to an address and port (rdma_bind_addr).
   * @param address an address of the device; `0.0.0.0`: all IPv4 addresses; `::`: all addresses
   * @param port 0..65535; 0: any free port
   * @throws TypeError, RangeError; VerbsError EADDRNOTAVAIL when the device does not have the address, EADDRINUSE when
   * no port is free, EINVAL in another state than IDLE, ENOMEM
   */
  async bindAddr(address: string, port = 0): Promise<void> {
    try {
      this.#expectState('bindAddr', 'IDLE');
      this.#connection.agent = await MadAgent.of(this.device);
      this.#bind(address, port);
    } catch (error) {
      throw withDetails(error, { syscall: 'bindAddr', address, port });
    }
  }

  /** @internal As `bindAddr`, at once. The device answers messages after `listen` at the latest. */
  bindNow(address: string, port: number): void {
    try {
      this.#bind(address, port);
    } catch (error) {
      throw withDetails(error, { syscall: 'bindAddr', address, port });
    }
  }

  /**
   * Resolves our address for a peer, the route and the MAC of the next hop (rdma_resolve_addr). Event: ADDR_RESOLVED or
   * ADDR_ERROR.
   * @param address IP address of the peer, or of a multicast group @param port port of the peer, 0..65535; 0: none, to
   * join groups
   * @throws TypeError, RangeError; VerbsError EADDRNOTAVAIL, EHOSTUNREACH, ETIMEDOUT, EINVAL, ENOMEM; the signal's
   * reason
   */
  async resolveAddr(address: string, port: number, wait: WaitOptions = {}): Promise<void> {
    this.#expectState('resolveAddr', 'IDLE', 'BOUND');
    checkInteger('port', port, 0, 65535);
    const destination = gidAddress(address);
    try {
      const path = await waitFor(
        findPath(this.device, address, this.localAddress?.address),
        `${destination} is not resolved`,
        wait,
      );
      const agent = await MadAgent.of(this.device);
      this.#connection.agent = agent;
      this.#expectState('resolveAddr', 'IDLE', 'BOUND');
      this.#connection.path = path;
      const localPort = this.localAddress?.port ?? BoundPorts.of(this.device).bind(this.space, 0);
      this.#connection.local = { address: path.source, port: localPort };
      this.#connection.remote = { address: destination, port };
    } catch (cause) {
      const error = withDetails(cause, { syscall: 'resolveAddr', address, port }) as Error;
      this.channel.push({ id: this, type: 'ADDR_ERROR', error });
      throw error;
    }
    this.#connection.state = 'ADDR_RESOLVED';
    this.channel.push({ id: this, type: 'ADDR_RESOLVED' });
  }

  /**
   * Completes the route (rdma_resolve_route). `resolveAddr` has found all of it already. Event: ROUTE_RESOLVED.
   * @throws VerbsError EINVAL in another state than ADDR_RESOLVED
   */
  async resolveRoute(): Promise<void> {
    this.#expectState('resolveRoute', 'ADDR_RESOLVED');
    this.#connection.state = 'ROUTE_RESOLVED';
    this.channel.push({ id: this, type: 'ROUTE_RESOLVED' });
  }

  // ---- queue pair ----

  /**
   * Creates a queue pair for the id (rdma_create_qp): RC or UC in INIT, so that receives can be posted; UD in RTS. The
   * queue pair is closed with the id.
   * @throws as `pd.createQp`; VerbsError EINVAL when the id has a queue pair, or is closed meanwhile
   */
  async createQp(pd: Pd, options: Omit<QpOptions, 'type'>): Promise<Qp> {
    const qp = await pd.createQp({ ...options, type: this.#isDatagram ? 'UD' : (this.options.qpType ?? 'RC') });
    try {
      await this.useQp(qp);
      // closed meanwhile, when the queue pair was not the id's yet
      this.assertOpen();
    } catch (error) {
      await qp.close();
      throw error;
    }
    this.#ownsQp = true;
    return qp;
  }

  /**
   * Uses a queue pair of the application for the id. It must be in RESET, and is brought to INIT, UD to RTS. It stays
   * open when the id is closed.
   * @throws TypeError for a queue pair of another device; VerbsError EINVAL when the id has a queue pair; as
   * `qp.modify`
   */
  async useQp(qp: Qp): Promise<void> {
    this.assertOpen();
    if (this.qp !== undefined) throw new VerbsError('EINVAL', `${this} has ${this.qp} already`);
    if (qp.device !== this.device) throw invalidValue(`${qp} belongs to another device than ${this}`);
    this.#connection.qp = qp;
    const { pkeyIndex } = this;
    if (qp.type === 'UD') {
      await qp.activate({ qkey: UDP_QKEY, pkeyIndex });
      return;
    }
    await qp.modify({ state: 'INIT', pkeyIndex, portNum: 1, qpAccessFlags: ['remoteWrite'] });
    qp.on('event', this.#onQpEvent);
  }

  // ---- active side ----

  /**
   * Connects (rdma_connect), or resolves a datagram service. With a queue pair, ESTABLISHED is the next event. Without
   * one it is CONNECT_RESPONSE, and the application calls `establish`. A REQ that asks for more than 16 READs and is
   * refused for it, or without a word, is followed by one that asks for 16; one that asks for up to 16 and is refused
   * with INSUFFICIENT_RESP_RESOURCES by one that asks for one. The server sees each as a request of its own.
   * @param wait ends the wait alone: the attempt goes on until the id is closed
   * @returns the ESTABLISHED event
   * @throws TypeError, RangeError; CmError ECONNREFUSED, ETIMEDOUT, ECONNRESET, EHOSTUNREACH; VerbsError EINVAL in
   * another state than ROUTE_RESOLVED and without a port, ECANCELED when the id is closed meanwhile, ETIMEDOUT after
   * `timeout`; the signal's reason; as `qp.modify`
   */
  connect(param: ConnParam = {}, wait: WaitOptions = {}): Promise<Established> {
    return this.#start<Established>('no answer to the connect request', wait, (pending) => {
      this.#expectState('connect', 'ROUTE_RESOLVED');
      if (this.remoteAddress?.port === 0) throw new VerbsError('EINVAL', `${this} was resolved without a port`);
      const message = this.#isDatagram ? 'resolveService' : 'connect';
      this.#connection.connect(checkConnParam(param, this.qp, message, CONNECT_DEFAULTS), pending);
    });
  }

  /**
   * Completes a connection after CONNECT_RESPONSE, when the application's queue pair is in RTS (rdma_establish).
   * @throws VerbsError EINVAL when there is no reply to complete
   */
  async establish(): Promise<void> {
    this.#expectState('establish', 'CONNECTING');
    this.#connection.establish();
  }

  // ---- passive side ----

  /**
   * Listens for requests (rdma_listen). An id that is not bound is bound to `::` and a free port.
   * @param options `backlog`: requests that can wait for the decision of the application; further ones are rejected.
   * Default 1024
   * @throws RangeError; VerbsError EADDRINUSE, ENOMEM, EINVAL in another state than IDLE or BOUND
   */
  async listen(options: { readonly backlog?: number } = {}): Promise<void> {
    const { backlog = 1024 } = checkOptions('id.listen', options, { backlog: integer(1, 0x7fffffff) });
    if (this.state === 'IDLE') await this.bindAddr('::');
    this.#expectState('listen', 'BOUND');
    const transport = this.#isDatagram ? 'UD' : (this.options.qpType ?? 'RC');
    const agent = await MadAgent.of(this.device);
    this.#expectState('listen', 'BOUND');
    const { local } = this.#connection;
    this.#connection.agent = agent;
    const { ipv6Only = false } = this.options;
    const parameters = { ...(local as CmAddress), ipv6Only, space: this.space, transport, backlog } as const;
    this.#listener = agent.listen(parameters, (event) => this.#onRequest(event));
    this.#connection.state = 'LISTENING';
    try {
      await agent.announced(this.#listener);
    } catch (error) {
      agent.unlisten(this.#listener);
      this.#listener = 0;
      if (this.state === 'LISTENING') this.#connection.state = 'BOUND';
      throw error;
    }
  }

  /**
   * Waits for the next request (rdma_get_request). Other events of the channel are dropped.
   * @returns a new id in state REQUESTED
   * @throws as `channel.next`; VerbsError EINVAL when the id does not listen, EIO when the device fails
   */
  async getRequest(wait: WaitOptions = {}): Promise<CmId> {
    this.#expectState('getRequest', 'LISTENING');
    for (;;) {
      const event = await this.channel.next(wait);
      if (event.type === 'CONNECT_REQUEST' && event.listenId === this) return event.id;
      if (event.type === 'DEVICE_REMOVAL' && event.id === this) throw event.error;
    }
  }

  /**
   * Returns the attributes that `accept` with these parameters implies for a queue pair of the application, which must
   * be in RTR before `accept`.
   * @throws TypeError, RangeError; CmError ECONNRESET when the client has given up; VerbsError EINVAL in another state
   * than REQUESTED
   */
  acceptAttributes(param: ConnParam = {}): DerivedAttributes {
    this.#expectRequest('acceptAttributes');
    return this.#connection.prepareAccept(this.#acceptParam(param));
  }

  /**
   * Accepts the request that the id came with (rdma_accept).
   * @param wait ends the wait alone: the connection is established when the client is ready, unless the id is closed
   * @returns the ESTABLISHED event; undefined for a datagram service, which has none
   * @throws TypeError, RangeError; CmError ECONNRESET when the client has given up, before this call or later,
   * ETIMEDOUT when it does not answer; VerbsError EINVAL in another state than REQUESTED, ECANCELED when the id is
   * closed meanwhile, ETIMEDOUT after `timeout`; the signal's reason; as `qp.modify`
   */
  accept(param: ConnParam = {}, wait: WaitOptions = {}): Promise<Established | undefined> {
    return this.#start<Established | undefined>('the client did not get ready', wait, (pending) => {
      this.#expectRequest('accept');
      const complete = this.#acceptParam(param);
      if (this.#isDatagram) {
        this.#connection.acceptService(complete);
        pending.resolve(undefined);
      } else {
        this.#connection.accept(complete, pending);
      }
    });
  }

  /**
   * Establishes the connection because data has arrived, when the client's RTU is late or lost (rdma_notify with
   * IBV_EVENT_COMM_EST). A queue pair of the id does this by itself.
   */
  communicationEstablished(): void {
    this.#connection.communicationEstablished();
  }

  // ---- end of the connection ----

  /**
   * Rejects a request, or the server's reply (rdma_reject).
   * @param options `privateData`: at most 148 bytes, for a datagram service 136. `reason`: default CONSUMER_DEFINED
   * @throws TypeError, RangeError; VerbsError EINVAL when there is nothing to reject
   */
  async reject(options: { privateData?: Uint8Array; reason?: RejectReasonName } = {}): Promise<void> {
    const { privateData, reason } = checkOptions('id.reject', options, { privateData: anything, reason: anything });
    this.#expectState('reject', 'REQUESTED', 'CONNECTING');
    const data = checkPrivateData(
      privateData,
      this.#isDatagram ? PRIVATE_DATA_BYTES.acceptService : PRIVATE_DATA_BYTES.reject,
    );
    const code = RejectReason[reason ?? 'CONSUMER_DEFINED'];
    if (code === undefined) throw invalidValue(`reason is ${reason}, must be a name of RejectReason`);
    this.#connection.reject(code, data, new VerbsError('ECANCELED', `${this} was rejected by this end`));
  }

  /**
   * Ends the connection (rdma_disconnect): brings the queue pair to ERR, which flushes it, and sends a DREQ. Resolves
   * with DISCONNECTED. Does nothing when the connection has ended, and for datagram services.
   * @param options `privateData`: at most 220 bytes @param wait ends the wait alone: the connection ends nevertheless
   * @throws TypeError, RangeError; VerbsError EINVAL before the connection is established, ECANCELED when the id is
   * closed meanwhile, ETIMEDOUT after `timeout`; the signal's reason
   */
  disconnect(options: { readonly privateData?: Uint8Array } = {}, wait: WaitOptions = {}): Promise<void> {
    const timeoutText = 'no answer to the disconnect request';
    const { disconnecting } = this.#connection;
    if (disconnecting !== undefined) return waitFor(disconnecting, timeoutText, wait);
    return this.#start<void>(timeoutText, wait, (pending) => {
      const { privateData } = checkOptions('id.disconnect', options, { privateData: anything });
      const data = checkPrivateData(privateData, PRIVATE_DATA_BYTES.disconnect);
      this.assertOpen();
      if (this.state === 'DISCONNECTED' || this.#isDatagram) return pending.resolve();
      this.#expectState('disconnect', 'ESTABLISHED');
      this.#connection.disconnect(data, pending);
    });
  }

  // ---- multicast groups ----

  /**
   * Joins a multicast group with the id's UD queue pair (rdma_join_multicast). Event: MULTICAST_JOIN or
   * MULTICAST_ERROR.
   * @param group IP address @param options `sendOnly`: only send to the group, without becoming a member; `signal` and
   * `timeout` limit the time to find a route
   * @returns the destination for datagrams to the group
   * @throws TypeError; VerbsError EINVAL, ECANCELED, ETIMEDOUT; as `qp.attachMcast` and `pd.createAh`; the signal's
   * reason
   */
  async joinMulticast(
    group: string,
    options: WaitOptions & { readonly sendOnly?: boolean } = {},
  ): Promise<DatagramDestination> {
    this.assertOpen();
    const checks = { ...WAIT_CHECKS, sendOnly: checkBoolean };
    const { sendOnly = false, ...wait } = checkOptions('joinMulticast', options, checks);
    checkWait(wait);
    const { device, qp, localAddress } = this;
    if (qp?.type !== 'UD') throw new VerbsError('EINVAL', `${this} has no queue pair for datagrams`);
    try {
      const path = findPath(device, group, localAddress?.address);
      const { sgidIndex } = await waitFor(path, `no route to ${group}`, wait);
      const { destinations } = this.#connection;
      const datagram = await destinations.join(gidAddress(group), qp, sgidIndex, sendOnly);
      this.channel.push({ id: this, type: 'MULTICAST_JOIN', group: gidAddress(group), datagram });
      return datagram;
    } catch (error) {
      this.channel.push({ id: this, type: 'MULTICAST_ERROR', error: error as Error });
      throw error;
    }
  }

  /**
   * Leaves a multicast group (rdma_leave_multicast). The address handle of its destination is closed.
   * @throws TypeError; VerbsError ENOENT when the group was not joined
   */
  async leaveMulticast(group: string): Promise<void> {
    this.assertOpen();
    await this.#connection.destinations.leave(gidAddress(group));
  }

  readonly #onQpEvent = ({ type }: AsyncEvent): void => {
    if (type === 'COMM_EST') this.communicationEstablished();
  };

  /** @internal */
  protected override describe(): Description {
    const { space, state, localAddress: local, remoteAddress: remote, qp } = this;
    return { space, state, ...(local && { local }), ...(remote && { remote }), ...(qp && { qp: qp.label }) };
  }

  protected free(): void {
    const { agent, qp } = this.#connection;
    qp?.off('event', this.#onQpEvent);
    if (agent?.isAlive) {
      if (this.#listener !== 0) agent.unlisten(this.#listener);
      this.#connection.detach();
    }
    if (this.localAddress !== undefined && this.request === undefined)
      BoundPorts.of(this.device).release(this.space, this.localAddress.port);
    // requests that the application has not read
    const isForUs = (event: CmEvent) => event.type === 'CONNECT_REQUEST' && event.listenId === this;
    for (const { id } of this.channel.remove(isForUs)) void id.close();
    // Before the address handles: pending datagrams of the queue pair use them.
    if (this.#ownsQp) void qp?.close();
    this.#connection.closeDestinations();
    this.#connection.rejectPending(() => new VerbsError('ECANCELED', `${this} was closed`));
    this.channel.removeId();
    // No further event will come. The application's own channel may have other ids.
    if (this.options.channel === undefined) this.channel.close();
  }

  /**
   * @internal The client has given up its request. One that the application has not read is forgotten, as the backlog
   * counts it no more.
   */
  onAbandoned(): void {
    const unread = this.#listenId?.channel.remove((event) => event.type === 'CONNECT_REQUEST' && event.id === this);
    if (unread === undefined || unread.length === 0) return;
    this.channel.remove((event) => event.id === this);
    void this.close();
  }

  protected override onDeviceFailure(error: VerbsError): void {
    this.#connection.onDeviceFailure(error);
    this.channel.push({ id: this, type: 'DEVICE_REMOVAL', error });
    this.#connection.rejectPending(() => error);
  }

  /** The id is for datagram services. */
  get #isDatagram(): boolean {
    return this.space === 'UDP';
  }

  #bind(address: string, port: number): void {
    this.#expectState('bindAddr', 'IDLE');
    checkInteger('port', port, 0, 65535);
    checkZone(address, this.device.link.interface);
    const ip = gidAddress(address);
    if (!isWildcard(ip) && !this.device.gids.some((entry) => entry.address === ip))
      throw new VerbsError('EADDRNOTAVAIL', `${address} is not an address of ${this.device}`);
    this.#connection.local = { address: ip, port: BoundPorts.of(this.device).bind(this.space, port) };
    this.#connection.state = 'BOUND';
  }

  /** Checks the state for a call. @throws VerbsError EINVAL when the id is closed or in another state */
  #expectState(call: string, ...states: readonly CmIdState[]): void {
    this.assertOpen();
    if (states.includes(this.state)) return;
    throw new VerbsError('EINVAL', `${this} is in state ${this.state}, ${call} needs ${states.join(' or ')}`);
  }

  /** Checks that the request waits for an answer. @throws the error of a client that has given up; VerbsError EINVAL */
  #expectRequest(call: string): void {
    const { failure } = this.#connection;
    if (this.isAlive && this.request !== undefined && failure instanceof CmError) throw failure;
    this.#expectState(call, 'REQUESTED');
  }

  /**
   * Starts a call, which keeps the process running until it is settled. Errors of `begin` reject the returned promise;
   * later errors are reported as events too.
   */
  #start<T>(timeoutText: string, wait: WaitOptions, begin: (pending: Deferred<T>) => void): Promise<T> {
    const { engine } = this.device;
    engine.ref();
    const pending = new Deferred<T>(() => engine.unref());
    try {
      checkWait(wait);
      begin(pending);
      return waitFor(pending.promise, timeoutText, wait);
    } catch (error) {
      pending.reject(error);
      return Promise.reject(error);
    }
  }

  #acceptParam(param: ConnParam): CheckedConnParam {
    const message = this.#isDatagram ? 'acceptService' : 'accept';
    return checkConnParam(param, this.qp, message, this.request as ConnectRequest);
  }

  #onRequest(event: CoreEvent): void {
    if (event.type !== 'CONNECT_REQUEST') return;
    const { channel, ...options } = this.options;
    const id = new CmId(this.device, { ...options, ...(channel && { channel }) });
    id.#listenId = this;
    id.#adopt(event.id, event.request, this.#connection);
    this.channel.push({ type: 'CONNECT_REQUEST', id, listenId: this, request: event.request });
  }

  #adopt(coreId: number, request: ConnectRequest, { agent }: IdConnection): void {
    this.#request = request;
    this.#connection.agent = agent;
    this.#connection.local = request.destination;
    this.#connection.remote = request.source;
    this.#connection.attach(coreId);
    this.#connection.state = 'REQUESTED';
  }
}
