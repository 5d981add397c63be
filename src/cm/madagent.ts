/**
 * The MAD agent of a device (ib_mad): receives and sends the messages of queue pair 1, resolves their destinations, and
 * runs the core's timer. A device has one, opened at first use and closed with the device. All of it runs on the
 * application's thread.
 */
import { randomBytes } from 'node:crypto';
import { macOfNumber } from '../base/address.js';
import { gidAddress } from '../base/gid.js';
import { NumberMap } from '../base/numbermap.js';
import { Scope } from '../base/scope.js';
import { clearTimeout, performance, setImmediate, setTimeout } from '../base/timers.js';
import { MAX_TIMER_MS } from '../base/waiting.js';
import { GSI } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import { GRH_BYTES, readGrh } from '../verbs/address/grh.js';
import type { AddressHandle } from '../verbs/objects/ah.js';
import type { Context } from '../verbs/objects/context.js';
import type { Cq } from '../verbs/objects/cq.js';
import type { DeviceBase } from '../verbs/objects/devicebase.js';
import type { Mr } from '../verbs/objects/mr.js';
import { Qp } from '../verbs/objects/qp.js';
import { Resource } from '../verbs/objects/resource.js';
import type { Wc } from '../verbs/work/wc.js';
import { AhCache } from './ahcache.js';
import { BoundPorts } from './boundports.js';
import type { Outgoing, Route } from './core/context.js';
import { CmCore } from './core/core.js';
import type { CoreEvent } from './core/events.js';
import type { ListenParameters } from './core/listeners.js';
import { MAD_BYTES } from './core/mad.js';
import type { Partitions } from './core/partitions.js';
import { ErrorSockets } from './errorsockets.js';
import { Inbox, type ReceivedMad, WAITING_MESSAGES } from './inbox.js';
import { MadSendQueue } from './madsendqueue.js';
import { partitionsOf } from './pkeys.js';
import { type ReservedPort, SharedAddress } from './sharedaddress.js';

/**
 * Receives for messages that arrive while the program keeps the event loop busy: one for each 32 KiB of the card's
 * memory, within these limits. What has no receive is lost without regard to its sender, and an honest one repeats it
 * only after seconds.
 */
const ARRIVING = { atLeast: 224, atMost: 2016 };
const ARRIVING_SHARE = 32 * 1024;
/** Completions of one poll. */
const POLLED = 256;
/** Size of a receive buffer in bytes: room for the GRH and a MAD. */
const SLOT_BYTES = 304;
const SENDS = 128;
/** Messages that are sent in one round: peers have receives for some hundreds. */
const SENDS_PER_ROUND = 64;
/** Time limit for sending the last messages when the device is closed (ms). */
const SHUTDOWN_TIMEOUT = 50;

/** Handles the core's events of an id or a listener. */
export type EventHandler = (event: CoreEvent) => void;

/** The MAD of a slot, which changes with each message that the slot receives. */
type WritableMad = { -readonly [K in keyof ReceivedMad]: ReceivedMad[K] };

function newMad(slot: number): WritableMad {
  return { slot, at: slot * SLOT_BYTES, bytes: 0, mac: 0, vlanTci: undefined, pkeyIndex: 0, requestKey: undefined };
}

/** A listener of the core. */
interface Listening {
  readonly parameters: ListenParameters;
  readonly handler: EventHandler;
  readonly port: ReservedPort;
}

/** Receives of a device: for the messages that wait, and for those that arrive. */
function receivesOf({ card }: Context): number {
  const { atLeast, atMost } = ARRIVING;
  const share = Math.floor(card.options.memoryBytes / ARRIVING_SHARE);
  return WAITING_MESSAGES + Math.min(Math.max(share, atLeast), atMost);
}

const agents = new WeakMap<DeviceBase, Promise<MadAgent>>();

function gidsOf(device: DeviceBase): string[] {
  return device.gids.map(({ gid }) => gid);
}

/** See the head of this file. */
export class MadAgent extends Resource {
  readonly kind = 'cm';
  readonly label = 'manager';
  readonly device: DeviceBase;
  readonly core: CmCore;
  readonly #cq: Cq;
  readonly #wcs: readonly Wc[];
  readonly #sharedAddress: SharedAddress;
  readonly #listeners = new Map<number, Listening>();
  readonly #handlers = new NumberMap<EventHandler>();
  readonly #ahCache: AhCache;
  readonly #inbox: Inbox;
  readonly #view: DataView;
  /** By slot. They are used again and again, so that a message that is dropped costs no object. */
  readonly #mads: WritableMad[] = [];
  readonly #receive: {
    wrId: number;
    readonly sgList: { addr: number; readonly length: number; readonly lkey: number };
  };
  readonly #slotsAddr: number;
  /** Messages whose address handle is in the cache. */
  readonly #sendQueue = new MadSendQueue();
  readonly #errorSockets: ErrorSockets;
  readonly #partitions: Partitions;
  readonly #dropped = { cm_drop_unreachable: 0, cm_drop_no_grh: 0 };
  /** DREQs for the end of the process. Each names the next hop, which may change. */
  readonly #keptDreqs = new NumberMap<{ prepare(): void }>();
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #isFlushing = false;
  /**
   * A round is what is handled and sent between two passes of the event loop. In a round that has begun messages are
   * sorted as they arrive, but none is handled.
   */
  #isInRound = false;
  /** More than one pass sorts has arrived. */
  #isUnsorted = false;
  /** Messages that can still be sent in this round. */
  #sendBudget = SENDS_PER_ROUND;

  /** Returns the agent of a device. @throws VerbsError ENOMEM */
  static of(device: Context): Promise<MadAgent> {
    const known = agents.get(device);
    if (known !== undefined) return known;
    device.assertOpen();
    const agent = MadAgent.#open(device);
    agents.set(device, agent);
    agent.catch(() => agents.delete(device));
    return agent;
  }

  static #open(device: Context): Promise<MadAgent> {
    return Scope.open(async (scope) => {
      const pd = scope.add(await device.allocPd()).makeInternal();
      const receives = receivesOf(device);
      const sendCq = scope.add(await device.createCq({ cqe: receives + SENDS })).makeInternal();
      const mr = scope.add(await pd.regMr(receives * SLOT_BYTES));
      const sizes = { maxSendWr: SENDS, maxRecvWr: receives, maxSendSge: 1, maxRecvSge: 1, maxInlineData: MAD_BYTES };
      const qp = scope.add(new Qp(pd, { ...sizes, sendCq, sqSigAll: false }, true));
      const partitions = partitionsOf(device);
      await qp.activate({ qkey: GSI.qkey, pkeyIndex: partitions.defaultIndex });
      const agent = new MadAgent(qp, mr, partitions);
      device.paths.onRerouted = () => {
        for (const kept of agent.#keptDreqs.values()) kept.prepare();
      };
      await device.link.sharedPort?.handleMads();
      device.on('event', ({ type }) => type === 'GID_CHANGE' && agent.#sharedAddress.onGids(gidsOf(device)));
      return agent;
    });
  }

  /** Is closed with its queue pair. @param qp queue pair 1, in RTS @param mr receive buffers */
  private constructor(
    readonly qp: Qp,
    readonly mr: Mr,
    partitions: Partitions,
  ) {
    super([qp]);
    const { device } = qp;
    this.device = device;
    this.#partitions = partitions;
    const guid = randomBytes(8);
    // locally administered, so different from every assigned GUID
    guid[0] = 2;
    const { exports } = device.card;
    this.#sharedAddress = new SharedAddress(device.link, gidsOf(device), exports.randomPsn());
    this.core = new CmCore({
      otherCards: this.#sharedAddress,
      partitions,
      guid: guid.readBigUInt64BE(),
      random: () => ((exports.randomPsn() << 16) ^ exports.randomPsn()) >>> 0,
      host: {
        isLocal: (gid) => device.gids.some((entry) => entry.gid === gid),
        get maxMtu() {
          return device.queryPort().activeMtu;
        },
      },
    });
    BoundPorts.of(device).isListening = (space, port) => this.core.isListening(space, port);
    this.#cq = qp.recvCq;
    this.#wcs = this.#cq.createWcs(POLLED);
    this.#ahCache = new AhCache(qp.pd);
    this.#errorSockets = new ErrorSockets(device.link, (id, code) => {
      if (this.isAlive) this.callCore((core, now) => core.fail(id, code, now));
    });
    const { buffer, byteOffset, byteLength } = mr.buffer;
    this.#view = new DataView(buffer, byteOffset, byteLength);
    this.#inbox = new Inbox({
      isKnown: (id) => this.core.has(id),
      isPeer: (id) => this.core.hasPeer(id),
      release: ({ slot }) => this.#postReceive(slot),
    });
    const sge = mr.sge(0, SLOT_BYTES);
    this.#slotsAddr = sge.addr;
    this.#receive = { wrId: 0, sgList: { ...sge } };
    // the queue pair may take more receives than it was asked for, but there is memory for so many only
    for (let slot = 0; slot < mr.length / SLOT_BYTES; slot++) this.#postReceive(slot);
    this.#cq.on('completion', () => this.#onCompletion());
    this.#cq.arm();
    this.addToParents();
    this.makeInternal();
  }

  /** Current time of the core, milliseconds. */
  now(): number {
    return performance.now();
  }

  /** Calls the core, then sends its messages and dispatches its events. Returns and throws what the call does. */
  callCore<T>(call: (core: CmCore, now: number) => T): T {
    this.assertOpen();
    try {
      return call(this.core, this.now());
    } finally {
      this.#flush();
    }
  }

  /** Sets the handler for the events of an id, until `unsubscribe`. */
  subscribe(id: number, handler: EventHandler): void {
    this.#handlers.set(id, handler);
  }

  /** Drops later events of an id. */
  unsubscribe(id: number): void {
    this.#handlers.delete(id);
  }

  /**
   * Keeps the DREQ of an established connection: it is sent if the process or this thread ends without disconnecting,
   * so that the peer does not wait for it in vain.
   * @returns drops it, when the connection ends
   */
  keepDreq(id: number): () => void {
    const message = this.core.writeExitDreq(id);
    const { link } = this.device;
    if (message === undefined || !link.keepLastFrame) return () => {};
    let drop: (() => void) | undefined;
    let isOver = false;
    const keep = () => {
      if (isOver || !this.isAlive) return;
      drop?.();
      drop = undefined;
      const ah = this.#ahFor(message);
      if (ah === undefined) return;
      const frame = this.qp.writeDatagram(message.bytes, this.#targetOf(message, ah));
      drop = frame && link.keepLastFrame?.(frame, gidAddress(message.local));
    };
    // without an answer of its next hop the peer would not get it either
    const prepare = () => this.#ahCache.resolve(message, this.now(), keep, () => {});
    prepare();
    const kept = this.#keptDreqs.add({ prepare });
    return () => {
      isOver = true;
      this.#keptDreqs.delete(kept);
      drop?.();
    };
  }

  /** Adds a listener, with a handler for its requests. @returns its handle @throws VerbsError EADDRINUSE */
  listen(parameters: ListenParameters, handler: EventHandler): number {
    const handle = this.callCore((core) => core.listen(parameters));
    try {
      const port = this.#sharedAddress.reservePort(parameters);
      this.#listeners.set(handle, { parameters, handler, port });
      this.#inbox.countListener(parameters.space, parameters.port, 1);
      return handle;
    } catch (error) {
      this.core.unlisten(handle);
      throw error;
    }
  }

  /** Resolves when requests to a listener reach the device. @throws VerbsError EADDRINUSE */
  announced(handle: number): Promise<void> {
    return this.#listeners.get(handle)?.port.isAnnounced ?? Promise.resolve();
  }

  /** Removes a listener. */
  unlisten(handle: number): void {
    const listening = this.#listeners.get(handle);
    if (listening !== undefined) {
      listening.port.release();
      this.#inbox.countListener(listening.parameters.space, listening.parameters.port, -1);
    }
    this.#listeners.delete(handle);
    if (!this.isClosed) this.core.unlisten(handle);
  }

  /** Returns the counters of the core, and of messages that were dropped here. */
  counters(): Readonly<Record<string, number>> {
    const all = { ...this.#dropped, cm_drop_rx_busy: this.#inbox.dropped, cm_drop_tx_busy: this.#sendQueue.dropped };
    const counters: Record<string, number> = { ...this.core.counters() };
    for (const [name, count] of Object.entries(all)) if (count > 0) counters[name] = count;
    for (const [name, count] of Object.entries(this.#inbox.repeated))
      for (const counter of count > 0 ? [`cm_rx_msgs.${name}`, `cm_rx_duplicates.${name}`] : [])
        counters[counter] = (counters[counter] ?? 0) + count;
    return counters;
  }

  /** Ends all connections with their last message, unless the device has failed. */
  protected free(): void {
    clearTimeout(this.#timer);
    if (this.isAlive) this.#disconnectAll();
    this.#handlers.clear();
    this.#listeners.clear();
    this.#errorSockets.close();
    this.#sharedAddress.close();
  }

  #disconnectAll(): void {
    this.core.closeAll(this.now());
    for (const message of this.core.takeMessages()) this.#sendQueue.add(message);
    const { engine } = this.device;
    const until = this.now() + SHUTDOWN_TIMEOUT;
    // The device can fail meanwhile.
    const isDone = () => !this.isAlive || (this.#sendQueue.isEmpty && this.qp.query().progress.sendPending === 0);
    do {
      this.#sendBudget = SENDS_PER_ROUND;
      this.#postQueued();
      engine.schedule();
      engine.poll();
    } while (!isDone() && this.now() < until);
  }

  #postReceive(slot: number): void {
    this.#receive.wrId = slot;
    this.#receive.sgList.addr = this.#slotsAddr + slot * SLOT_BYTES;
    this.qp.postRecv(this.#receive);
  }

  #onCompletion(): void {
    this.#sortArrived();
    if (!this.#isInRound) this.#handleRound();
  }

  /** Sorts what has arrived: the queue pair must have receives left, whatever the program does with its time. */
  #sortArrived(): void {
    if (!this.isAlive) return;
    // Before polling: a completion that arrives after the poll raises an event.
    this.#cq.arm();
    this.#isUnsorted = true;
    for (let left = this.qp.maxRecvWr; this.#isUnsorted && left > 0; left -= POLLED) {
      const count = this.#cq.pollUnlessFailed(this.#wcs);
      for (let i = 0; i < count; i++) this.#sort(this.#wcs[i] as Wc);
      this.#isUnsorted = count === POLLED;
    }
  }

  #sort(wc: Wc): void {
    if (!wc.ok) return;
    const { wrId: slot } = wc;
    if (!wc.hasGrh) {
      this.#dropped.cm_drop_no_grh++;
      this.#postReceive(slot);
      return;
    }
    this.#mads[slot] ??= newMad(slot);
    const mad = this.#mads[slot];
    mad.bytes = wc.byteLen;
    mad.mac = wc.sourceMacNumber;
    mad.vlanTci = wc.vlanTci;
    mad.pkeyIndex = wc.pkeyIndex ?? 0;
    this.#inbox.add(mad, this.#view);
  }

  /** Whether a message waits that may be handled now. */
  get #hasWaiting(): boolean {
    const now = this.now();
    return this.#inbox.nextRound(now) <= now;
  }

  /** Handles the share of a round. */
  #handleRound(): void {
    if (!this.isAlive) return;
    this.#inbox.takeRound(this.now(), (mad) => this.#handle(mad));
    if (this.#isUnsorted || this.#hasWaiting) this.#beginRound();
    this.#flush();
  }

  /** @returns whether a connection or an exchange has changed */
  #handle({ slot, at, bytes, mac, vlanTci, pkeyIndex }: ReceivedMad): boolean {
    const datagram = this.mr.buffer.subarray(at, at + bytes);
    const { source, destination } = readGrh(datagram);
    const neighbour = { mac: macOfNumber(mac), vlanTci };
    const route: Route = { local: destination, remote: source, neighbour, pkeyIndex };
    const hasChanged = this.core.receive(datagram.subarray(GRH_BYTES), route, this.now());
    this.#postReceive(slot);
    return hasChanged;
  }

  /**
   * Sends messages, dispatches events and sets the timer. Calls of event handlers are handled in the next iteration.
   */
  #flush(): void {
    if (this.#isFlushing || !this.isAlive) return;
    this.#isFlushing = true;
    try {
      for (let isMore = true; isMore; ) {
        const messages = this.core.takeMessages();
        const events = this.core.takeEvents();
        for (const message of messages) this.#send(message);
        for (const event of events) this.#dispatch(event);
        isMore = messages.length + events.length > 0;
      }
    } finally {
      this.#isFlushing = false;
    }
    this.#setTimer();
  }

  #dispatch(event: CoreEvent): void {
    if (event.type === 'CONNECT_REQUEST') this.#listeners.get(event.listener)?.handler(event);
    else this.#handlers.get(event.id)?.(event);
  }

  #setTimer(): void {
    // a round that has begun sets the timer again when it is over
    const nextRound = this.#isInRound ? Number.POSITIVE_INFINITY : this.#inbox.nextRound(this.now());
    const at = Math.min(this.core.nextDeadline(), nextRound);
    // A timer that is too early sets itself again. Node keeps a list for each duration of timers without `ref` until
    // that time, even if they are cleared: a new timer for each message would leave thousands.
    if (at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    const wait = Math.min(Math.max(0, Math.ceil(at - this.now())), MAX_TIMER_MS);
    // Pending calls keep the process running; retransmissions do not.
    this.#timer = setTimeout(() => this.#onTimer(), wait).unref();
  }

  #onTimer(): void {
    if (!this.isAlive) return;
    this.#timerAt = Number.POSITIVE_INFINITY;
    this.core.expire(this.now());
    this.#ahCache.closeRetired();
    if (!this.#isInRound && this.#hasWaiting) this.#handleRound();
    else this.#flush();
  }

  #send(message: Outgoing): void {
    const onResolved = () => {
      this.#sendQueue.add(message);
      this.#postQueued();
    };
    const onError = () => {
      this.#dropped.cm_drop_unreachable++;
    };
    this.#ahCache.resolve(message, this.now(), onResolved, onError);
  }

  /** Posts queued messages within the budget of this round. */
  #postQueued(): void {
    for (let { next } = this.#sendQueue; next !== undefined; { next } = this.#sendQueue) {
      if (this.#sendBudget === 0 || !this.#tryPost(next)) return;
      this.#sendQueue.shift();
    }
  }

  /** Posts a message, unless the send queue is full. @returns whether the message leaves the queue */
  #tryPost(message: Outgoing): boolean {
    if (!this.qp.isAlive) return true;
    const ah = this.#ahFor(message);
    if (ah === undefined) return true;
    try {
      const target = this.#targetOf(message, ah);
      const frameFrom = (sourcePort: number) => this.qp.writeDatagram(message.bytes, target, sourcePort);
      const { bytes: sgList, fails } = message;
      if (fails === undefined || !this.#errorSockets.send(message, fails, frameFrom))
        this.qp.postSend({ opcode: 'SEND', sgList, ...target });
    } catch (error) {
      if (!(error instanceof VerbsError && error.code === 'ENOMEM')) throw error;
      this.#spendBudget(this.#sendBudget);
      return false;
    }
    this.#spendBudget(1);
    return true;
  }

  #targetOf({ pkeyIndex = this.#partitions.defaultIndex }: Outgoing, ah: AddressHandle) {
    return { ah, remoteQpn: GSI.qpn, remoteQkey: GSI.qkey, pkeyIndex };
  }

  /** The entry may have been refreshed since the lookup. */
  #ahFor(message: Outgoing): AddressHandle | undefined {
    try {
      return this.#ahCache.get(message);
    } catch (error) {
      // Card memory is short, or our address has gone since the message arrived.
      if (!(error instanceof VerbsError)) throw error;
      this.#dropped.cm_drop_unreachable++;
      return undefined;
    }
  }

  #spendBudget(messages: number): void {
    this.#sendBudget -= messages;
    this.#beginRound();
  }

  #beginRound(): void {
    if (this.#isInRound) return;
    this.#isInRound = true;
    setImmediate(() => this.#onNextRound());
  }

  #onNextRound(): void {
    this.#isInRound = false;
    this.#sendBudget = SENDS_PER_ROUND;
    if (!this.isAlive) return;
    this.#postQueued();
    if (this.#isUnsorted) this.#sortArrived();
    if (this.#hasWaiting) this.#handleRound();
    else this.#setTimer();
  }
}
