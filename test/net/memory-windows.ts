/**
 * Memory windows between two simulated applications: the owner binds them to the part of its arena that the other
 * writes to; the other uses them for requests, and invalidates or returns them.
 */
import type { Random } from '../kit/random.js';
import type { SendRequest } from '../kit/rig.js';
import type { Range } from './model.js';
import { type Side, WORDS, WRITTEN } from './side.js';

const [REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, ZERO_BASED] = [2, 4, 8, 32] as const;

export interface Window {
  readonly mw: number;
  readonly type: 1 | 2;
  rkey: number;
  /** In the owner's arena. */
  range: Range;
  isZeroBased: boolean;
  /** Pending requests that use it. */
  uses: number;
}

export class Windows {
  readonly #free: Window[];
  /** Never lent: bound when no other is free. */
  readonly #spare: Window;
  /** Windows that were lent, requests that used one, and windows that the other invalidated. */
  readonly counts = { lent: 0, passed: 0, closed: 0 };
  #open: Window[] = [];
  #returned: Window[] = [];

  /** @param start of the other's zone in the arena */
  constructor(
    readonly owner: Side,
    readonly start: number,
  ) {
    const make = (type: 1 | 2): Window => {
      const mw = owner.rig.window(type);
      const rkey = owner.rig.x.mrRkey(mw);
      return { mw, type, rkey, range: { offset: 0, length: 0 }, isZeroBased: false, uses: 0 };
    };
    this.#free = [make(1), make(2), make(2), make(2)];
    this.#spare = make(1);
  }

  // ---- the owner ----

  /** A window to bind, and the request. Type 1 may be bound again while bound. */
  bind(random: Random): { window: Window; bind: NonNullable<SendRequest['bind']> } {
    const again = this.#returned.find(({ type }) => type === 1);
    const window = this.#free.shift() ?? again ?? this.#spare;
    this.#returned = this.#returned.filter((other) => other !== window);
    const { arena } = this.owner;
    const size = WRITTEN + WORDS * 8;
    // atomics through a zero-based window are aligned to its start
    const from = random.chance(0.3) ? 0 : random.below(size / 2) & ~7;
    const length = random.between(8, size - from + 1);
    window.range = { offset: this.start + from, length };
    window.isZeroBased = window.type === 2 && random.chance(0.4);
    window.rkey = ((window.rkey & 0xffffff00) | ((window.rkey + 1) & 0xff)) >>> 0;
    const access = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | (window.isZeroBased ? ZERO_BASED : 0);
    const va = arena.iova + BigInt(window.range.offset);
    return { window, bind: { rkey: window.rkey, lkey: arena.lkey, va, length, access } };
  }

  /** Undoes `bind`: the request was not posted. */
  unbind(window: Window): void {
    if (window !== this.#spare) this.#free.unshift(window);
  }

  /** The window is bound: the other may use it. */
  lend(window: Window): void {
    if (window === this.#spare) return;
    this.counts.lent++;
    this.#open.push(window);
  }

  /** A returned window that is to be unbound, if there is one. */
  takeReturned(): Window | undefined {
    const window = this.#returned.find(({ type }) => type === 2);
    this.#returned = this.#returned.filter((other) => other !== window);
    return window;
  }

  /** Undoes `takeReturned`: the request was not posted. */
  keep(window: Window): void {
    this.#returned.unshift(window);
  }

  closed(window: Window): void {
    this.#free.push(window);
  }

  closedByOther(window: Window): void {
    this.counts.closed++;
    this.closed(window);
  }

  // ---- the other ----

  /** A window that covers the range, in half of the cases. */
  through(random: Random, { offset, length }: Range): Window | undefined {
    if (length === 0 || random.chance(0.3)) return undefined;
    return this.#open.find(({ range }) => offset >= range.offset && offset + length <= range.offset + range.length);
  }

  /** Address and key of the range through the window. */
  remote({ rkey, range, isZeroBased }: Window, offset: number): { va: bigint; rkey: number } {
    return { va: isZeroBased ? BigInt(offset - range.offset) : this.owner.arena.iova + BigInt(offset), rkey };
  }

  /** A window that the other invalidates with SEND_WITH_INV. */
  takeOpen(random: Random): Window | undefined {
    const window = random.chance(0.5) ? this.#open.find(({ type }) => type === 2) : undefined;
    this.#open = this.#open.filter((other) => other !== window);
    return window;
  }

  /** Undoes `takeOpen`: the request was not posted. */
  reopen(window: Window): void {
    this.#open.unshift(window);
  }

  /** A request that uses the window is posted. */
  use(window: Window): void {
    this.counts.passed++;
    window.uses++;
  }

  /** Now and then the other returns a window. */
  handBack(random: Random): void {
    const window = random.chance(0.1) ? this.#open.find(({ uses }) => uses === 0) : undefined;
    if (window === undefined) return;
    this.#open = this.#open.filter((other) => other !== window);
    this.#returned.push(window);
  }
}
