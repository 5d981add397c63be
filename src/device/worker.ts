/**
 * The engine that has a thread for the device's turns. The application posts and polls in the card's memory, which both
 * threads share; what else it wants of the card it does itself, between two turns (locked.ts). Whoever sleeps says so, and
 * only then is woken.
 */
import { Worker } from 'node:worker_threads';
import { VerbsError } from '../errors.js';
import type { Link } from '../link/link.js';
import { lendLink } from '../link/loan.js';
import { type NativeWaiter, native } from '../native.js';
import { type Card, cardModule } from './card.js';
import { type Engine, tellEvents, tellLink } from './engine.js';
import type { ThreadStart } from './thread.js';
import type { Threads } from './threads.js';
import { Trace } from './trace.js';

/** The thread's program: beside this file, or what was built from it when this one runs from its source. */
const PROGRAM = new URL(
  import.meta.url.endsWith('.ts') ? '../../dist/device/thread.js' : './thread.js',
  import.meta.url,
);
/** How long the thread may take to stop (ms) before it is ended by force. */
const LONGEST_STOP = 2000;
/** The same at the end of the process (ms), which nothing shall hold up. */
const LONGEST_GOODBYE = 100;

export interface WorkerOptions {
  /** Longest look for work before the thread goes to sleep (µs). */
  readonly spin: number;
  /** Frames whose headers are kept; 0 = none. */
  readonly trace: number;
}

/** Those of this process: it cannot end while their threads sleep. */
const running = new Set<WorkerEngine>();

export class WorkerEngine implements Engine {
  readonly mode = 'worker';
  readonly notes: readonly string[];
  readonly trace: Trace | undefined;
  readonly ended: Promise<void>;
  onEvent: (type: number, handle: number) => void = () => {};
  onFailure: (reason: string) => void = () => {};
  readonly #worker: Worker;
  readonly #waiter: NativeWaiter;
  /** File descriptors that wake the card's thread and this one. */
  readonly #wakers: { readonly card: number; readonly own: number };
  #holds = 0;
  #isClosed = false;
  #hasExited = false;

  /**
   * Starts the thread.
   * @param card made with `threads` as its lock
   * @throws VerbsError EOPNOTSUPP for a link that cannot be lent, EIO when the thread does not start
   */
  static async start(card: Card, threads: Threads, link: Link, options: WorkerOptions): Promise<WorkerEngine> {
    link.attach(card.frames);
    const engine = new WorkerEngine(card, threads, link, options);
    try {
      await engine.#hasStarted();
    } catch (error) {
      threads.failed('it has not started');
      engine.close();
      throw error;
    }
    return engine;
  }

  private constructor(
    readonly card: Card,
    readonly threads: Threads,
    readonly link: Link,
    { spin, trace }: WorkerOptions,
  ) {
    const loan = lendLink(link);
    this.notes = [`mode worker: a thread runs the card, and looks up to ${spin} µs for work before it sleeps`];
    if (trace > 0) this.trace = new Trace(card, trace);
    this.linkChanged();
    this.#wakers = { card: openWaker(), own: openWaker() };
    this.#waiter = new (native().Waiter)(() => this.#onWake());
    this.#waiter.open([this.#wakers.own]);
    this.#waiter.start(-1, false);
    const start: ThreadStart = {
      module: cardModule(),
      memory: card.memory,
      options: card.options,
      threads: threads.shared,
      loan,
      ownWaker: this.#wakers.card,
      otherWaker: this.#wakers.own,
      spin: spin * 1000,
      ...(this.trace && { trace: { capacity: trace, shared: this.trace.shared } }),
      clockOrigin: process.hrtime.bigint() - BigInt(Math.round(performance.now() * 1e6)),
    };
    this.#worker = new Worker(PROGRAM, {
      name: `wasm-roce ${link.interface.name}`,
      workerData: start,
      argv: [],
      execArgv: [],
    });
    this.ended = new Promise((resolve) => {
      this.#worker.once('exit', (code) => {
        this.#onExit(code);
        resolve();
      });
    });
    // It rejects with the start, or is told by the shared state.
    this.#worker.on('error', () => {});
    if (running.size === 0) process.on('exit', stopAll);
    running.add(this);
  }

  get failure(): string | undefined {
    return this.threads.failure;
  }

  /** Looks whether the card has told something; the thread does all the rest. */
  poll(): void {
    if (this.card.exports.eventPeek() !== 0) tellEvents(this.card, this.onEvent);
    if (this.threads.hasFailed) this.#fail();
  }

  posted(): void {
    // The sleep first: a thread that is awake keeps the doorbells' cursors in its own cache.
    if (this.threads.isAsleep && this.card.exports.isRung() && this.threads.rouse()) this.#wakeCard();
  }

  schedule(): void {
    if (this.#isClosed) return;
    if (this.threads.ask()) this.#wakeCard();
  }

  linkChanged(): void {
    tellLink(this.card, this.link.features);
  }

  hold(): void {
    if (this.#holds++ === 0 && !this.#isClosed) this.#waiter.start(-1, true);
  }

  release(): void {
    if (--this.#holds === 0 && !this.#isClosed) this.#waiter.start(-1, false);
  }

  close(): void {
    if (this.#isClosed) return;
    this.stop();
    const hasStopped = this.threads.hasStopped(LONGEST_STOP);
    this.#isClosed = true;
    // What the last turns have told.
    tellEvents(this.card, this.onEvent);
    this.#waiter.close();
    this.link.close();
    if (this.#hasExited) this.#closeWakers();
    else this.#worker.ref();
    if (!hasStopped) this.#worker.terminate();
  }

  /** @internal The thread takes its last turns. */
  stop(): void {
    if (this.threads.stop()) this.#wakeCard();
  }

  async #hasStarted(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const refuse = (why: string, cause?: unknown) =>
        reject(new VerbsError('EIO', `the card's thread has not started: ${why}`, { cause }));
      this.#worker.once('message', () => resolve());
      this.#worker.once('error', (error) => refuse(error.message, error));
      this.#worker.once('exit', (code) => refuse(`it has ended with ${code}`));
    });
    this.#worker.unref();
  }

  #onWake(): void {
    const { own } = this.#wakers;
    native().wakerEmpty(own);
    this.threads.looked();
    this.#waiter.start(-1, this.#holds > 0);
    this.link.onLoanNews?.();
    tellEvents(this.card, this.onEvent);
  }

  #wakeCard(): void {
    native().wakerWake(this.#wakers.card);
  }

  #onExit(code: number): void {
    running.delete(this);
    if (running.size === 0) process.off('exit', stopAll);
    this.#hasExited = true;
    if (this.#isClosed) {
      this.#closeWakers();
      return;
    }
    this.threads.failed(this.threads.failure ?? `its thread has ended with ${code}`);
    this.#fail();
  }

  #closeWakers(): void {
    native().closeFd(this.#wakers.card);
    native().closeFd(this.#wakers.own);
  }

  #fail(): void {
    const reason = this.threads.failure;
    if (reason !== undefined) this.onFailure(reason);
  }
}

/** @throws VerbsError EIO */
function openWaker(): number {
  const fd = native().wakerOpen();
  if (fd >= 0) return fd;
  throw new VerbsError('EIO', `no eventfd to be woken by (errno ${-fd})`);
}

/** When the process ends: what has been posted is still sent. */
function stopAll(): void {
  for (const engine of running) engine.stop();
  for (const engine of running) engine.threads.hasStopped(LONGEST_GOODBYE);
}
