/** The verbs of a device; the public class Device adds connections. */

import { on, once } from 'node:events';
import { gidBytes } from '../base/gid.js';
import { checkBoolean, checkInteger, checkOptions } from '../base/options.js';
import { checkWait, type WaitOptions, waitFor } from '../base/waiting.js';
import type { Card } from '../device/card.js';
import { EventType, nameOf } from '../device/codes.js';
import { type Decision, decisions } from '../device/decisions.js';
import type { Engine, Mode } from '../device/engine.js';
import { CardMemory, releaseMemory } from '../device/memory.js';
import { VerbsError } from '../errors.js';
import type { Link } from '../link/link.js';
import { Congestion } from './congestion.js';
import { type Counters, readCounters } from './counters.js';
import { Cq, type CqOptions } from './cq.js';
import type { Description } from './describe.js';
import type { AsyncEvent } from './events.js';
import type { Explanation, FailureContext } from './explain.js';
import { chooseGid, type GidChoice, type GidEntry, gidTable, updateGidTable } from './gid.js';
import { ahAttrFromWc } from './grh.js';
import { MulticastGroups } from './groups.js';
import { NumberMap } from './numbermap.js';
import { Pd } from './pd.js';
import { writePkeys } from './pkey.js';
import { type DeviceInfo, deviceInfo, type PortInfo, portInfo } from './port.js';
import { publish } from './publish.js';
import type { Qp } from './qp.js';
import { type AhAttr, type ResolvedAddress, resolveAddress } from './resolvedaddress.js';
import { Resource } from './resource.js';
import type { Srq } from './srq.js';
import { type DeviceStat, deviceStat } from './stat.js';
import type { Wc } from './wc.js';

/** Entries of the card's GID table. */
const MAX_GIDS = 63;

/**
 * A `WebAssembly.Memory` that is shared; what programs see of one whose TypeScript has no library with the namespace
 * WebAssembly.
 */
export type SharedMemory = typeof globalThis extends {
  WebAssembly: { Memory: new (...options: never) => infer Memory };
}
  ? Memory
  : {
      /** The memory, a SharedArrayBuffer. */
      readonly buffer: ArrayBufferLike;
    };

/** @internal The parts that `openDevice` has prepared for the constructor. */
export interface ContextInit {
  readonly card: Card;
  readonly link: Link;
  readonly engine: Engine;
  readonly notes: readonly string[];
  readonly keepAlive: boolean;
  readonly pkeys: readonly number[];
}

/**
 * The verbs of a device: a card on a link (ibv_context). In inline mode the card runs when the event loop is free and
 * during polls; in worker mode it always runs. The public class is `Device`.
 *
 * Events: `event` (an `AsyncEvent`), also as `for await (const event of device.events)`; `close`.
 *
 * @example
 * ```ts
 * const device = await openDevice({ link: 'udp' });
 * console.log(device.query().fwVer, device.queryPort().state, device.chooseGid().gid);
 * device.on('event', ({ type }) => console.log(type));
 * await device.close();
 * ```
 */
export class Context extends Resource {
  /** Always `device`. */
  readonly kind = 'device';
  /** The choices of `openDevice` and their reasons: link, interface, GID, MTU. One text per choice. */
  readonly notes: readonly string[];
  /** Congestion control. */
  readonly congestion: Congestion;
  /** @internal */
  readonly card: Card;
  /** @internal */
  readonly link: Link;
  /** @internal */
  readonly engine: Engine;
  /** @internal */
  readonly memory: CardMemory;
  /** @internal */
  readonly keepAlive: boolean;
  readonly #cqs = new NumberMap<Cq>();
  readonly #qps = new NumberMap<Qp>();
  readonly #srqs = new NumberMap<Srq>();
  /** @internal */
  readonly groups: MulticastGroups;
  #lastNumber = 0;
  #keepsProcessAlive = false;
  #gids: readonly GidEntry[];
  readonly #pkeys: readonly number[];
  #state: PortInfo['state'];
  #published: Promise<void> | undefined;
  #unpublish: (() => void) | undefined;

  /** @internal Use `openDevice`. */
  constructor({ card, link, engine, notes, keepAlive, pkeys }: ContextInit) {
    super([]);
    this.card = card;
    this.link = link;
    this.engine = engine;
    this.keepAlive = keepAlive;
    this.#pkeys = writePkeys(card, pkeys);
    this.memory = new CardMemory(card);
    this.congestion = new Congestion(card);
    link.watchInterface?.(() => this.#onInterfaceChange());
    this.#gids = gidTable(link.interface.addresses);
    this.#state = portInfo(link, this.#gids.length, 1).state;
    this.notes = [...notes, ...(link.notes ?? []), ...this.#describeOpening(), ...engine.notes];
    this.groups = new MulticastGroups(card, link);
    this.#configurePort();
    engine.onEvent = (type, handle) => this.#onEvent(type, handle);
    engine.onFailure = (reason) => this.#onFailure(reason);
    engine.schedule();
  }

  /** Thread that runs the card: `inline` or `worker`, see `OpenOptions.mode`. */
  get mode(): Mode {
    return this.engine.mode;
  }

  /**
   * The card's memory: that of all regions, at `mr.addr`, and of the card's own objects. A WebAssembly module of the
   * program that imports it works on regions where they are; it must write to nothing else.
   */
  get sharedMemory(): SharedMemory {
    return this.card.memory;
  }

  /** Name of the device: `wasm-` and the interface's name. */
  get label(): string {
    return `wasm-${this.link.interface.name}`;
  }

  /** The GID table: one RoCE v2 entry per address of the interface. A GID_CHANGE event replaces it. */
  get gids(): readonly GidEntry[] {
    return this.#gids;
  }

  /** Returns limits, vendor and link features (ibv_query_device). @throws VerbsError EINVAL after close */
  query(): DeviceInfo {
    this.assertOpen();
    return deviceInfo(this.card, this.link);
  }

  /** Returns state and MTU of the only port (ibv_query_port). @throws VerbsError EINVAL after close */
  queryPort(): PortInfo {
    this.assertOpen();
    return portInfo(this.link, this.gids.length, this.#pkeys.length);
  }

  /**
   * Returns an entry of the P_Key table (ibv_query_pkey), 16 bits: bit 15 = full member, bits 0 to 14 = partition. Two
   * queue pairs can communicate if they are in the same partition and at least one is a full member (IBTA 10.9.3).
   * @throws TypeError, RangeError for an index outside the table
   */
  queryPkey(index: number): number {
    this.assertOpen();
    return this.#pkeys[checkInteger('index', index, 0, this.#pkeys.length - 1)] as number;
  }

  /**
   * Chooses the local GID to reach a peer from, or to advertise to a peer whose address is not known yet. It has the
   * peer's address family and scope, and the longest common prefix. Without a peer, IPv4 comes first and link-local
   * addresses last.
   * @param peer GID or IP address of the peer
   * @throws TypeError when `peer` is no address; VerbsError EADDRNOTAVAIL when no entry can reach it
   */
  chooseGid(peer?: string): GidChoice {
    const choice = chooseGid(this.gids, peer);
    if (choice !== undefined) return choice;
    const have = this.gids.map(({ address }) => address).join(', ') || 'none';
    throw new VerbsError(
      'EADDRNOTAVAIL',
      `no address of ${this.link.interface.name} (${have}) can reach ${peer ?? 'a peer'}: family and scope must match`,
    );
  }

  /** Allocates a protection domain (ibv_alloc_pd). @throws VerbsError ENOMEM when none is left */
  async allocPd(): Promise<Pd> {
    this.assertOpen();
    return new Pd(this, this.nextNumber());
  }

  /**
   * Creates a completion queue (ibv_create_cq).
   * @throws TypeError, RangeError; VerbsError ENOMEM when memory is exhausted
   */
  async createCq(options: CqOptions = {}): Promise<Cq> {
    this.assertOpen();
    return new Cq(this, this.nextNumber(), options);
  }

  /**
   * Resolves a peer's address: route, next hop and its MAC address.
   * @param attr destination GID, and the attributes of the route
   * @param wait limits the time to find the next hop; the kernel gives up after 3 s
   * @throws TypeError, RangeError for wrong attributes; VerbsError EINVAL when source and destination differ in address
   * family, EADDRNOTAVAIL when no local address can reach it, EHOSTUNREACH without a route or an answer to ARP or
   * neighbour discovery, ETIMEDOUT after `timeout`; the signal's reason
   */
  async resolveAddress(attr: AhAttr, wait: WaitOptions = {}): Promise<ResolvedAddress> {
    this.assertOpen();
    checkWait(wait);
    // before the promise exists: nobody would take its rejection if this threw
    const to = String(attr?.grh?.dgid);
    const resolving = resolveAddress(attr, this.gids, (peer) => this.chooseGid(peer), this.link);
    return waitFor(resolving, `${to} is not resolved`, wait);
  }

  /**
   * Returns the address of a datagram's sender (ibv_init_ah_from_wc), for `pd.createAh`.
   * @param wc the datagram's completion
   * @param buffer start of the receive's memory, at least 40 bytes
   * @throws TypeError, RangeError for a wrong buffer; VerbsError EINVAL when the completion is not that of a datagram
   */
  ahAttrFromWc(wc: Wc, buffer: Uint8Array): AhAttr {
    this.assertOpen();
    return ahAttrFromWc(wc, buffer, this.gids);
  }

  /** Returns the counters of the card, and those of the link as `link.<name>`. @throws VerbsError EINVAL after close */
  counters(): Counters {
    this.assertOpen();
    const counters = readCounters(this.card, this.card.exports.counters());
    for (const [name, value] of Object.entries(this.link.counters())) counters[`link.${name}`] = value;
    return counters;
  }

  /**
   * Explains a completion: facts, likely causes and, with the option `trace`, the last packets of its queue pair, with
   * `decisions` also the decisions of the card. Call it soon after the completion, while the card still knows the state
   * of the queue pair. Same as `wc.explain()`.
   */
  explain(wc: Wc): Explanation {
    return wc.explain();
  }

  /**
   * Returns what the card has decided about its queue pairs, oldest first: changes of state, retransmissions, failures
   * and NAKs, each with a `text`. Empty unless the device was opened with `decisions`.
   * @param qp of this queue pair only. Default: of all
   */
  decisions(qp?: Qp): Decision[] {
    this.assertOpen();
    return decisions(this.card, qp?.qpNum);
  }

  /**
   * Returns state, addresses and all counters, also those of each queue pair, as plain data.
   * @throws VerbsError EINVAL after close
   */
  stat(): DeviceStat {
    this.assertOpen();
    return deviceStat(this);
  }

  /**
   * Publishes the device to other processes of this user, which read `stat()` through `wasm-roce stat` or {@link
   * publishedDevices}, until the device is closed or fails. A second call does nothing.
   * @param name 1 to 32 letters, digits, `_`, `-` and `.`. Default: the device's name
   * @throws TypeError for another name; VerbsError EPERM when other users can access the runtime folder, EIO when the
   * socket cannot be made
   */
  async publish(name = this.label): Promise<void> {
    this.assertOpen();
    this.#published ??= publish(name, () => deviceStat(this)).then((unpublish) => {
      if (this.isAlive) this.#unpublish = unpublish;
      else unpublish();
    });
    try {
      await this.#published;
    } catch (error) {
      this.#published = undefined;
      throw error;
    }
  }

  /**
   * Iterates over asynchronous events until the device is closed (ibv_get_async_event). Does not keep the process
   * running.
   */
  get events(): AsyncIterable<AsyncEvent> {
    const source = on(this, 'event', { close: ['close'] });
    return {
      async *[Symbol.asyncIterator]() {
        for await (const [event] of source) yield event as AsyncEvent;
      },
    };
  }

  /**
   * Waits for the next asynchronous event. `events` also has those that come between two calls.
   * @throws TypeError, RangeError for wrong options; VerbsError ECANCELED when the device is closed, EIO when it has
   * failed before, ETIMEDOUT after `timeout`; the signal's reason
   */
  async nextEvent(wait: WaitOptions = {}): Promise<AsyncEvent> {
    this.assertOpen();
    checkWait(wait);
    const done = new AbortController();
    const { signal } = done;
    try {
      const closed = once(this, 'close', { signal }).then(() => {
        throw new VerbsError('ECANCELED', `${this} was closed`);
      });
      const event = once(this, 'event', { signal }).then(([event]) => event as AsyncEvent);
      return await waitFor(Promise.race([event, closed]), 'no event', wait);
    } finally {
      done.abort();
    }
  }

  /**
   * Closes the device and its link (ibv_close_device). A second call does nothing.
   * @param options `force`: also closes all objects of the device. Default false
   * @throws VerbsError EBUSY when objects of the device are still open; the message names them; EIO when the file of
   * `pcap` is not whole, once everything is closed
   */
  override async close(options: { readonly force?: boolean } = {}): Promise<void> {
    const { force = false } = checkOptions('device.close', options, { force: checkBoolean });
    const isFirst = !this.isClosed;
    if (force) this.closeWithUsers();
    else this.closeNow();
    await this.engine.ended;
    const { captureError } = this.link;
    if (isFirst && captureError !== undefined) throw captureError;
  }

  /** Keeps the process running while the device is open. */
  ref(): this {
    if (!this.#keepsProcessAlive && this.isAlive) {
      this.#keepsProcessAlive = true;
      this.engine.ref();
    }
    return this;
  }

  /**
   * Undoes `ref`: the process may exit although the device is open. This is the default. Connections, and calls that
   * wait, keep the process running by themselves.
   */
  unref(): this {
    if (this.#keepsProcessAlive) this.engine.unref();
    this.#keepsProcessAlive = false;
    return this;
  }

  /** Closes the device and all its objects, for `using`. */
  override [Symbol.dispose](): void {
    this.closeWithUsers();
  }

  /** Closes the device and all its objects, for `await using`. */
  override async [Symbol.asyncDispose](): Promise<void> {
    await this.close({ force: true });
  }

  /** @internal */
  registerCq(handle: number, cq: Cq): void {
    this.#cqs.set(handle, cq);
  }

  /** @internal */
  unregisterCq(handle: number): void {
    this.#cqs.delete(handle);
  }

  /** @internal */
  registerQp(handle: number, qp: Qp): void {
    this.#qps.set(handle, qp);
  }

  /** @internal */
  unregisterQp(handle: number): void {
    this.#qps.delete(handle);
  }

  /** @internal */
  qps(): Qp[] {
    return [...this.#qps.values()];
  }

  /** @internal */
  registerSrq(handle: number, srq: Srq): void {
    this.#srqs.set(handle, srq);
  }

  /** @internal */
  unregisterSrq(handle: number): void {
    this.#srqs.delete(handle);
  }

  /** @internal Returns a number for the label of an object that has no number of its own. */
  nextNumber(): number {
    return ++this.#lastNumber;
  }

  /** @internal State of a queue pair for explanations. Undefined when it is closed; its handle may have been reused. */
  failureContext(handle: number, qpNum: number): FailureContext | undefined {
    const qp = this.#qps.get(handle);
    return qp?.qpNum === qpNum ? qp.failureContext() : undefined;
  }

  /** @internal Drop counters other than 0. */
  drops(): Counters {
    return Object.fromEntries(
      Object.entries(this.counters()).filter(([name, count]) => count > 0 && /^(link\.)?\w*drop/.test(name)),
    );
  }

  /** @internal */
  protected override describe(): Description {
    const { link, mode } = this;
    const addresses = this.gids.map(({ address }) => address);
    return { link: link.kind, mode, state: this.queryPort().state, addresses, qps: this.#qps.size };
  }

  /** @internal */
  protected free(): void {
    this.#unpublish?.();
    this.unref();
    this.engine.close();
    void this.engine.ended.then(() => releaseMemory(this.card));
    // After closing, so that exceptions and calls of listeners cannot interfere.
    process.nextTick(() => {
      this.emit('close');
      this.removeAllListeners();
    });
  }

  /** Tells the card its addresses, for which alone it accepts datagrams, and its MTU. */
  #configurePort(): void {
    const { bytes, exports } = this.card;
    const gids = this.gids.slice(0, MAX_GIDS);
    for (const [i, { gid }] of gids.entries()) bytes.set(gidBytes(gid), exports.scratch() + 16 * i);
    exports.setPort(gids.length, this.queryPort().activeMtu);
  }

  #describeOpening(): string[] {
    const { interface: iface, kind } = this.link;
    const { activeMtu } = portInfo(this.link, this.gids.length, this.#pkeys.length);
    const gid = chooseGid(this.gids);
    return [
      `link ${kind} on ${iface.name}`,
      gid ? `GID ${gid.index}, ${gid.gid}: ${gid.reason}` : `no GID: ${iface.name} has no IP address`,
      `path MTU up to ${activeMtu}: the interface's MTU is ${iface.mtu}`,
    ];
  }

  /** The interface or its addresses have changed: updates the GID table and emits events. */
  #onInterfaceChange(): void {
    if (!this.isAlive) return;
    const gids = updateGidTable(this.#gids, this.link.interface.addresses);
    const isChanged = gids.length !== this.#gids.length || gids.some(({ gid }, i) => gid !== this.#gids[i]?.gid);
    this.#gids = gids;
    this.#configurePort();
    const { state } = this.queryPort();
    const source = { device: this, portNum: 1 } as const;
    if (state !== this.#state)
      this.#emitAsyncEvent(this, { type: state === 'ACTIVE' ? 'PORT_ACTIVE' : 'PORT_ERR', ...source });
    if (isChanged) this.#emitAsyncEvent(this, { type: 'GID_CHANGE', ...source });
    this.#state = state;
    this.engine.linkChanged();
    this.engine.schedule();
  }

  /** The card's thread has failed: rejects everything that is pending. */
  #onFailure(reason: string): void {
    if (!this.isAlive) return;
    const why = `the card of ${this} has failed: ${reason}`;
    this.fail(why);
    for (const cq of this.#cqs.values()) cq.onFailure(why);
    // The counters cannot be read any more.
    this.#unpublish?.();
    this.#unpublish = undefined;
    this.#emitAsyncEvent(this, { type: 'DEVICE_FATAL', device: this, reason });
  }

  #onEvent(type: number, handle: number): void {
    if (type === EventType.COMPLETION) {
      this.#cqs.get(handle)?.onCompletion();
    } else if (type === EventType.MISSED) {
      const { exports } = this.card;
      for (const [cqHandle, cq] of this.#cqs) if (!exports.cqIsArmed(cqHandle)) cq.onCompletion();
    } else if (type === EventType.CQ_ERR) {
      const cq = this.#cqs.get(handle);
      if (cq === undefined) return;
      cq.onOverrun();
      this.#emitAsyncEvent(cq, { type: 'CQ_ERR', cq });
    } else if (type === EventType.SRQ_LIMIT_REACHED) {
      const srq = this.#srqs.get(handle);
      if (srq !== undefined) this.#emitAsyncEvent(srq, { type: 'SRQ_LIMIT_REACHED', srq });
    } else {
      const qp = this.#qps.get(handle);
      if (qp === undefined) return;
      qp.onEvent();
      this.#emitAsyncEvent(qp, { type: nameOf(EventType, type), qp } as AsyncEvent);
    }
  }

  /** Listeners run outside the turn, so that their exceptions and calls cannot interfere with it. */
  #emitAsyncEvent(source: Resource, event: AsyncEvent): void {
    process.nextTick(() => {
      if (source !== this) source.emit('event', event);
      this.emit('event', event);
    });
  }
}
