/**
 * A clock without real time: it replaces performance.now and the timers of Node in this process. Time passes when
 * everything else is done: while no immediate and no request to the kernel is pending, the next timer expires at once.
 * So a test waits for nothing, a busy machine changes nothing, and a test has the same times in each run.
 *
 * vitest has taken the real timers before this file runs: the timeouts of tests and hooks are in real time.
 */
import { syncBuiltinESMExports } from 'node:module';
import { performance } from 'node:perf_hooks';
import timers from 'node:timers';
import timersPromises from 'node:timers/promises';

const real = {
  setImmediate: timers.setImmediate,
  clearTimeout: timers.clearTimeout,
  getActiveResourcesInfo: process.getActiveResourcesInfo,
};

/** The first time of the clock (ms). Not 0, which is "never" in several places. */
const START_MS = 1000;
/** Cost of a look at the clock (ms), so that a loop with a time limit ends. */
const LOOK_MS = 0.000_1;
/** Cost of a pass of the event loop (ms), so that time passes for those who are never done. */
const PASS_MS = 0.01;

let now = START_MS;

type Callback = (...args: unknown[]) => void;

/** A timer, as setTimeout and setInterval return it. */
class VirtualTimer {
  static #count = 0;
  /** Timers that expire at the same time expire in this order. */
  order = 0;
  /** When it expires (ms). */
  due = 0;
  #ref = true;

  constructor(
    readonly callback: Callback,
    readonly args: unknown[],
    readonly delay: number,
    readonly repeats: boolean,
  ) {
    this.refresh();
  }

  refresh(): this {
    this.due = now + this.delay;
    this.order = VirtualTimer.#count++;
    waiting.add(this);
    pump();
    return this;
  }

  ref(): this {
    this.#ref = true;
    return this;
  }

  unref(): this {
    this.#ref = false;
    return this;
  }

  hasRef(): boolean {
    return this.#ref;
  }

  close(): this {
    waiting.delete(this);
    return this;
  }

  [Symbol.toPrimitive](): number {
    return this.order;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

const waiting = new Set<VirtualTimer>();
let isPumping = false;

/** Requests to the kernel, a transfer to a pipe, say. Handles that only may become readable are none. */
const REQUEST = /Req|Wrap$/;
const HANDLE = /^(TCP|Pipe|TTY|UDP|Process|FSEvent|Stat|Signal)(Socket|Server)?Wrap$/;

/** Returns whether something else than a timer will happen. */
function isBusy(): boolean {
  return real
    .getActiveResourcesInfo()
    .some((name) => name === 'Immediate' || (REQUEST.test(name) && !HANDLE.test(name)));
}

/** Lets the next timer expire once nothing else happens, and so on until no timer is left. */
function pump(): void {
  if (isPumping || waiting.size === 0) return;
  isPumping = true;
  real.setImmediate(() => {
    isPumping = false;
    now += PASS_MS;
    const next = earliest();
    try {
      if (next && (next.due <= now || !isBusy())) expire(next);
    } finally {
      pump();
    }
  });
}

function earliest(): VirtualTimer | undefined {
  let first: VirtualTimer | undefined;
  for (const timer of waiting)
    if (!first || timer.due < first.due || (timer.due === first.due && timer.order < first.order)) first = timer;
  return first;
}

function expire(timer: VirtualTimer): void {
  now = Math.max(now, timer.due);
  waiting.delete(timer);
  if (timer.repeats) timer.refresh();
  timer.callback(...timer.args);
}

/** Node takes a delay of less than 1 ms, or of more than 2^31 - 1 ms, for 1 ms. */
function delayOf(ms: unknown): number {
  const delay = Math.trunc(Number(ms));
  return delay >= 1 && delay <= 2 ** 31 - 1 ? delay : 1;
}

function setVirtualTimeout(callback: Callback, ms?: number, ...args: unknown[]): VirtualTimer {
  return new VirtualTimer(callback, args, delayOf(ms), false);
}

function setVirtualInterval(callback: Callback, ms?: number, ...args: unknown[]): VirtualTimer {
  return new VirtualTimer(callback, args, delayOf(ms), true);
}

/** Ends a virtual timer, or a timer from before. */
function clearVirtual(timer: unknown): void {
  if (timer instanceof VirtualTimer) timer.close();
  else real.clearTimeout(timer as NodeJS.Timeout);
}

function wait<T>(ms?: number, value?: T, { signal }: { signal?: AbortSignal } = {}): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      timer.close();
      reject(signal?.reason);
    };
    const timer = setVirtualTimeout(() => {
      signal?.removeEventListener('abort', onAbort);
      resolve(value);
    }, ms);
    if (signal?.aborted) onAbort();
    else signal?.addEventListener('abort', onAbort, { once: true });
  });
}

function abortAfter(ms: number): AbortSignal {
  const controller = new AbortController();
  setVirtualTimeout(
    () => controller.abort(new DOMException('The operation was aborted due to timeout', 'TimeoutError')),
    ms,
  );
  return controller.signal;
}

const replaced = {
  setTimeout: setVirtualTimeout,
  setInterval: setVirtualInterval,
  clearTimeout: clearVirtual,
  clearInterval: clearVirtual,
};
Object.assign(globalThis, replaced);
Object.assign(timers, replaced);
Object.assign(timersPromises, { setTimeout: wait });
Object.assign(AbortSignal, { timeout: abortAfter });
process.getActiveResourcesInfo = () => [...real.getActiveResourcesInfo(), ...Array.from(waiting, () => 'Timeout')];
performance.now = () => {
  now += LOOK_MS;
  return now;
};
syncBuiltinESMExports();

/** Begins anew, without the timers that are left. */
export function restartClock(): void {
  now = START_MS;
  waiting.clear();
}

/** Returns the number of timers that wait. */
export function waitingTimers(): number {
  return waiting.size;
}
