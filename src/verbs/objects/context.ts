/** The verbs of a device; the public class Device adds connections. */

import { type EventEmitter, on, once } from 'node:events';
import type { Socket } from 'node:net';
import { diagnostics, publishTo } from '../../base/diagnostics.js';
import { NumberMap } from '../../base/numbermap.js';
import { checkBoolean, checkOptions } from '../../base/options.js';
import { nextTick } from '../../base/timers.js';
import { checkWait, type WaitOptions, waitFor } from '../../base/waiting.js';
import { EventType, nameOf } from '../../device/codes.js';
import { type Decision, decisions } from '../../device/decisions.js';
import type { Mode } from '../../device/engine.js';
import { releaseMemory } from '../../device/memory.js';
import { VerbsError } from '../../errors.js';
import type { HostFault } from '../../probe/faults/hostfault.js';
import { chooseGid } from '../address/gid.js';
import type { PortInfo } from '../address/port.js';
import { serveControl } from '../diagnose/control.js';
import type { Counters } from '../diagnose/counters.js';
import type { Description } from '../diagnose/describe.js';
import type { Explanation, FailureContext } from '../diagnose/explain.js';
import type { DeviceFault, FaultRuleOptions, Faults } from '../diagnose/faults.js';
import { LossReports } from '../diagnose/losses.js';
import { publish } from '../diagnose/publish.js';
import { command, type DeviceStat } from '../diagnose/stat.js';
import { warnOfIcrc, warnOfNoNeighbour, warnOfNoReceive } from '../diagnose/warnings.js';
import type { Wc } from '../work/wc.js';
import { Congestion } from './congestion.js';
import { Cq, type CqOptions } from './cq.js';
import { type CardObject, DeviceBase, type DeviceInit } from './devicebase.js';
import type { AsyncEvent, DeviceEvents } from './events.js';
import { Pd } from './pd.js';
import type { Qp } from './qp.js';
import type { Srq } from './srq.js';

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
export interface ContextInit extends DeviceInit {
  readonly notes: readonly string[];
  readonly faults: Faults;
}

export interface Context extends EventEmitter<DeviceEvents> {}

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
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: the base class is an emitter
export class Context extends DeviceBase {
  /** The choices of `openDevice` and their reasons: link, interface, GID, MTU. One text per choice. */
  readonly notes: readonly string[];
  /** Congestion control. */
  readonly congestion: Congestion;
  readonly #cqs = new NumberMap<Cq>();
  readonly #qps = new NumberMap<Qp>();
  readonly #srqs = new NumberMap<Srq>();
  readonly #losses: LossReports;
  readonly #faults: Faults;
  /** Streams of controllers. */
  readonly #controls = new Set<Socket>();
  #keepsProcessAlive = false;
  #state: PortInfo['state'];
  #published: Promise<void> | undefined;
  #unpublish: (() => void) | undefined;

  /** @internal Use `openDevice`. */
  constructor(init: ContextInit) {
    super(init);
    const { card, link, engine, notes, faults } = init;
    this.congestion = new Congestion(card);
    this.#state = this.queryPort().state;
    this.#losses = new LossReports(this);
    this.#faults = faults;
    engine.onEvent = (type, handle) => this.#onEvent(type, handle);
    engine.onFailure = (reason) => this.#onFailure(reason);
    link.watchInterface?.(() => this.#onInterfaceChange());
    if (link.sharedPort) {
      link.sharedPort.onLost = (reason) => this.#onFailure(reason);
      link.sharedPort.onControl = (fd) => this.#onControl(fd);
    }
    this.paths.onUnreachable = (destination, error) => warnOfNoNeighbour(this, destination, error);
    this.notes = [...notes, ...(link.notes ?? []), ...this.#describeOpening(), ...engine.notes];
    faults.onHostFaults = (each) => this.#onHostFaults(each);
    if (faults.ofHost.length > 0) this.#onHostFaults(faults.ofHost);
    engine.schedule();
  }

  /** Thread that runs the card: `inline` or `worker`, see `OpenOptions.mode`. */
  get mode(): Mode {
    return this.engine.mode;
  }

  /**
   * The card's memory: that of all regions that `pd.regMr` has allocated, at `mr.addr`, and of the card's own objects.
   * A WebAssembly module of the program that imports it works on regions where they are; it must write to nothing else.
   */
  get sharedMemory(): SharedMemory {
    return this.card.memory;
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
   * Adds a rule of faults, which is in force until it is removed. It drops, delays or changes chosen packets between
   * the card and its link (`drop the 5th WRITE_MIDDLE`, `delay by 50us 1 % of ACK received`), or pretends an event of
   * the host: `port down`, `gid add 10.0.0.9`, `gid remove 10.0.0.1`, `gid move 10.0.0.1 to 2`, `device failure`. See
   * docs/scripts.md. As long as there are rules for packets, each packet costs some microseconds more.
   * @throws TypeError, RangeError for wrong arguments; ScriptError for a mistake in a rule for packets, with its
   * column; VerbsError ENOSPC for more than 16 rules, EINVAL after close
   */
  async addFault(rule: string, options: FaultRuleOptions = {}): Promise<DeviceFault> {
    this.assertOpen();
    return this.#faults.add(rule, options);
  }

  /** The rules of faults that are in force, in their order. */
  get faults(): readonly DeviceFault[] {
    return this.#faults.all;
  }

  /**
   * Returns the counters of the card, those of the link as `link.<name>`, and the numbers of packets that the rules of
   * faults have hit as `link.fault_rule_<id>_hits`.
   * @throws VerbsError EINVAL after close
   */
  override counters(): Counters {
    const hits = this.faults.map(({ id, hits }) => [`link.fault_rule_${id}_hits`, hits]);
    return { ...super.counters(), ...Object.fromEntries(hits) };
  }

  /**
   * Returns state, addresses and all counters, also those of each queue pair, as plain data.
   * @throws VerbsError EINVAL after close
   */
  stat(): DeviceStat {
    const { link, gids } = this;
    return {
      device: this.label,
      command: command(),
      interface: link.interface.name,
      link: link.kind,
      ...(link.sharedPort && { slot: link.sharedPort.slot }),
      state: this.queryPort().state,
      addresses: gids.map(({ address }) => address),
      counters: this.counters(),
      qps: this.qps().map((qp) => {
        const { peer } = qp.failureContext();
        return { qpNum: qp.qpNum, type: qp.type, state: qp.state, ...(peer && { peer }), counters: qp.counters() };
      }),
    };
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
    this.#published ??= publish(name, () => this.stat()).then((unpublish) => {
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
  register(handle: number, object: CardObject): void {
    this.#objectsLike(object).set(handle, object);
  }

  /** @internal */
  unregister(handle: number, object: CardObject): void {
    this.#objectsLike(object).delete(handle);
  }

  /** @internal */
  reportLosses(qp: Qp): void {
    this.#losses.closeQp(qp);
  }

  /** @internal */
  qps(): Qp[] {
    return [...this.#qps.values()];
  }

  /** @internal State of a queue pair for explanations. Undefined when it is closed; its handle may have been reused. */
  failureContext(handle: number, qpNum: number): FailureContext | undefined {
    const qp = this.#qps.get(handle);
    return qp?.qpNum === qpNum ? qp.failureContext() : undefined;
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
    for (const control of this.#controls) control.destroy();
    this.#losses.close();
    this.unref();
    this.paths.close();
    this.engine.close();
    void this.engine.ended.then(() => releaseMemory(this.card));
    // After closing, so that exceptions and calls of listeners cannot interfere.
    nextTick(() => {
      const error = this.failure === undefined ? undefined : new VerbsError('EIO', this.failure);
      publishTo(diagnostics.deviceClose, () => ({ device: this, error }));
      this.emit('close');
      this.removeAllListeners();
    });
  }

  /** The objects of the same kind, by handle. */
  #objectsLike({ kind }: CardObject): NumberMap<CardObject> {
    return { cq: this.#cqs, qp: this.#qps, srq: this.#srqs }[kind];
  }

  #describeOpening(): string[] {
    const { interface: iface, kind } = this.link;
    const { activeMtu } = this.queryPort();
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
    const isChanged = this.updateGids();
    const { state } = this.queryPort();
    const source = { device: this, portNum: 1 } as const;
    if (state !== this.#state)
      this.#emitAsyncEvent(this, { type: state === 'ACTIVE' ? 'PORT_ACTIVE' : 'PORT_ERR', ...source });
    if (isChanged) this.#emitAsyncEvent(this, { type: 'GID_CHANGE', ...source });
    this.#state = state;
    this.paths.update();
    this.engine.linkChanged();
    this.engine.schedule();
  }

  #onControl(fd: number): void {
    const control = serveControl(this, fd);
    this.#controls.add(control);
    control.on('close', () => this.#controls.delete(control));
  }

  /** Rules of faults pretend these events of the host from now on. */
  #onHostFaults(faults: readonly HostFault[]): void {
    if (!this.isAlive) return;
    this.setHostFaults(faults);
    this.#onInterfaceChange();
    if (faults.some(({ kind }) => kind === 'device failure')) this.#onFailure("the rule of faults 'device failure'");
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
      this.#losses.onLoss();
    } else if (type === EventType.LOSS) {
      this.#losses.onLoss();
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
      if (type === EventType.QP_NO_RECEIVE && !qp.isPostedByLibrary) warnOfNoReceive(qp);
      if (type === EventType.QP_ICRC_ERR) warnOfIcrc(qp);
      this.#emitAsyncEvent(qp, { type: nameOf(EventType, type), qp } as AsyncEvent);
    }
  }

  /** Listeners run outside the turn, so that their exceptions and calls cannot interfere with it. */
  #emitAsyncEvent(source: Cq | Qp | Srq | this, event: AsyncEvent): void {
    nextTick(() => {
      if (source !== this) (source as EventEmitter).emit('event', event);
      this.emit('event', event);
    });
  }
}
