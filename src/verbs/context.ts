/** The device, from which all other objects come. */
import { on } from 'node:events';
import type { Card } from '../device/card.js';
import { EventType, nameOf } from '../device/codes.js';
import type { Engine, Mode } from '../device/engine.js';
import { CardMemory } from '../device/memory.js';
import { VerbsError } from '../errors.js';
import type { Link } from '../link/link.js';
import { type AddressHandle, type AhAttr, resolveAh } from './ah.js';
import { checkInteger } from './check.js';
import { Congestion } from './congestion.js';
import { type Counters, readCounters } from './counters.js';
import { Cq, type CqOptions } from './cq.js';
import type { AsyncEvent } from './events.js';
import type { Circumstances, Explanation } from './explain.js';
import { changedGidTable, chooseGid, type GidChoice, type GidEntry, gidBytes, gidTable } from './gid.js';
import { ahAttrFromWc } from './grh.js';
import { Groups } from './groups.js';
import { Pd } from './pd.js';
import { writePkeys } from './pkey.js';
import { type DeviceInfo, deviceInfo, type PortInfo, portInfo } from './port.js';
import { publish } from './publish.js';
import type { Qp } from './qp.js';
import { Resource } from './resource.js';
import type { Srq } from './srq.js';
import { type DeviceStat, deviceStat } from './stat.js';
import type { Wc } from './wc.js';

/** Entries that the card's own table has. */
const MOST_GIDS = 63;

/** @internal What `openDevice` has prepared. */
export interface Parts {
  readonly card: Card;
  readonly link: Link;
  readonly engine: Engine;
  readonly notes: readonly string[];
  readonly keepAlive: boolean;
  readonly pkeys: readonly number[];
}

/**
 * A card on a link. Inline it works while the event loop is free or somebody polls; in worker mode always.
 *
 * Events: `event` (an `AsyncEvent`), also as `for await (const event of device.events)`; `close`.
 */
export class Device extends Resource {
  readonly kind = 'device';
  /** What was chosen at opening and why: link, interface, GID, MTU. */
  readonly notes: readonly string[];
  /** Congestion control: its parameters. */
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
  readonly #cqs = new Map<number, Cq>();
  readonly #qps = new Map<number, Qp>();
  readonly #srqs = new Map<number, Srq>();
  /** @internal */
  readonly groups: Groups;
  #numbers = 0;
  #gids: readonly GidEntry[];
  readonly #pkeys: readonly number[];
  #state: PortInfo['state'];
  #published: Promise<void> | undefined;
  #unpublish: (() => void) | undefined;

  /** @internal Use `openDevice`. */
  constructor({ card, link, engine, notes, keepAlive, pkeys }: Parts) {
    super([]);
    this.card = card;
    this.link = link;
    this.engine = engine;
    this.keepAlive = keepAlive;
    this.#pkeys = writePkeys(card, pkeys);
    this.memory = new CardMemory(card);
    this.congestion = new Congestion(card);
    link.watchInterface?.(() => this.#onInterface());
    this.#gids = gidTable(link.interface.addresses);
    this.#state = portInfo(link, this.#gids.length, 1).state;
    this.notes = [...notes, ...(link.notes ?? []), ...this.#describe(), ...engine.notes];
    this.groups = new Groups(card, link);
    this.#tellPort();
    engine.onEvent = (type, handle) => this.#onEvent(type, handle);
    engine.onFailure = (reason) => this.#onFailure(reason);
    engine.schedule();
  }

  /** Which thread runs the card: the program's own, or one for it. */
  get mode(): Mode {
    return this.engine.mode;
  }

  get label(): string {
    return `wasm-${this.link.interface.name}`;
  }

  /** The GID table: RoCE v2, one entry for every address of the interface. Another one after a GID_CHANGE event. */
  get gids(): readonly GidEntry[] {
    return this.#gids;
  }

  /** Limits, vendor and link features. */
  query(): DeviceInfo {
    this.assertOpen();
    return deviceInfo(this.card, this.link);
  }

  /** State and MTU of the port; there is one. */
  queryPort(): PortInfo {
    this.assertOpen();
    return portInfo(this.link, this.gids.length, this.#pkeys.length);
  }

  /**
   * An entry of the P_Key table (ibv_query_pkey), 16 bits: bit 15 says full member, the others name the partition. Two
   * queue pairs talk when their partitions are the same and at least one is a full member.
   * @throws RangeError beyond the table
   */
  queryPkey(index: number): number {
    this.assertOpen();
    return this.#pkeys[checkInteger('index', index, 0, this.#pkeys.length - 1)] as number;
  }

  /**
   * The GID to reach a peer from, or to tell a peer that is not known yet, with the reason. An address of the peer's own
   * family, the nearest to it; IPv4 first when nothing decides; never a link-local one unless the peer's is.
   * @param peer GID or IP address
   * @throws TypeError when `peer` is no address; VerbsError EADDRNOTAVAIL when no entry can reach it
   */
  chooseGid(peer?: string): GidChoice {
    const choice = chooseGid(this.gids, peer);
    if (choice !== undefined) return choice;
    const have = this.gids.map(({ address }) => address).join(', ') || 'none';
    throw new VerbsError(
      'EADDRNOTAVAIL',
      `no address of ${this.link.interface.name} (${have}) can reach ${peer ?? 'a peer'}: family and scope must be the same`,
    );
  }

  /** Allocates a protection domain. @throws VerbsError ENOMEM */
  async allocPd(): Promise<Pd> {
    this.assertOpen();
    return new Pd(this, this.nextNumber());
  }

  /** Creates a completion queue. @throws TypeError, RangeError, VerbsError ENOMEM */
  async createCq(options: CqOptions = {}): Promise<Cq> {
    this.assertOpen();
    return new Cq(this, this.nextNumber(), options);
  }

  /**
   * Looks up a peer's address: route, next hop and its MAC.
   * @throws TypeError, RangeError; VerbsError EINVAL, EADDRNOTAVAIL, EHOSTUNREACH
   */
  async createAh(attr: AhAttr): Promise<AddressHandle> {
    this.assertOpen();
    return resolveAh(attr, this.gids, (peer) => this.chooseGid(peer), this.link);
  }

  /**
   * The way back to whom a datagram came from (ibv_init_ah_from_wc), as `createAh` takes it.
   * @param wc the datagram's completion
   * @param buffer the start of the memory in which it arrived, 40 bytes at least
   * @throws TypeError, RangeError for a wrong buffer; VerbsError EINVAL when no datagram came with it
   */
  ahAttrFromWc(wc: Wc, buffer: Uint8Array): AhAttr {
    this.assertOpen();
    return ahAttrFromWc(wc, buffer, this.gids);
  }

  /** Counters of the card, and those of the link as `link.<name>`. */
  counters(): Counters {
    this.assertOpen();
    const counters = readCounters(this.card, this.card.exports.counters());
    for (const [name, value] of Object.entries(this.link.counters())) counters[`link.${name}`] = value;
    return counters;
  }

  /**
   * What happened to a work request, as far as the card knows: facts, likely causes and, with the option `trace`, the last
   * packets of its queue pair. Soon after the completion it knows most.
   */
  explain(wc: Wc): Explanation {
    return wc.explain();
  }

  /** State, addresses and all counters, also of every queue pair, as plain data. */
  stat(): DeviceStat {
    this.assertOpen();
    return deviceStat(this);
  }

  /**
   * Lets other processes of this user read `stat()`: `wasm-roce stat`, until the device is closed or fails. Does nothing
   * the second time.
   * @param name what to be known as. Default: the device's name
   * @throws TypeError for a name with other characters than letters, digits, `_`, `-`, `.`; VerbsError EPERM, EIO
   */
  async publish(name = this.label): Promise<void> {
    this.assertOpen();
    this.#published ??= publish(name, () => deviceStat(this)).then((end) => {
      if (this.isAlive) this.#unpublish = end;
      else end();
    });
    try {
      await this.#published;
    } catch (error) {
      this.#published = undefined;
      throw error;
    }
  }

  /** Asynchronous events as they come, until the device is closed; does not keep the process running. */
  get events(): AsyncIterable<AsyncEvent> {
    const source = on(this, 'event', { close: ['close'] });
    return {
      async *[Symbol.asyncIterator]() {
        for await (const [event] of source) yield event as AsyncEvent;
      },
    };
  }

  /**
   * Closes the device and its link.
   * @param force closes all that belongs to it first
   * @throws VerbsError EBUSY when something is still open; the message names it
   */
  override async close({ force = false }: { readonly force?: boolean } = {}): Promise<void> {
    if (force) this.closeWithUsers();
    else this.closeNow();
    await this.engine.ended;
  }

  /** Closes the device with all that belongs to it. */
  override [Symbol.dispose](): void {
    this.closeWithUsers();
  }

  /** Closes the device with all that belongs to it. */
  override async [Symbol.asyncDispose](): Promise<void> {
    await this.close({ force: true });
  }

  /** @internal */
  registerCq(handle: number, cq: Cq): void {
    this.#cqs.set(handle, cq);
  }

  /** @internal */
  forgetCq(handle: number): void {
    this.#cqs.delete(handle);
  }

  /** @internal */
  registerQp(handle: number, qp: Qp): void {
    this.#qps.set(handle, qp);
  }

  /** @internal */
  forgetQp(handle: number): void {
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
  forgetSrq(handle: number): void {
    this.#srqs.delete(handle);
  }

  /** @internal What objects without a number of their own are called by. */
  nextNumber(): number {
    return ++this.#numbers;
  }

  /** @internal What is known of a queue pair, unless it is closed and its handle perhaps another's. */
  circumstances(handle: number, qpNum: number): Circumstances | undefined {
    const qp = this.#qps.get(handle);
    return qp?.qpNum === qpNum ? qp.circumstances() : undefined;
  }

  /** @internal Reasons for which this device has dropped packets. */
  drops(): Counters {
    return Object.fromEntries(
      Object.entries(this.counters()).filter(([name, count]) => count > 0 && /^(link\.)?\w*drop/.test(name)),
    );
  }

  protected free(): void {
    this.#unpublish?.();
    this.engine.close();
    // outside of the closing, so that what listeners throw or call does not disturb it
    process.nextTick(() => {
      this.emit('close');
      this.removeAllListeners();
    });
  }

  /** The card takes datagrams for its own addresses only, and sends none that do not fit. */
  #tellPort(): void {
    const { bytes, exports } = this.card;
    const gids = this.gids.slice(0, MOST_GIDS);
    for (const [i, { gid }] of gids.entries()) bytes.set(gidBytes(gid), exports.scratch() + 16 * i);
    exports.setPort(gids.length, this.queryPort().activeMtu);
  }

  #describe(): string[] {
    const { interface: end, kind } = this.link;
    const { activeMtu } = portInfo(this.link, this.gids.length, this.#pkeys.length);
    const gid = chooseGid(this.gids);
    return [
      `link ${kind} on ${end.name}`,
      gid ? `GID ${gid.index}, ${gid.gid}: ${gid.reason}` : `no GID: ${end.name} has no IP address`,
      `path MTU up to ${activeMtu}: the interface's MTU is ${end.mtu}`,
    ];
  }

  /** The interface or its addresses have changed. */
  #onInterface(): void {
    if (!this.isAlive) return;
    const gids = changedGidTable(this.#gids, this.link.interface.addresses);
    const isOther = gids.length !== this.#gids.length || gids.some(({ gid }, i) => gid !== this.#gids[i]?.gid);
    this.#gids = gids;
    this.#tellPort();
    const { state } = this.queryPort();
    const about = { device: this, portNum: 1 } as const;
    if (state !== this.#state) this.#publish(this, { type: state === 'ACTIVE' ? 'PORT_ACTIVE' : 'PORT_ERR', ...about });
    if (isOther) this.#publish(this, { type: 'GID_CHANGE', ...about });
    this.#state = state;
    this.engine.linkChanged();
    this.engine.schedule();
  }

  /** The card's thread is gone, and with it all that was in progress. */
  #onFailure(reason: string): void {
    if (!this.isAlive) return;
    const why = `the card of ${this} has failed: ${reason}`;
    this.fail(why);
    for (const cq of this.#cqs.values()) cq.onFailure(why);
    // there is nothing to read any more
    this.#unpublish?.();
    this.#unpublish = undefined;
    this.#publish(this, { type: 'DEVICE_FATAL', device: this, reason });
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
      this.#publish(cq, { type: 'CQ_ERR', cq });
    } else if (type === EventType.SRQ_LIMIT_REACHED) {
      const srq = this.#srqs.get(handle);
      if (srq !== undefined) this.#publish(srq, { type: 'SRQ_LIMIT_REACHED', srq });
    } else {
      const qp = this.#qps.get(handle);
      if (qp === undefined) return;
      qp.onEvent();
      this.#publish(qp, { type: nameOf(EventType, type), qp } as AsyncEvent);
    }
  }

  /** Listeners run outside the turn, so that what they throw or call does not disturb it. */
  #publish(about: Resource, event: AsyncEvent): void {
    process.nextTick(() => {
      if (about !== this) about.emit('event', event);
      this.emit('event', event);
    });
  }
}
