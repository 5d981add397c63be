/**
 * A link wrapper for queue pairs whose packets a script writes. It hands the script the frames that are addressed to
 * its queue pair numbers, and passes all others on to the card. The card knows nothing of the script.
 */

import { clearTimeout, performance, setTimeout } from '../../base/timers.js';
import type { Frames } from '../../link/frames.js';
import type { Link, LinkCounters } from '../../link/link.js';
import { allocateRing, RingView } from '../../link/ring.js';
import { LinkWrapper } from '../../link/wrapper.js';
import type { Arrival } from '../script/port.js';
import { bthAt, destQpAt } from './bth.js';
import { KernelTimes, type PacketTimes } from './kerneltimes.js';
import { Pacer } from './pacer.js';

/** The most frames that wait for a script, and that wait for the link. Further ones are lost, and counted. */
const MAX_WAITING = 65_536;
/** Time before frames that the inner link has not taken are offered again (ns). */
const SEND_RETRY_NS = 100_000;

/** Frames of one queue pair number. */
export interface ScriptedQueue {
  /** The queue pair number. */
  readonly qpn: number;
  /**
   * Sends a frame, at once or as soon as the rate of the link permits.
   * @returns when it left, or will leave: nanoseconds of `performance.now()`
   */
  send(frame: Uint8Array): number;
  /** Takes the oldest frame that has arrived. */
  shift(): Arrival | undefined;
  /** Called when a frame has arrived. */
  onArrival: (() => void) | undefined;
  /** Whether the queue pair number is given back, or the link is closed: no frame arrives any more. */
  readonly isClosed: boolean;
  /** Gives the queue pair number back to the card. */
  close(): void;
}

/** Options of `ScriptedLink`. */
export interface ScriptedLinkOptions {
  /**
   * The most packets of all scripts per second, from 1 to 1,000,000. A hundredth of a second has a hundredth of them at
   * most; further ones wait. Absent: no limit. The packets of the card are not counted.
   */
  readonly rate?: number;
}

/** The highest rate that can be given. */
const MAX_RATE = 1_000_000;

const nanoseconds = () => performance.now() * 1e6;

/** The entry of a scripted queue pair number. */
interface Scripted {
  readonly queue: ScriptedQueue;
  readonly arrivals: Arrival[];
  /** Whether a frame of the number is for the script. */
  takes(frame: Uint8Array): boolean;
}

/** A link whose frames belong to the card, except for those of some queue pair numbers. Works in inline mode only. */
export class ScriptedLink extends LinkWrapper {
  readonly #queues = new Map<number, Scripted>();
  readonly #outgoing: Uint8Array[] = [];
  #memory: Uint8Array = new Uint8Array(0);
  #slotBytes = 0;
  #card: { readonly tx: RingView; readonly rx: RingView } | undefined;
  #own: { readonly tx: RingView; readonly rx: RingView } | undefined;
  readonly #pacer: Pacer | undefined;
  /** Sends what waits for its time. */
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;
  #now = 0;
  #lost = 0;
  #times: KernelTimes | string | undefined;
  readonly #isOurs = (qpn: number) => this.#queues.has(qpn);

  /** @throws RangeError for a rate out of range */
  constructor(inner: Link, { rate }: ScriptedLinkOptions = {}) {
    super(inner);
    if (rate !== undefined && !(Number.isInteger(rate) && rate >= 1 && rate <= MAX_RATE))
      throw new RangeError(`rate is ${rate}, must be an integer from 1 to ${MAX_RATE}`);
    this.#pacer = rate === undefined ? undefined : new Pacer(rate);
  }

  /** @throws TypeError without `Frames.allocate`; RangeError if the card has not enough memory left */
  attach(frames: Frames): void {
    const tx = allocateRing(frames, frames.tx.mask + 1);
    const rx = allocateRing(frames, frames.rx.mask + 1);
    const view = (ring: typeof tx) => new RingView(frames.memory, ring);
    this.#memory = frames.memory;
    this.#slotBytes = frames.slotBytes;
    this.#card = { tx: view(frames.tx), rx: view(frames.rx) };
    this.#own = { tx: view(tx), rx: view(rx) };
    this.attachInner({ ...frames, tx, rx });
  }

  /**
   * Takes the frames of a queue pair number away from the card.
   * @param takes whether the script gets a frame; the card keeps the others. Default: all
   * @throws RangeError if a script has it already
   */
  open(qpn: number, takes: (frame: Uint8Array) => boolean = () => true): ScriptedQueue {
    if (this.#queues.has(qpn)) throw new RangeError(`queue pair ${qpn} has a script already`);
    this.#times ??= this.#openTimes();
    const arrivals: Arrival[] = [];
    const isOpen = () => !this.#isClosed && this.#queues.get(qpn)?.queue === queue;
    const queue: ScriptedQueue = {
      qpn,
      onArrival: undefined,
      get isClosed() {
        return !isOpen();
      },
      shift: () => arrivals.shift(),
      send: (frame) => this.#inject(frame),
      close: () => {
        if (isOpen()) this.#queues.delete(qpn);
        queue.onArrival?.();
      },
    };
    this.#queues.set(qpn, { arrivals, queue, takes });
    return queue;
  }

  send(now: number): number {
    this.#now = now;
    const [card, own] = this.#rings();
    this.#flush();
    let taken = 0;
    for (; card.tx.filled > 0 && own.tx.free > 0; taken++) {
      const cursor = card.tx.consumer;
      const [at, length] = [card.tx.addr(cursor), card.tx.length(cursor)];
      if (length > 0) this.#put(own.tx, this.#memory.subarray(at, at + length), card.tx.options(cursor));
      card.tx.consumer = cursor + 1;
    }
    this.inner.send(now);
    return taken;
  }

  receive(now: number): number {
    this.#now = now;
    const [card, own] = this.#rings();
    this.#flush();
    if (own.tx.filled > 0) this.inner.send(now);
    this.inner.receive(now);
    const times = this.#tap();
    times?.look(this.#isOurs);
    let passed = 0;
    while (own.rx.filled > 0 && card.rx.free > 0) {
      const cursor = own.rx.consumer;
      const at = own.rx.addr(cursor);
      const frame = this.#memory.subarray(at, at + own.rx.length(cursor));
      const scripted = this.#queues.get(destQpAt(frame, bthAt(frame)));
      if (scripted === undefined || !scripted.takes(frame)) {
        this.#put(card.rx, frame, own.rx.options(cursor));
        passed++;
      } else if (scripted.arrivals.length < MAX_WAITING) {
        const at = nanoseconds();
        scripted.arrivals.push({ frame: frame.slice(), at: times?.received(frame, at) ?? at });
        scripted.queue.onArrival?.();
      } else this.#lost++;
      own.rx.consumer = cursor + 1;
    }
    return passed;
  }

  override nextDeadline(): number {
    const inner = super.nextDeadline();
    // frames that wait for their time have a timer
    if ((this.#own?.tx.filled ?? 0) === 0) return inner;
    const retry = this.#now + SEND_RETRY_NS;
    return inner === 0 ? retry : Math.min(inner, retry);
  }

  /** The source of the times of the packets of scripts. */
  get times(): PacketTimes {
    if (this.#times instanceof KernelTimes) return this.#times.counts;
    return { kernel: 0, process: 0, ...(this.#times !== undefined && { reason: this.#times }) };
  }

  /** Adds `scripted_dropped`: frames that no script took in time, or that the link did not take. */
  override counters(): LinkCounters {
    return { ...super.counters(), scripted_dropped: this.#lost };
  }

  override close(): void {
    this.#tap()?.close();
    this.#isClosed = true;
    clearTimeout(this.#timer);
    // who waits for a frame must not wait until its time is over
    for (const { queue } of this.#queues.values()) queue.onArrival?.();
    super.close();
  }

  #rings() {
    if (!this.#card || !this.#own) throw new TypeError('the scripted link is not attached');
    return [this.#card, this.#own] as const;
  }

  #inject(frame: Uint8Array): number {
    if (frame.length > this.#slotBytes)
      throw new RangeError(`the frame has ${frame.length} bytes, the link's slots have ${this.#slotBytes}`);
    const due = this.#pacer?.departure(nanoseconds(), this.#outgoing.length) ?? 0;
    if (this.#outgoing.length < MAX_WAITING) this.#outgoing.push(frame);
    else this.#lost++;
    this.#flush();
    const at = nanoseconds();
    this.inner.send(at);
    // what waits for the rate leaves later, and by then nobody asks
    if (this.#outgoing.length > 0) return Math.max(at, due);
    const times = this.#tap();
    return times?.sent(frame, times.look(this.#isOurs), at) ?? at;
  }

  /** Opens a tap, where frames pass through the kernel. */
  #openTimes(): KernelTimes | string {
    if (this.kind !== 'packet') return `frames of the ${this.kind} link pass the kernel by`;
    return KernelTimes.open(this.interface.index);
  }

  #tap(): KernelTimes | undefined {
    return this.#isClosed || typeof this.#times === 'string' ? undefined : this.#times;
  }

  #flush(): void {
    const [, own] = this.#rings();
    while (this.#outgoing.length > 0 && own.tx.free > 0 && this.#isDue())
      this.#put(own.tx, this.#outgoing.shift() as Uint8Array, 0);
  }

  /** Returns whether one more packet may leave now, and counts it. If not, the timer sends what waits. */
  #isDue(): boolean {
    if (this.#pacer === undefined) return true;
    const now = nanoseconds();
    const wait = this.#pacer.departure(now) - now;
    if (wait <= 0) this.#pacer.left(now);
    else if (!this.#isClosed) this.#timer ??= setTimeout(this.#sendWaiting, Math.ceil(wait / 1e6));
    return wait <= 0;
  }

  readonly #sendWaiting = (): void => {
    this.#timer = undefined;
    this.#flush();
    this.inner.send(nanoseconds());
  };

  #put(to: RingView, frame: Uint8Array, options: number): void {
    const cursor = to.producer;
    this.#memory.set(frame, to.addr(cursor));
    to.describe(cursor, frame.length, options);
    to.producer = cursor + 1;
  }
}
