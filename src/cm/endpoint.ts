/** What happens to an id: its states, the core's events and what follows from them for queue pair, channel and who waits. */
import { VerbsError } from '../errors.js';
import type { AccessName } from '../verbs/access.js';
import { checkInteger } from '../verbs/check.js';
import type { Device } from '../verbs/context.js';
import type { Qp } from '../verbs/qp.js';
import { Resource } from '../verbs/resource.js';
import { type CmEvent, type DatagramDestination, EventChannel } from './channel.js';
import { CmError, disconnected, rejected, unreachable } from './cmerror.js';
import type { CmId } from './cmid.js';
import type { CmCore } from './core.js';
import type { DerivedAttributes, OwnChoice } from './derive.js';
import type { CmAddress, ConnectReply, ConnectRequest, CoreEvent, DatagramPeer } from './events.js';
import { Groups } from './groups.js';
import { bringDown, bringUp, letSpeak } from './pairing.js';
import type { Path } from './path.js';
import { Pending } from './pending.js';
import type { CmPort } from './port.js';

export interface CmIdOptions {
  /** Connections (PS_TCP), or datagrams (PS_UDP). Default `TCP`. */
  readonly space?: 'TCP' | 'UDP';
  /** Of connections: reliable or unreliable. Default `RC`. */
  readonly qpType?: 'RC' | 'UC';
  /** Where events go. Default: a channel of its own. */
  readonly channel?: EventChannel;
  /** Type of service: IPv4 TOS or IPv6 traffic class of the connection, 0..255 (RDMA_OPTION_ID_TOS). Default 0. */
  readonly tos?: number;
  /**
   * The ACK timeout to ask for, 1..31: 4.096 us * 2^n (RDMA_OPTION_ID_ACK_TIMEOUT); not below what both cards need.
   * Default: 17, which is 537 ms.
   */
  readonly ackTimeout?: number;
  /** Of our queue pair, a code: see `QpAttributes.minRnrTimer`. Default 0, which is 655 ms, as Linux has it. */
  readonly minRnrTimer?: number;
  /** Rights of the peer beside WRITE, and READ and atomics where `responderResources` is not 0. */
  readonly access?: readonly AccessName[];
}

/** `FAILED`: refused, unreachable, rejected by ourselves, or of a failed device; the id can be closed only. */
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

export type Established = Extract<CmEvent, { type: 'ESTABLISHED' }>;

type Told = CmEvent extends infer E ? (E extends CmEvent ? Omit<E, 'id'> : never) : never;

export const NOTHING: Uint8Array = new Uint8Array(0);

export abstract class Endpoint extends Resource {
  readonly kind = 'cm id';
  readonly label: string;
  readonly channel: EventChannel;
  readonly space: 'TCP' | 'UDP';
  protected readonly groups: Groups;
  protected readonly startingPsn: number;
  protected port: CmPort | undefined;
  protected local: CmAddress | undefined;
  protected remote: CmAddress | undefined;
  protected path: Path | undefined;
  protected pair: Qp | undefined;
  protected ownsPair = false;
  /** Numbers of the core: a connection or question, a listener. 0 = none. */
  protected connection = 0;
  protected listener = 0;
  protected asked: ConnectRequest | undefined;
  protected flowControl = false;
  /** What we have accepted. */
  protected accepted: DerivedAttributes | undefined;
  /** Ends once the queue pair of what we have accepted speaks. */
  #speaking: Promise<void> | undefined;
  protected connecting: Pending<Established> | Pending<Established | undefined> | undefined;
  protected ending: Pending<void> | undefined;
  #state: CmIdState = 'IDLE';

  constructor(
    readonly device: Device,
    readonly options: CmIdOptions,
  ) {
    super([device]);
    this.label = String(device.nextNumber());
    this.space = options.space ?? 'TCP';
    checkInteger('tos', options.tos ?? 0, 0, 255);
    checkInteger('ackTimeout', options.ackTimeout ?? 17, 1, 31);
    checkInteger('minRnrTimer', options.minRnrTimer ?? 0, 0, 31);
    this.channel = options.channel ?? new EventChannel();
    this.groups = new Groups(this);
    this.startingPsn = device.card.exports.randomPsn();
    this.opened();
  }

  /** For datagrams: nothing is connected. */
  protected get isService(): boolean {
    return this.space === 'UDP';
  }

  get state(): CmIdState {
    return this.#state;
  }

  protected set state(to: CmIdState) {
    this.#state = to;
  }

  /** @throws VerbsError EINVAL when the id is closed or in another state */
  protected expect(call: string, ...states: readonly CmIdState[]): void {
    this.assertOpen();
    if (states.includes(this.#state)) return;
    throw new VerbsError('EINVAL', `${this} is in state ${this.#state}, ${call} needs ${states.join(' or ')}`);
  }

  protected tell(event: Told): void {
    this.channel.push({ ...event, id: this as unknown as CmId } as CmEvent);
  }

  /** Calls the core. @throws what it throws */
  protected run<T>(call: (core: CmCore, now: number) => T): T {
    return (this.port as CmPort).run(call);
  }

  /** A promise that keeps the process running until it is settled. */
  protected hold<T>(): Pending<T> {
    const { engine } = this.device;
    engine.hold();
    return new Pending<T>(() => engine.release());
  }

  protected own(): OwnChoice {
    const { access, minRnrTimer } = this.options;
    return { ...(access && { access }), ...(minRnrTimer !== undefined && { minRnrTimer }) };
  }

  /** From now on the core's events about this connection come here. */
  protected follow(connection: number): void {
    this.connection = connection;
    (this.port as CmPort).follow(connection, (event) => this.#onCore(event));
  }

  protected established(privateData: Uint8Array, datagram?: DatagramDestination): void {
    this.#state = 'ESTABLISHED';
    const event = { type: 'ESTABLISHED', privateData, ...(datagram && { datagram }) } as const;
    this.tell(event);
    this.connecting?.resolve({ ...event, id: this as unknown as CmId });
  }

  /** Our own queue pair could not be brought up, or the core does not take it any more. */
  protected giveUp(error: unknown): void {
    if (this.isClosed || this.#state !== 'CONNECTING') return;
    this.#state = 'FAILED';
    this.run((core, now) => core.close(this.connection, now));
    this.tell({ type: 'CONNECT_ERROR', error: error as Error });
    this.connecting?.reject(error);
  }

  protected free(): void {
    const { port } = this;
    if (port?.isAlive) {
      if (this.listener !== 0) port.unlisten(this.listener);
      port.forget(this.connection);
      if (this.connection !== 0) port.run((core, now) => core.close(this.connection, now));
      if (this.local !== undefined && this.asked === undefined) port.releasePort(this.space, this.local.port);
    }
    // requests that nobody has taken
    const isForUs = (event: CmEvent) => event.type === 'CONNECT_REQUEST' && (event.listenId as Endpoint) === this;
    for (const { id } of this.channel.withdraw(isForUs)) void id.close();
    // first: what it has not sent yet needs the groups' address handles
    if (this.ownsPair) void this.pair?.close();
    this.groups.close();
    const closed = new VerbsError('ECANCELED', `${this} was closed`);
    this.connecting?.reject(closed);
    this.ending?.reject(closed);
  }

  protected override onDeviceFailure(error: VerbsError): void {
    this.#state = 'FAILED';
    this.tell({ type: 'DEVICE_REMOVAL', error });
    this.connecting?.reject(error);
    this.ending?.reject(error);
  }

  #peer(): string {
    return `${this.remote?.address} port ${this.remote?.port}`;
  }

  #onCore(event: CoreEvent): void {
    switch (event.type) {
      case 'CONNECT_RESPONSE':
        void this.#onReply(event.reply);
        break;
      case 'ESTABLISHED':
        if (event.datagram) void this.#onService(event.datagram, event.privateData);
        else this.#speaking = this.#onReady(event.privateData);
        break;
      case 'REJECTED':
        this.#fail('REJECTED', rejected(this.#peer(), event.reason, event.privateData));
        break;
      case 'UNREACHABLE':
        this.#fail('UNREACHABLE', unreachable(this.#peer(), event.status, event.privateData));
        break;
      case 'DISCONNECTED':
        void this.#onEnd(event);
        break;
      case 'TIMEWAIT_EXIT':
        this.tell({ type: 'TIMEWAIT_EXIT' });
        break;
      case 'CONNECT_REQUEST':
        break;
    }
  }

  #fail(type: 'REJECTED' | 'UNREACHABLE', error: CmError): void {
    this.#state = 'FAILED';
    this.tell({ type, error });
    this.connecting?.reject(error);
  }

  async #onReply(reply: ConnectReply): Promise<void> {
    if (this.pair === undefined) {
      this.tell({ type: 'CONNECT_RESPONSE', reply });
      return;
    }
    try {
      await bringUp(this.pair, reply.attributes, this.flowControl && reply.flowControl);
      await letSpeak(this.pair, reply.attributes);
      if (this.isClosed || this.#state !== 'CONNECTING') return;
      this.run((core, now) => core.establish(this.connection, NOTHING, now));
      this.established(reply.privateData);
    } catch (error) {
      this.giveUp(error);
    }
  }

  /**
   * The peer is ready: it has said so, or its data have come. For these to tell, our queue pair has only listened until now
   * (IBTA 12.9.7.2, 11.6.3.2).
   */
  async #onReady(privateData: Uint8Array): Promise<void> {
    try {
      if (this.pair !== undefined && this.accepted !== undefined) await letSpeak(this.pair, this.accepted);
      if (!this.isClosed && this.#state === 'CONNECTING') this.established(privateData);
    } catch (error) {
      this.giveUp(error);
    }
  }

  async #onService(peer: DatagramPeer, privateData: Uint8Array): Promise<void> {
    try {
      const { address } = this.remote as CmAddress;
      const datagram = await this.groups.destination(
        address,
        peer,
        this.pair,
        (this.path as Path).sgidIndex,
        this.options.tos ?? 0,
      );
      if (this.isAlive) this.established(privateData, datagram);
    } catch (error) {
      if (!this.isAlive) return;
      this.#fail('UNREACHABLE', new CmError('EHOSTUNREACH', (error as Error).message, 'UNREACHABLE'));
    }
  }

  /** The queue pair first, then our agreement: the peer may take the connection's resources away when it has that. */
  async #onEnd({ privateData, timedOut, reason }: Extract<CoreEvent, { type: 'DISCONNECTED' }>): Promise<void> {
    await this.#speaking;
    if (!this.isAlive) return;
    const wasConnected = this.#state === 'ESTABLISHED';
    this.#state = 'DISCONNECTED';
    await bringDown(this.pair);
    if (!this.isAlive) return;
    this.run((core, now) => core.disconnect(this.connection, now));
    const error = reason === undefined ? undefined : disconnected(this.#peer(), reason, privateData);
    this.tell({ type: 'DISCONNECTED', privateData, timedOut, ...(error && { error }) });
    if (!wasConnected) this.connecting?.reject(error ?? disconnected(this.#peer(), undefined, privateData));
    this.ending?.resolve();
  }
}
