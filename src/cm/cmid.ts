/** Ids (rdma_cm_id): one end of a connection or of a datagram service, or a listener. What a program does with them. */
import { VerbsError } from '../errors.js';
import { checkInteger } from '../verbs/check.js';
import type { Device } from '../verbs/context.js';
import type { AsyncEvent } from '../verbs/events.js';
import { gidAddress } from '../verbs/gid.js';
import type { Pd } from '../verbs/pd.js';
import type { Qp } from '../verbs/qp.js';
import type { QpOptions } from '../verbs/qpoptions.js';
import { orGiveUp, type WaitOptions } from '../verbs/waiting.js';
import type { DatagramDestination } from './channel.js';
import type { DerivedAttributes } from './derive.js';
import { type CmIdOptions, Endpoint, type Established, NOTHING } from './endpoint.js';
import type { CmAddress, ConnectRequest, CoreEvent } from './events.js';
import { bringDown, bringUp } from './pairing.js';
import { type CompleteParam, type ConnParam, checkPrivateData, completeParam, ROOM, UDP_QKEY } from './parameters.js';
import { Partitions } from './partitions.js';
import { findPath, type Path } from './path.js';
import type { Pending } from './pending.js';
import { CmPort } from './port.js';
import { RejectReason, type RejectReasonName } from './reasons.js';
import { PACKET_LIFE_TIME } from './times.js';

/** All that both ends can: 8 bits on the wire. Nothing is asked of us. */
const MOST = { responderResources: 255, initiatorDepth: 255, flowControl: false };

/** An id of a device, for one connection, service or listener. @throws TypeError, RangeError for wrong options */
export function createCmId(device: Device, options: CmIdOptions = {}): CmId {
  device.assertOpen();
  return new CmId(device, options);
}

/** Made by `createCmId`, and by a listener for each request. */
export class CmId extends Endpoint {
  /** Our queue pair, once there is one. */
  get qp(): Qp | undefined {
    return this.pair;
  }

  /** Our address and port, once bound. */
  get localAddress(): CmAddress | undefined {
    return this.local;
  }

  /** The peer's. */
  get remoteAddress(): CmAddress | undefined {
    return this.remote;
  }

  /** What the client asks for, on an id that came with CONNECT_REQUEST. */
  get request(): ConnectRequest | undefined {
    return this.asked;
  }

  // ---- addresses ----

  /**
   * Binds to an address and port (rdma_bind_addr).
   * @param address one of the device's; `0.0.0.0` all of IPv4, `::` all @param port 0 = any that is free
   * @throws TypeError, RangeError; VerbsError EADDRNOTAVAIL, EADDRINUSE, EINVAL
   */
  async bindAddr(address: string, port = 0): Promise<void> {
    this.expect('bindAddr', 'IDLE');
    checkInteger('port', port, 0, 65535);
    const ip = gidAddress(address);
    const isAny = ip === '0.0.0.0' || ip === '::';
    if (!isAny && !this.device.gids.some((entry) => entry.address === ip))
      throw new VerbsError('EADDRNOTAVAIL', `${address} is no address of ${this.device}`);
    this.port = await CmPort.of(this.device);
    this.expect('bindAddr', 'IDLE');
    this.local = { address: ip, port: this.port.bindPort(this.space, port) };
    this.state = 'BOUND';
  }

  /**
   * Finds our address for a peer, the route and the next hop's MAC (rdma_resolve_addr): event ADDR_RESOLVED or ADDR_ERROR.
   * @throws TypeError, RangeError; VerbsError EADDRNOTAVAIL, EHOSTUNREACH, ETIMEDOUT, EINVAL; the signal's reason
   */
  async resolveAddr(address: string, port: number, wait: WaitOptions = {}): Promise<void> {
    this.expect('resolveAddr', 'IDLE', 'BOUND');
    checkInteger('port', port, 1, 65535);
    const destination = gidAddress(address);
    try {
      const path = await orGiveUp(
        findPath(this.device, destination, this.local?.address),
        `${destination} is not resolved`,
        wait,
      );
      this.port = await CmPort.of(this.device);
      this.expect('resolveAddr', 'IDLE', 'BOUND');
      this.path = path;
      this.local = { address: path.source, port: this.local?.port ?? this.port.bindPort(this.space, 0) };
      this.remote = { address: destination, port };
    } catch (error) {
      this.tell({ type: 'ADDR_ERROR', error: error as Error });
      throw error;
    }
    this.state = 'ADDR_RESOLVED';
    this.tell({ type: 'ADDR_RESOLVED' });
  }

  /** The path's attributes, of which all is known already (rdma_resolve_route): event ROUTE_RESOLVED. @throws VerbsError EINVAL */
  async resolveRoute(): Promise<void> {
    this.expect('resolveRoute', 'ADDR_RESOLVED');
    this.state = 'ROUTE_RESOLVED';
    this.tell({ type: 'ROUTE_RESOLVED' });
  }

  // ---- queue pair ----

  /**
   * A queue pair of the id's (rdma_create_qp), in INIT so that receives can be posted; one of UD is in RTS. It is closed with
   * the id.
   * @throws as `pd.createQp`; VerbsError EINVAL when the id has one
   */
  async createQp(pd: Pd, options: Omit<QpOptions, 'type'>): Promise<Qp> {
    const qp = await pd.createQp({ ...options, type: this.isService ? 'UD' : (this.options.qpType ?? 'RC') });
    try {
      await this.useQp(qp);
    } catch (error) {
      await qp.close();
      throw error;
    }
    this.ownsPair = true;
    return qp;
  }

  /** As `createQp`, with a queue pair in RESET that stays the program's. @throws VerbsError EINVAL; as `qp.modify` */
  async useQp(qp: Qp): Promise<void> {
    this.assertOpen();
    if (this.pair !== undefined) throw new VerbsError('EINVAL', `${this} has ${this.pair} already`);
    if (qp.device !== this.device) throw new TypeError(`${qp} belongs to another device than ${this}`);
    this.pair = qp;
    const { ownIndex: pkeyIndex } = Partitions.of(this.device);
    if (qp.type === 'UD') {
      await qp.activate({ qkey: UDP_QKEY, pkeyIndex });
      return;
    }
    await qp.modify({ state: 'INIT', pkeyIndex, portNum: 1, qpAccessFlags: ['remoteWrite'] });
    qp.on('event', this.#onQpEvent);
  }

  // ---- the active end ----

  /**
   * Connects (rdma_connect), or asks for a datagram service. With a queue pair of the id's ESTABLISHED is the next event;
   * without, CONNECT_RESPONSE, and the program calls `establish`.
   * @returns what came with ESTABLISHED
   * @throws TypeError, RangeError; CmError ECONNREFUSED, ETIMEDOUT, ECONNRESET; VerbsError EINVAL, ECANCELED; as `qp.modify`
   */
  connect(param: ConnParam = {}): Promise<Established> {
    return begun(this.hold<Established>(), (pending) => {
      this.expect('connect', 'ROUTE_RESOLVED');
      const all = completeParam(param, this.pair, this.isService ? 'resolveService' : 'connect', MOST);
      this.connecting = pending;
      this.flowControl = all.flowControl;
      this.state = 'CONNECTING';
      this.run((core, now) => {
        const ends = { source: this.local as CmAddress, destination: this.remote as CmAddress };
        if (this.isService) this.follow(core.resolveService({ ...ends, privateData: all.privateData }, now));
        else this.follow(core.connect({ ...all, ...ends, ...this.#asked() }, now, this.own()));
      });
    });
  }

  /** After CONNECT_RESPONSE: the program's queue pair is in RTS (rdma_establish). @throws VerbsError EINVAL */
  async establish(): Promise<void> {
    this.expect('establish', 'CONNECTING');
    this.run((core, now) => core.establish(this.connection, NOTHING, now));
    this.established(NOTHING);
  }

  // ---- the passive end ----

  /**
   * Takes requests from now on (rdma_listen).
   * @param backlog requests that may wait for the program; more are refused. Default 1024
   * @throws RangeError; VerbsError EADDRINUSE, EINVAL
   */
  async listen({ backlog = 1024 }: { readonly backlog?: number } = {}): Promise<void> {
    checkInteger('backlog', backlog, 1, 0x7fffffff);
    if (this.state === 'IDLE') await this.bindAddr('::');
    this.expect('listen', 'BOUND');
    const transport = this.isService ? 'UD' : (this.options.qpType ?? 'RC');
    const parameters = { ...(this.local as CmAddress), space: this.space, transport, backlog } as const;
    this.listener = (this.port as CmPort).listen(parameters, (event) => this.#onRequest(event));
    this.state = 'LISTENING';
  }

  /**
   * The next request (rdma_get_request), read off the channel, whose other events are lost.
   * @throws as `channel.next`; VerbsError EIO when the device fails
   */
  async getRequest(wait: WaitOptions = {}): Promise<CmId> {
    this.expect('getRequest', 'LISTENING');
    for (;;) {
      const event = await this.channel.next(wait);
      if (event.type === 'CONNECT_REQUEST' && event.listenId === this) return event.id;
      if (event.type === 'DEVICE_REMOVAL' && event.id === this) throw event.error;
    }
  }

  /** What `accept` with these parameters means for a queue pair that the program brings up itself. @throws VerbsError EINVAL */
  acceptAttributes(param: ConnParam = {}): DerivedAttributes {
    this.expect('acceptAttributes', 'REQUESTED');
    return this.#prepare(this.#answer(param));
  }

  /**
   * Accepts the request that the id came with (rdma_accept). Resolves with ESTABLISHED; of a datagram service, which has none,
   * at once.
   * @throws TypeError, RangeError; CmError ECONNREFUSED (the client has given up), ETIMEDOUT, ECONNRESET; VerbsError EINVAL,
   * ECANCELED; as `qp.modify`
   */
  accept(param: ConnParam = {}): Promise<Established | undefined> {
    return begun(this.hold<Established | undefined>(), (pending) => {
      this.expect('accept', 'REQUESTED');
      const answer = this.#answer(param);
      if (this.isService) {
        const { qpNum, qkey, privateData } = answer;
        this.run((core, now) => core.acceptDatagrams(this.connection, { qpNum, qkey }, privateData, now));
        this.state = 'ESTABLISHED';
        pending.resolve(undefined);
      } else {
        const attributes = this.#prepare(answer);
        this.connecting = pending;
        this.state = 'CONNECTING';
        void this.#accept(answer, attributes);
      }
    });
  }

  /** Data has come (rdma_notify, COMM_EST): the connection is established, although the client's RTU is late or lost. */
  communicationEstablished(): void {
    if (this.isAlive && this.connection !== 0)
      this.run((core, now) => core.communicationEstablished(this.connection, now));
  }

  // ---- the end ----

  /**
   * Refuses a request, or the server's answer (rdma_reject).
   * @param reason default CONSUMER_DEFINED
   * @throws TypeError, RangeError; VerbsError EINVAL
   */
  async reject({ privateData, reason }: { privateData?: Uint8Array; reason?: RejectReasonName } = {}): Promise<void> {
    this.expect('reject', 'REQUESTED', 'CONNECTING');
    const data = checkPrivateData(privateData, this.isService ? ROOM.answerService : ROOM.reject);
    const code = RejectReason[reason ?? 'CONSUMER_DEFINED'];
    if (code === undefined) throw new TypeError(`reason is ${reason}, must be a name of RejectReason`);
    this.run((core, now) => core.reject(this.connection, now, data, code));
    this.state = 'FAILED';
    this.connecting?.reject(new VerbsError('ECANCELED', `${this} was rejected by this end`));
  }

  /**
   * Ends the connection (rdma_disconnect): the queue pair goes to ERR, which flushes it, and the peer is told. Resolves with
   * DISCONNECTED. Nothing when it has ended already, and for datagrams.
   * @throws TypeError, RangeError; VerbsError EINVAL, ECANCELED
   */
  disconnect({ privateData }: { readonly privateData?: Uint8Array } = {}): Promise<void> {
    if (this.ending !== undefined) return this.ending.promise;
    return begun(this.hold<void>(), (pending) => {
      const data = checkPrivateData(privateData, ROOM.disconnect);
      this.assertOpen();
      if (this.state === 'DISCONNECTED' || this.isService) return pending.resolve();
      this.expect('disconnect', 'ESTABLISHED');
      this.ending = pending;
      void this.#disconnect(data);
    });
  }

  // ---- groups ----

  /**
   * Joins a multicast group with the id's queue pair of UD (rdma_join_multicast): event MULTICAST_JOIN.
   * @param group IP address @param sendOnly sends to it without being a member
   * @throws TypeError; VerbsError EINVAL, ECANCELED; as `qp.attachMcast` and `pd.createAh`
   */
  async joinMulticast(group: string, { sendOnly = false } = {}): Promise<DatagramDestination> {
    this.assertOpen();
    if (this.pair?.type !== 'UD') throw new VerbsError('EINVAL', `${this} has no queue pair for datagrams`);
    try {
      const { device, local, pair } = this;
      const { sgidIndex } = await findPath(device, group, local?.address);
      const datagram = await this.groups.join(gidAddress(group), pair, sgidIndex, this.options.tos ?? 0, sendOnly);
      this.tell({ type: 'MULTICAST_JOIN', group: gidAddress(group), datagram });
      return datagram;
    } catch (error) {
      this.tell({ type: 'MULTICAST_ERROR', error: error as Error });
      throw error;
    }
  }

  /** Leaves it (rdma_leave_multicast). @throws TypeError; VerbsError ENOENT when it was not joined */
  async leaveMulticast(group: string): Promise<void> {
    this.assertOpen();
    await this.groups.leave(gidAddress(group));
  }

  readonly #onQpEvent = ({ type }: AsyncEvent): void => {
    if (type === 'COMM_EST') this.communicationEstablished();
  };

  protected override free(): void {
    this.pair?.off('event', this.#onQpEvent);
    super.free();
  }

  /** What a REQ says beside the program's parameters and the addresses. */
  #asked() {
    const { tos, ackTimeout, qpType } = this.options;
    const { mtu, hopLimit } = this.path as Path;
    return {
      space: 'TCP',
      transport: qpType ?? 'RC',
      startingPsn: this.startingPsn,
      pathMtu: mtu,
      hopLimit,
      trafficClass: tos ?? 0,
      packetLifeTime: ackTimeout === undefined ? PACKET_LIFE_TIME : ackTimeout - 1,
    } as const;
  }

  /** The queue pair is up before the peer hears that it may send; it speaks once the peer is known to hear it. */
  async #accept(answer: CompleteParam, attributes: DerivedAttributes): Promise<void> {
    try {
      this.accepted = attributes;
      if (this.pair !== undefined) await bringUp(this.pair, attributes, answer.flowControl);
      if (!this.isClosed) this.run((core, now) => core.accept(this.connection, this.#parameters(answer), now));
    } catch (error) {
      this.giveUp(error);
    }
  }

  async #disconnect(privateData: Uint8Array): Promise<void> {
    try {
      await bringDown(this.pair);
      // the peer may have ended it meanwhile
      if (!this.isClosed && this.state === 'ESTABLISHED')
        this.run((core, now) => core.disconnect(this.connection, now, privateData));
    } catch (error) {
      this.ending?.reject(error);
    }
  }

  #answer(param: ConnParam): CompleteParam {
    const message = this.isService ? 'answerService' : 'accept';
    return completeParam(param, this.pair, message, this.asked as ConnectRequest);
  }

  #prepare(answer: CompleteParam): DerivedAttributes {
    return this.run((core) => core.prepareAccept(this.connection, this.#parameters(answer), this.own()));
  }

  #parameters(answer: CompleteParam) {
    return { ...answer, startingPsn: this.startingPsn };
  }

  #onRequest(event: CoreEvent): void {
    if (event.type !== 'CONNECT_REQUEST') return;
    const { channel, ...options } = this.options;
    const id = new CmId(this.device, { ...options, ...(channel && { channel }) });
    id.#adopt(event.id, event.request, this);
    this.channel.push({ type: 'CONNECT_REQUEST', id, listenId: this, request: event.request });
  }

  #adopt(connection: number, request: ConnectRequest, { port }: CmId): void {
    this.port = port;
    this.asked = request;
    this.local = request.destination;
    this.remote = request.source;
    this.follow(connection);
    this.state = 'REQUESTED';
  }
}

/** Starts something. What is wrong with the call is the caller's to handle; what comes later is told by events as well. */
function begun<T>(pending: Pending<T>, start: (pending: Pending<T>) => void): Promise<T> {
  try {
    start(pending);
    return pending.promise;
  } catch (error) {
    pending.reject(error);
    return Promise.reject(error);
  }
}
