/** The part of a connection that both roles share, from the first message to the last. */

import { gidText } from '../../base/gid.js';
import { type IcmpErrorCode, VerbsError } from '../../errors.js';
import { Backoff, type RetryPolicy } from './backoff.js';
import type { CoreContext, Expiring, Outgoing, Route } from './context.js';
import type { Role } from './derive.js';
import type { CoreEventBody } from './events.js';
import { EXIT_DATA } from './exit.js';
import type { Content } from './mad.js';
import { type Message, type MessageName, NO_DATA, Subject } from './messages.js';
import { RejectReason } from './reasons.js';
import { type ConnectionState, isTransition } from './states.js';
import { MAX_TIMEWAIT, milliseconds } from './times.js';

/** A message that is retransmitted until its reply arrives. */
interface PendingMessage {
  readonly name: MessageName;
  readonly outgoing: Outgoing;
  readonly backoff: Backoff;
  /** The connection attempt has failed at this time, whatever is left to retry. */
  giveUpAt: number;
  /** MRAs put off `giveUpAt` to this time at most. */
  readonly latestGiveUp: number;
  /** An MRA has arrived since the last transmission. */
  isMraReceived: boolean;
}

/** States in which the messages of the handshake may be sent again. */
const HANDSHAKE: ReadonlySet<ConnectionState> = new Set(['REQ_SENT', 'REP_RCVD', 'REQ_RCVD', 'REJ_SENT', 'REP_SENT']);

/** A connection in the core. `ActiveConnection` and `PassiveConnection` are its two roles. */
export abstract class Connection implements Expiring {
  deadline = Number.POSITIVE_INFINITY;
  heapIndex = -1;
  /** CA GUID, communication id and queue pair number of the peer; zeroes until its REQ or REP has arrived. */
  peer = { guid: 0n, commId: 0, qpn: 0 };
  /** GID of the peer: messages about this connection come from there. */
  readonly remoteGid: string;
  abstract readonly role: Role;
  /** Our queue pair number, as the peer knows it; 0 until it is known. */
  localQpn = 0;
  /** Duration of timewait in milliseconds: afterwards no packet of the connection is in the network. */
  timewait = 0;
  #state: ConnectionState;
  #awaitingReply: PendingMessage | undefined;
  #isDetached = false;
  #isStale = false;
  #dreqTid = 0n;
  /** Private data of our DREP, once there is one. */
  #drepData: Uint8Array | undefined;

  /** @param tid transaction id of the messages up to RTU */
  constructor(
    protected readonly context: CoreContext,
    readonly localCommId: number,
    protected readonly route: Route,
    protected readonly tid: bigint,
    state: ConnectionState,
  ) {
    this.#state = state;
    this.remoteGid = gidText(route.remote);
    context.connections.add(this);
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** Retransmissions of a DREQ. */
  protected abstract readonly retryPolicy: RetryPolicy;
  /**
   * The connection is established, or has ended: frees the messages of the handshake. Many connections wait for their
   * end or are in timewait, and need a few numbers of these.
   */
  protected abstract onHandshakeEnd(): void;
  /**
   * No reply has arrived after the last retransmission of REQ or REP, or none will.
   * @param icmpError the error by which that is known
   */
  protected abstract onRetriesExhausted(icmpError?: IcmpErrorCode): void;

  // ---- commands ----

  /**
   * Sends a DREQ when the connection is established, or the DREP that a DREQ of the peer waits for. Does nothing when
   * the connection is ending already.
   * @throws VerbsError EINVAL before the connection is established
   */
  disconnect(privateData: Uint8Array): void {
    switch (this.state) {
      case 'ESTABLISHED':
        this.sendDreq(privateData);
        return;
      case 'DREQ_RCVD':
        this.#sendDrep(this.#dreqTid, privateData);
        this.setState('TIMEWAIT');
        return;
      case 'DREQ_SENT':
      case 'TIMEWAIT':
        return;
      default:
        throw this.wrongState('disconnect', 'ESTABLISHED');
    }
  }

  /** Sends a REJ. @param reason see `RejectReason` @throws VerbsError EINVAL when there is nothing to reject */
  abstract reject(reason: number, info: Uint8Array, privateData: Uint8Array): void;

  /** Ends the connection with the message that fits its state, and emits no further events. */
  close(): void {
    this.#isDetached = true;
    if (this.state === 'ESTABLISHED' || this.state === 'DREQ_RCVD') this.disconnect(NO_DATA);
    else this.closeUnestablished();
    this.#limitEnded();
  }

  /** Ends the connection in the states before ESTABLISHED. */
  protected abstract closeUnestablished(): void;

  // ---- messages ----

  /**
   * Handles a message of the peer about this connection. A message that does not fit the state is counted as ignored.
   */
  receive(message: Message<'MRA' | 'REJ' | 'RTU' | 'DREQ' | 'DREP'>): void {
    const isHandled =
      (message.name === 'MRA' && this.#onMra(message)) ||
      (message.name === 'REJ' && this.#onRej(message)) ||
      (message.name === 'RTU' && this.onRtu(message)) ||
      (message.name === 'DREQ' && this.#onDreq(message)) ||
      (message.name === 'DREP' && this.#onDrep(message));
    if (!isHandled) this.context.count('ignored', message.name);
  }

  /** @returns whether the message fits the state */
  protected abstract onRtu(rtu: Message<'RTU'>): boolean;

  /** The peer uses the queue pair of this connection for another one: it no longer knows this connection. */
  onStale(): void {
    if (this.state === 'ESTABLISHED') {
      this.#isStale = true;
      this.disconnect(NO_DATA);
    } else if (this.state === 'DREQ_SENT') {
      // No DREP will come: the stale peer counts as one.
      this.setState('TIMEWAIT');
      this.#emitDisconnected(NO_DATA);
    }
  }

  onDeadline(): void {
    const { context } = this;
    const pending = this.#awaitingReply;
    const wait = pending !== undefined && context.now < pending.giveUpAt ? pending.backoff.next() : 0;
    if (pending !== undefined && wait > 0) {
      pending.isMraReceived = false;
      const asks = pending.name !== 'REP' && pending.backoff.asksForErrors;
      context.retransmit(pending.name, pending.outgoing, asks ? this.localCommId : undefined);
      context.deadlines.set(this, Math.min(context.now + wait, pending.giveUpAt));
    } else if (this.state === 'TIMEWAIT') {
      this.exitTimewait();
    } else if (this.state === 'DREQ_SENT') {
      this.#endUnanswered();
    } else {
      this.onRetriesExhausted();
    }
  }

  /** ICMP says that a REQ or DREQ does not reach the peer. Does nothing when a reply has come all the same. */
  onIcmpError(code: IcmpErrorCode): void {
    if (this.state === 'DREQ_SENT') this.#endUnanswered();
    else if (this.state === 'REQ_SENT') this.onRetriesExhausted(code);
  }

  /** No DREP comes. */
  #endUnanswered(): void {
    this.setState('TIMEWAIT');
    this.#emitDisconnected(NO_DATA, { timedOut: true });
  }

  #onMra({ messageMraed, serviceTimeout }: Message<'MRA'>): boolean {
    const pending = this.#awaitingReply;
    if (pending?.name === 'REP' && messageMraed === Subject.REP) {
      // It is repeated all the same: its RTU may be lost after the MRA, and the wait for it is short.
      const asked = this.context.now + milliseconds(serviceTimeout);
      pending.giveUpAt = Math.max(pending.giveUpAt, Math.min(asked, pending.latestGiveUp));
      this.context.changes++;
      return true;
    }
    const isSubject = pending?.name === 'REQ' && messageMraed === Subject.REQ;
    // One MRA for each transmission counts, so that a peer cannot extend the wait without end.
    if (!isSubject || pending === undefined || pending.isMraReceived) return false;
    pending.isMraReceived = true;
    this.context.changes++;
    const until = this.context.now + milliseconds(serviceTimeout) + this.timewait;
    this.context.deadlines.set(this, Math.max(this.deadline, until));
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
        this.#emitDisconnected(privateData, { reason });
        return true;
      default:
        return false;
    }
    this.emit({ type: 'REJECTED', reason, info: info.subarray(0, infoLength), privateData });
    return true;
  }

  #onDreq({ tid, localCommId, remoteQpn, privateData }: Message<'DREQ'>): boolean {
    if (remoteQpn !== this.localQpn) return false;
    switch (this.state) {
      // The DREQ has overtaken the REP: the peer has accepted and disconnected.
      case 'REQ_SENT':
        this.send('DREP', tid, { remoteCommId: localCommId });
        this.setState('TIMEWAIT');
        this.emit({ type: 'REJECTED', reason: RejectReason.CONSUMER_DEFINED, info: NO_DATA, privateData });
        return true;
      // A peer that disconnects was connected: its RTU, or our application's decision, is late.
      case 'REP_RCVD':
      case 'REP_SENT':
      case 'ESTABLISHED':
        this.#dreqTid = tid;
        this.setState('DREQ_RCVD');
        this.#emitDisconnected(privateData);
        if (this.#isDetached) this.disconnect(NO_DATA);
        return true;
      case 'DREQ_SENT':
        this.#sendDrep(tid);
        this.setState('TIMEWAIT');
        this.#emitDisconnected(privateData);
        return true;
      case 'TIMEWAIT':
        this.context.count('rx_duplicates', 'DREQ');
        if (this.#drepData === undefined) this.#sendDrep(tid);
        else this.repeat('DREP', this.#dreqTid, { privateData: this.#drepData });
        return true;
      default:
        return false;
    }
  }

  #onDrep({ privateData }: Message<'DREP'>): boolean {
    if (this.state !== 'DREQ_SENT') return false;
    this.setState('TIMEWAIT');
    this.#emitDisconnected(privateData);
    return true;
  }

  #emitDisconnected(
    privateData: Uint8Array,
    { timedOut = false, reason }: { timedOut?: boolean; reason?: number } = {},
  ): void {
    const finalReason = reason ?? (this.#isStale ? RejectReason.STALE_CONNECTION : undefined);
    this.emit({ type: 'DISCONNECTED', privateData, timedOut, reason: finalReason });
  }

  // ---- for both roles ----

  /** The only writer of the state. Stops retransmissions, and starts timewait or removes the connection. */
  protected setState(to: ConnectionState): void {
    if (!isTransition(this.#state, to))
      throw new Error(`connection ${this}: ${this.#state} -> ${to} is not a transition`);
    const { context } = this;
    context.ended.delete(this);
    context.changes++;
    this.#state = to;
    this.#awaitingReply = undefined;
    context.deadlines.clear(this);
    if (!HANDSHAKE.has(to)) this.onHandshakeEnd();
    if (to === 'CLOSED') context.connections.remove(this);
    if (to === 'TIMEWAIT') context.deadlines.set(this, context.now + this.timewait);
    this.#limitEnded();
  }

  /**
   * A connection that only the protocol still needs makes room for others when there are too many: the peer with the
   * most of them loses its oldest. Whoever connects and disconnects without end pays itself.
   */
  #limitEnded(): void {
    const { ended, maxEnded } = this.context;
    const hasEnded = this.#state === 'TIMEWAIT' || (this.#state === 'DREQ_SENT' && this.#isDetached);
    if (!hasEnded) return;
    ended.delete(this);
    ended.add(this);
    if (ended.size > maxEnded) ended.oldestOfLargest()?.exitTimewait();
  }

  /** Removes the connection, at the end of its timewait or before. */
  protected exitTimewait(): void {
    this.setState('CLOSED');
    this.emit({ type: 'TIMEWAIT_EXIT' });
  }

  /** Sends a DREQ, with retransmissions. */
  protected sendDreq(privateData: Uint8Array, policy = this.retryPolicy): void {
    const tid = this.context.tidOf(this.localCommId);
    const dreq = this.send('DREQ', tid, { remoteQpn: this.peer.qpn, privateData });
    this.setState('DREQ_SENT');
    this.awaitReply('DREQ', dreq, policy);
  }

  /** Returns the DREQ of an established connection for the end of the process, without sending it. */
  writeExitDreq(): Outgoing | undefined {
    if (this.state !== 'ESTABLISHED') return undefined;
    const tid = this.context.tidOf(this.localCommId);
    return this.context.write(this.route, 'DREQ', tid, this.#ids(), {
      remoteQpn: this.peer.qpn,
      privateData: EXIT_DATA,
    });
  }

  /** Sends a message with the communication ids of this connection. */
  protected send<N extends MessageName>(name: N, tid: bigint, content: Content<N>): Outgoing {
    return this.context.send(this.route, name, tid, this.#ids(), content);
  }

  /** Sends a message again that is not kept. */
  protected repeat<N extends MessageName>(name: N, tid: bigint, content: Content<N>): void {
    this.context.repeat(this.route, name, tid, this.#ids(), content);
  }

  #ids<N extends MessageName>(): Content<N> {
    return { localCommId: this.localCommId, remoteCommId: this.peer.commId } as Content<N>;
  }

  #sendDrep(tid: bigint, privateData = NO_DATA): void {
    this.#dreqTid = tid;
    this.#drepData = privateData;
    this.send('DREP', tid, { privateData });
  }

  /**
   * Retransmits a message until the state changes.
   * @param limit milliseconds in all, even if turns are late
   * @param longest the same, when MRAs of the peer ask for more
   */
  protected awaitReply(
    name: MessageName,
    outgoing: Outgoing,
    policy: RetryPolicy,
    limit = Number.POSITIVE_INFINITY,
    longest = limit,
  ): void {
    const { now, deadlines } = this.context;
    const [giveUpAt, latestGiveUp] = [now + limit, now + longest];
    const backoff = new Backoff(policy);
    this.#awaitingReply = { name, outgoing, backoff, giveUpAt, latestGiveUp, isMraReceived: false };
    deadlines.set(this, Math.min(now + backoff.next(), giveUpAt));
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

  /** Sends a REJ with reason TIMEOUT. The peer finds the connection by our CA GUID in it (IBTA 12.6.7.3). */
  protected sendTimeoutRej(): Outgoing {
    const info = new Uint8Array(8);
    new DataView(info.buffer).setBigUint64(0, this.context.guid);
    return this.sendRej(Subject.OTHER, RejectReason.TIMEOUT, info, NO_DATA);
  }

  protected emit(event: CoreEventBody): void {
    if (!this.#isDetached) this.context.emit({ id: this.localCommId, ...event });
  }

  /** @internal */
  wrongState(call: string, needed: string): VerbsError {
    return new VerbsError('EINVAL', `connection ${this} is in state ${this.state}, ${call} needs ${needed}`);
  }

  toString(): string {
    return `0x${this.localCommId.toString(16).padStart(8, '0')}`;
  }

  /** Sets the duration of timewait from the ACK timeout of the queue pair, encoded. */
  protected setTimewait(ackTimeout: number): void {
    this.timewait = Math.min(milliseconds(ackTimeout), MAX_TIMEWAIT);
  }
}
