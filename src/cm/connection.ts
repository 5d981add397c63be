/** A connection: what both roles have in common, from the first message to the last. */
import { VerbsError } from '../errors.js';
import { queuePairTimeout, type Role } from './derive.js';
import type { CoreEvent } from './events.js';
import type { Expiring, Manager, Outgoing, Route } from './manager.js';
import { type Fields, type Message, type MessageName, Subject } from './messages.js';
import { RejectReason } from './reasons.js';
import { type ConnectionState, mayFollow } from './states.js';
import { milliseconds } from './times.js';

/** A message that is sent again until it is answered. */
interface Repeated {
  readonly name: MessageName;
  readonly outgoing: Outgoing;
  /** Milliseconds. */
  readonly period: number;
  left: number;
  /** The peer has asked for more time since it was last sent. */
  isPatient: boolean;
}

/** What the two roles differ in. */
export abstract class Connection implements Expiring {
  deadline = Number.POSITIVE_INFINITY;
  place = -1;
  /** What messages of the peer name it by; zeroes while they are not known. */
  peer = { guid: 0n, commId: 0, qpn: 0 };
  abstract readonly role: Role;
  /** The REQ, ours or the peer's. */
  abstract readonly req: Message<'REQ'>;
  rep: Message<'REP'> | undefined;
  #state: ConnectionState;
  #repeated: Repeated | undefined;
  #isAbandoned = false;
  #isStale = false;
  #dreqTid = 0n;
  #drep: Outgoing | undefined;

  /** @param id our communication id @param tid of the messages up to RTU */
  constructor(
    protected readonly manager: Manager,
    readonly id: number,
    protected readonly route: Route,
    protected readonly tid: bigint,
    state: ConnectionState,
  ) {
    this.#state = state;
    manager.connections.add(this);
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** Our own queue pair, as the peer knows it. */
  abstract get ownQpn(): number;
  /** How often and how soon a DREQ is sent again. */
  protected abstract get patience(): { readonly period: number; readonly retries: number };
  /** The message that waits for its answer was never answered. */
  protected abstract giveUp(): void;

  // ---- commands ----

  /** Ends an established connection, or agrees to the peer's end of it. Nothing when it has ended already. */
  disconnect(privateData: Uint8Array): void {
    switch (this.state) {
      case 'ESTABLISHED':
        this.release(privateData);
        return;
      case 'DREQ_RCVD':
        this.#drep = this.send('DREP', this.#dreqTid, { privateData });
        this.setState('TIMEWAIT');
        return;
      case 'DREQ_SENT':
      case 'TIMEWAIT':
        return;
      default:
        throw this.wrongState('disconnect', 'ESTABLISHED');
    }
  }

  /** Refuses, where that is still possible; see `RejectReason`. */
  abstract reject(reason: number, info: Uint8Array, privateData: Uint8Array): void;

  /** The program has no more interest: says so to the peer as fits the state, and tells nothing from now on. */
  close(): void {
    this.#isAbandoned = true;
    if (this.state === 'ESTABLISHED' || this.state === 'DREQ_RCVD') this.disconnect(NOTHING);
    else this.abandon();
  }

  /** `close` in the states before ESTABLISHED. */
  protected abstract abandon(): void;

  // ---- messages ----

  receive(message: Message<'MRA' | 'REJ' | 'RTU' | 'DREQ' | 'DREP'>): void {
    const isMeant =
      (message.name === 'MRA' && this.#onMra(message)) ||
      (message.name === 'REJ' && this.#onRej(message)) ||
      (message.name === 'RTU' && this.onRtu(message)) ||
      (message.name === 'DREQ' && this.#onDreq(message)) ||
      (message.name === 'DREP' && this.#onDrep(message));
    if (!isMeant) this.manager.count('ignored', message.name);
  }

  /** @returns whether it means anything in this state */
  protected abstract onRtu(rtu: Message<'RTU'>): boolean;

  /** The peer asks for another connection with the queue pair of this one: it does not know of it any more. */
  onStale(): void {
    if (this.state === 'ESTABLISHED') {
      this.#isStale = true;
      this.disconnect(NOTHING);
    } else if (this.state === 'DREQ_SENT') {
      // as good as a DREP
      this.setState('TIMEWAIT');
      this.#tellEnd(NOTHING);
    }
  }

  onDeadline(): void {
    const { manager } = this;
    const repeated = this.#repeated;
    if (repeated !== undefined && repeated.left > 0) {
      repeated.left--;
      repeated.isPatient = false;
      manager.repeat(repeated.name, repeated.outgoing);
      manager.deadlines.set(this, manager.now + repeated.period);
    } else if (this.state === 'TIMEWAIT') {
      this.setState('CLOSED');
      this.tell({ type: 'TIMEWAIT_EXIT' });
    } else if (this.state === 'DREQ_SENT') {
      this.setState('TIMEWAIT');
      this.#tellEnd(NOTHING, { timedOut: true });
    } else {
      this.giveUp();
    }
  }

  #onMra({ messageMraed, serviceTimeout }: Message<'MRA'>): boolean {
    const repeated = this.#repeated;
    const isAbout =
      (repeated?.name === 'REQ' && messageMraed === Subject.REQ) ||
      (repeated?.name === 'REP' && messageMraed === Subject.REP);
    // Once for each message that we send, so that nobody holds us for ever.
    if (!isAbout || repeated === undefined || repeated.isPatient) return false;
    repeated.isPatient = true;
    const until = this.manager.now + milliseconds(serviceTimeout) + milliseconds(this.req.primary.ackTimeout);
    this.manager.deadlines.set(this, Math.max(this.deadline, until));
    return true;
  }

  #onRej({ reason, info, infoLength, privateData }: Message<'REJ'>): boolean {
    switch (this.state) {
      case 'REQ_SENT':
      case 'REP_SENT':
        this.setState(reason === RejectReason.STALE_CONNECTION ? 'TIMEWAIT' : 'CLOSED');
        break;
      case 'REQ_RCVD':
        this.setState('CLOSED');
        break;
      case 'REP_RCVD':
        this.setState('TIMEWAIT');
        break;
      case 'ESTABLISHED':
      case 'DREQ_SENT':
        this.setState('TIMEWAIT');
        this.#tellEnd(privateData, { reason });
        return true;
      default:
        return false;
    }
    this.tell({ type: 'REJECTED', reason, info: info.subarray(0, infoLength), privateData });
    return true;
  }

  #onDreq({ tid, localCommId, remoteQpn, privateData }: Message<'DREQ'>): boolean {
    if (remoteQpn !== this.ownQpn) return false;
    switch (this.state) {
      // It has overtaken the REP: the peer went back on that.
      case 'REQ_SENT':
        this.#drep = this.send('DREP', tid, { remoteCommId: localCommId });
        this.setState('TIMEWAIT');
        this.tell({ type: 'REJECTED', reason: RejectReason.CONSUMER_DEFINED, info: NOTHING, privateData });
        return true;
      // A peer that disconnects was connected: its RTU, or our program's answer, is late.
      case 'REP_RCVD':
      case 'REP_SENT':
      case 'ESTABLISHED':
        this.#dreqTid = tid;
        this.setState('DREQ_RCVD');
        this.#tellEnd(privateData);
        if (this.#isAbandoned) this.disconnect(NOTHING);
        return true;
      case 'DREQ_SENT':
        this.#drep = this.send('DREP', tid, {});
        this.setState('TIMEWAIT');
        this.#tellEnd(privateData);
        return true;
      case 'TIMEWAIT':
        this.manager.count('rx_duplicates', 'DREQ');
        this.#drep = this.#drep ? this.manager.repeat('DREP', this.#drep) : this.send('DREP', tid, {});
        return true;
      default:
        return false;
    }
  }

  #onDrep({ privateData }: Message<'DREP'>): boolean {
    if (this.state !== 'DREQ_SENT') return false;
    this.setState('TIMEWAIT');
    this.#tellEnd(privateData);
    return true;
  }

  #tellEnd(privateData: Uint8Array, { timedOut = false, reason }: { timedOut?: boolean; reason?: number } = {}): void {
    const why = reason ?? (this.#isStale ? RejectReason.STALE_CONNECTION : undefined);
    this.tell({ type: 'DISCONNECTED', privateData, timedOut, reason: why });
  }

  // ---- for both roles ----

  /** The only writer of the state. What was sent again and again is not any more. */
  protected setState(to: ConnectionState): void {
    if (!mayFollow(this.#state, to)) throw new Error(`connection ${this}: ${this.#state} -> ${to} is no move`);
    const { manager } = this;
    this.#state = to;
    this.#repeated = undefined;
    manager.deadlines.clear(this);
    if (to === 'CLOSED') manager.connections.remove(this);
    if (to === 'TIMEWAIT') manager.deadlines.set(this, manager.now + this.timewait);
  }

  /** Asks the peer to end it. */
  protected release(privateData: Uint8Array): void {
    const { period, retries } = this.patience;
    this.setState('DREQ_SENT');
    const fields = { remoteQpn: this.peer.qpn, privateData };
    this.sendRepeated('DREQ', this.manager.tidOf(this.id), fields, period, retries);
  }

  /** Sends a message of this connection. */
  protected send<N extends MessageName>(name: N, tid: bigint, fields: Partial<Fields<N>>): Outgoing {
    const ids = { localCommId: this.id, remoteCommId: this.peer.commId };
    return this.manager.send(this.route, name, tid, { ...ids, ...fields } as unknown as Partial<Fields<N>>);
  }

  /** Sends a message, and again every `period` ms until the state changes or `retries` are used up. */
  protected sendRepeated<N extends MessageName>(
    name: N,
    tid: bigint,
    fields: Partial<Fields<N>>,
    period: number,
    retries: number,
  ): Outgoing {
    const outgoing = this.send(name, tid, fields);
    this.#repeated = { name, outgoing, period, left: retries, isPatient: false };
    this.manager.deadlines.set(this, this.manager.now + period);
    return outgoing;
  }

  protected sendRej(subject: number, reason: number, info: Uint8Array, privateData: Uint8Array): Outgoing {
    return this.send('REJ', this.tid, {
      messageRejected: subject,
      reason,
      infoLength: info.length,
      info,
      privateData,
    });
  }

  /** Tells the peer that we have waited long enough. It finds the connection by our GUID (IBTA 12.6.7.3). */
  protected sendTimeout(): Outgoing {
    const info = new Uint8Array(8);
    new DataView(info.buffer).setBigUint64(0, this.manager.guid);
    return this.sendRej(Subject.OTHER, RejectReason.TIMEOUT, info, NOTHING);
  }

  protected tell(event: CoreEvent extends infer E ? (E extends CoreEvent ? Omit<E, 'id'> : never) : never): void {
    if (!this.#isAbandoned) this.manager.tell({ ...event, id: this.id } as CoreEvent);
  }

  /** @internal */
  wrongState(call: string, needed: string): VerbsError {
    return new VerbsError('EINVAL', `connection ${this} is in state ${this.state}, ${call} needs ${needed}`);
  }

  toString(): string {
    return `0x${this.id.toString(16).padStart(8, '0')}`;
  }

  /** Milliseconds until no packet of it is under way any more. */
  get timewait(): number {
    const { req, rep } = this;
    return milliseconds(rep === undefined ? req.primary.ackTimeout : queuePairTimeout(this.role, req, rep));
  }
}

export const NOTHING: Uint8Array = new Uint8Array(0);
