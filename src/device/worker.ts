/**
 * The engine of mode `worker` has a thread for the device's turns (cardthread.ts). The application posts and polls in
 * the card's memory, which both threads share. It makes all other calls of the card itself, between two turns
 * (locked.ts). Each thread announces its sleep and is woken only then.
 */
import { performance } from '../base/timers.js';
import { VerbsError } from '../errors.js';
import type { Link } from '../link/link.js';
import { openPoller } from '../link/poller.js';
import { transferLink } from '../link/transfer.js';
import { type NativePoller, native } from '../native.js';
import type { FaultOrder } from '../probe/faults/rules.js';
import { AppTurns } from './appturns.js';
import type { Card } from './card.js';
import type { CardThread, ThreadPlan } from './cardthread.js';
import { dispatchEvents, type Engine, setLinkFeatures } from './engine.js';
import { NativeThread, needsV8 } from './nativethread.js';
import { Trace } from './trace.js';
import type { TurnLock } from './turnlock.js';
import { V8Thread } from './v8thread.js';

const RESOLVED = Promise.resolve();
/** Time that the thread has to stop before it is terminated. */
const STOP_TIMEOUT_MS = 2000;
/** Time that the end of the process waits for a thread to stop. */
const EXIT_TIMEOUT_MS = 100;

/** Options of a WorkerEngine. */
export interface WorkerOptions {
  /** Maximum time that the thread polls for work before it sleeps (µs). */
  readonly spinUs: number;
  /** Number of frames whose headers the trace keeps; 0 = no trace. */
  readonly trace: number;
  /** Whether the card takes no turn before the first `setFaults`. */
  readonly waitsForFaults: boolean;
}

/**
 * Running engines of this process. The process stops them when it exits, because it cannot end while a thread sleeps.
 */
const running = new Set<WorkerEngine>();

/** Takes turns in a thread of its own. */
export class WorkerEngine implements Engine {
  readonly mode = 'worker';
  readonly notes: readonly string[];
  readonly trace: Trace | undefined;
  readonly ended: Promise<void>;
  onEvent: (type: number, handle: number) => void = () => {};
  onFailure: (reason: string) => void = () => {};
  readonly #plan: ThreadPlan;
  /** The card's thread has no JavaScript at first. */
  readonly #isNative: boolean;
  readonly #poller: NativePoller;
  #thread: CardThread | undefined;
  /** The turns that this thread takes; undefined = it takes none. */
  #appTurns: AppTurns | undefined;
  /** This thread has taken a turn for a post, and the posts that follow at once are the other thread's. */
  #hasTransmitted = false;
  #refs = 0;
  #hasFaults = false;
  /** Settles when a thread with V8 has taken the place of one without. */
  #exchange: Promise<V8Thread | undefined> | undefined;
  #isClosed = false;
  #end: () => void = () => {};

  /**
   * Attaches the link and starts the thread.
   * @param card created with `turnLock` as its lock
   * @throws VerbsError EOPNOTSUPP if the link cannot be transferred; EIO if the thread does not start
   */
  static async start(card: Card, turnLock: TurnLock, link: Link, options: WorkerOptions): Promise<WorkerEngine> {
    link.attach(card.frames);
    const engine = new WorkerEngine(card, turnLock, link, options);
    try {
      await engine.#start(options.waitsForFaults);
    } catch (error) {
      turnLock.markFailed('it did not start');
      engine.close();
      throw error;
    }
    return engine;
  }

  private constructor(
    readonly card: Card,
    readonly turnLock: TurnLock,
    readonly link: Link,
    { spinUs, trace, waitsForFaults }: WorkerOptions,
  ) {
    const transfer = transferLink(link);
    if (trace > 0) this.trace = new Trace(card, trace);
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.linkChanged();
    const [workerEventfd, appEventfd] = [openEventfd(), openEventfd()];
    this.#poller = openPoller([appEventfd], () => this.#onWake());
    this.#poller.start(-1, false);
    const clockOrigin = process.hrtime.bigint() - BigInt(Math.round(performance.now() * 1e6));
    const eventfds = { workerEventfd, appEventfd };
    this.#plan = { card, turnLock, transfer, ...eventfds, spinNs: spinUs * 1000, trace: this.trace, clockOrigin };
    const why = waitsForFaults ? 'it has rules of faults' : needsV8(this.#plan);
    this.#isNative = why === undefined;
    const how = this.#isNative ? 'as native code' : `as WebAssembly, because ${why}`;
    this.notes = [
      `mode worker: the card runs in its own thread, ${how}, and polls for work up to ${spinUs} µs before it sleeps`,
    ];
    if (running.size === 0) process.on('exit', stopRunning);
    running.add(this);
  }

  get failure(): string | undefined {
    return this.turnLock.failure;
  }

  /** Dispatches events. A thread takes the turns. */
  poll(): void {
    if (this.card.exports.eventPeek() !== 0) dispatchEvents(this.card, this.onEvent);
    if (this.turnLock.hasFailed) this.#fail();
  }

  posted(): void {
    // Check the sleep first: a thread that is awake keeps the doorbells' cursors in its own cache.
    if (!this.turnLock.isAsleep || !this.card.exports.isDoorbellRung()) return;
    if (this.#appTurns === undefined || this.#hasTransmitted) {
      this.#wakeIfAsleep();
      return;
    }
    this.#hasTransmitted = true;
    this.#appTurns.transmit();
    RESOLVED.then(this.#afterPost);
  }

  schedule(): void {
    if (this.#isClosed) return;
    if (this.turnLock.requestTurn()) this.#wakeWorker();
  }

  linkChanged(): void {
    setLinkFeatures(this.card, this.link.features, this.#hasFaults);
  }

  async setFaults(orders: readonly FaultOrder[], hits: SharedArrayBuffer): Promise<void> {
    if (this.#isClosed || this.turnLock.hasFailed) return;
    const thread = await this.#v8Thread();
    if (thread === undefined || this.#isClosed) return;
    // before the rules are in force, and after they have ended: the gate reads whole frames
    const had = this.#hasFaults;
    this.#hasFaults = true;
    this.linkChanged();
    const answer = thread.postFaults(orders, hits);
    if (this.turnLock.requestFaults()) this.#wakeWorker();
    const error = await answer;
    this.#hasFaults = error ? had : orders.length > 0;
    if (!this.#isClosed) this.linkChanged();
    if (error) throw error;
  }

  ref(): void {
    if (this.#refs++ === 0 && !this.#isClosed) this.#poller.start(-1, true);
  }

  unref(): void {
    if (--this.#refs === 0 && !this.#isClosed) this.#poller.start(-1, false);
  }

  close(): void {
    if (this.#isClosed) return;
    this.stop();
    const hasStopped = this.turnLock.waitStopped(STOP_TIMEOUT_MS);
    this.#isClosed = true;
    // Events of the last turns.
    dispatchEvents(this.card, this.onEvent);
    this.#poller.close();
    this.#thread?.close(hasStopped);
    this.link.close();
    void (this.#thread?.ended ?? RESOLVED).then(() => this.#release());
  }

  /** @internal Makes the thread take its last turns and stop. */
  stop(): void {
    if (this.turnLock.requestStop()) this.#wakeWorker();
  }

  async #start(waitsForFaults: boolean): Promise<void> {
    const { transfer } = this.#plan;
    if (!this.#isNative || transfer.kind !== 'socket') {
      await this.#startV8(waitsForFaults);
      return;
    }
    this.#thread = new NativeThread(this.#plan, transfer);
    if (!Number.isFinite(this.#plan.spinNs)) return;
    this.#appTurns = new AppTurns(this.#plan, this.link, this.#onFrames, () => this.#wakeIfAsleep());
  }

  async #startV8(waitsForFaults: boolean): Promise<V8Thread> {
    const thread = new V8Thread(this.#plan, `wasm-roce ${this.link.interface.name}`, waitsForFaults);
    this.#thread = thread;
    void thread.ended.then(() => this.#onExit(thread.exitCode));
    await thread.running();
    return thread;
  }

  /** Returns the thread with V8, which reads rules of faults: all faults are JavaScript. */
  #v8Thread(): Promise<V8Thread | undefined> {
    const thread = this.#thread;
    if (thread instanceof V8Thread) return Promise.resolve(thread);
    this.#exchange ??= this.#exchangeThread();
    return this.#exchange;
  }

  /**
   * Lets a thread with V8 go on in place of one without: all that a turn needs is in the memory of the card.
   * @returns undefined if the last turns of the other one have failed
   */
  async #exchangeThread(): Promise<V8Thread | undefined> {
    this.#appTurns?.end();
    this.#appTurns = undefined;
    this.stop();
    this.#thread?.close(this.turnLock.waitStopped(STOP_TIMEOUT_MS));
    if (this.turnLock.hasFailed) {
      this.#fail();
      return undefined;
    }
    this.turnLock.restart();
    try {
      return await this.#startV8(true);
    } catch (error) {
      this.turnLock.markFailed((error as Error).message);
      this.#fail();
      throw error;
    }
  }

  readonly #afterPost = (): void => {
    this.#hasTransmitted = false;
    this.poll();
  };

  readonly #onFrames = (): void => {
    this.#appTurns?.receive();
    this.poll();
  };

  #onWake(): void {
    native().eventfdClear(this.#plan.appEventfd);
    this.turnLock.clearNotice();
    this.#poller.start(-1, this.#refs > 0);
    this.link.onTransferNotice?.();
    if (this.card.exports.eventPeek() !== 0) this.#appTurns?.watch();
    this.poll();
  }

  #wakeIfAsleep(): void {
    if (this.turnLock.claimWakeup()) this.#wakeWorker();
  }

  #wakeWorker(): void {
    native().eventfdSignal(this.#plan.workerEventfd);
  }

  /** The thread with V8 has ended. */
  #onExit(code: number): void {
    if (this.#isClosed) return;
    this.turnLock.markFailed(this.turnLock.failure ?? `its thread exited with code ${code}`);
    this.#fail();
  }

  /** Called when no thread takes turns any more. */
  #release(): void {
    running.delete(this);
    if (running.size === 0) process.off('exit', stopRunning);
    native().closeFd(this.#plan.workerEventfd);
    native().closeFd(this.#plan.appEventfd);
    this.#end();
  }

  #fail(): void {
    const reason = this.turnLock.failure;
    if (reason !== undefined) this.onFailure(reason);
  }
}

/** Opens an eventfd. @throws VerbsError EIO */
function openEventfd(): number {
  const fd = native().eventfdOpen();
  if (fd >= 0) return fd;
  throw new VerbsError('EIO', `the process cannot open an eventfd (errno ${-fd})`);
}

/** Stops all engines when the process exits. What was posted is still sent. */
function stopRunning(): void {
  for (const engine of running) engine.stop();
  for (const engine of running) engine.turnLock.waitStopped(EXIT_TIMEOUT_MS);
}
