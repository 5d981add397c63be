/**
 * The engine of mode `worker` has a thread for the device's turns (cardworker.ts). The application posts and polls in
 * the card's memory, which both threads share. It makes all other calls of the card itself, between two turns
 * (locked.ts). Each thread announces its sleep and is woken only then.
 */
import { MessageChannel, Worker } from 'node:worker_threads';
import { performance } from '../base/timers.js';
import { VerbsError } from '../errors.js';
import type { Link } from '../link/link.js';
import { openPoller } from '../link/poller.js';
import { transferLink } from '../link/transfer.js';
import { type NativePoller, native } from '../native.js';
import { packageFile } from '../packagefile.js';
import type { FaultOrder } from '../probe/faults/gate.js';
import { type Card, cardModule } from './card.js';
import type { CardWorkerData, FaultMessage } from './cardworker.js';
import { dispatchEvents, type Engine, setLinkFeatures } from './engine.js';
import { Trace } from './trace.js';
import type { TurnLock } from './turnlock.js';

/** The thread's program. */
const PROGRAM = packageFile('dist/cardworker.js');
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
  readonly #worker: Worker;
  readonly #poller: NativePoller;
  /** The eventfds that wake the card's thread and the application's. */
  readonly #eventfds: { readonly worker: number; readonly app: number };
  #refs = 0;
  #hasFaults = false;
  #isClosed = false;
  #hasExited = false;

  /**
   * Attaches the link and starts the thread.
   * @param card created with `turnLock` as its lock
   * @throws VerbsError EOPNOTSUPP if the link cannot be transferred; EIO if the thread does not start
   */
  static async start(card: Card, turnLock: TurnLock, link: Link, options: WorkerOptions): Promise<WorkerEngine> {
    link.attach(card.frames);
    const engine = new WorkerEngine(card, turnLock, link, options);
    try {
      await engine.#waitStarted();
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
    this.notes = [
      `mode worker: the card runs in its own thread, which polls for work up to ${spinUs} µs before it sleeps`,
    ];
    if (trace > 0) this.trace = new Trace(card, trace);
    this.linkChanged();
    this.#eventfds = { worker: openEventfd(), app: openEventfd() };
    this.#poller = openPoller([this.#eventfds.app], () => this.#onWake());
    this.#poller.start(-1, false);
    const data: CardWorkerData = {
      module: cardModule(),
      memory: card.memory,
      options: card.options,
      turnLock: turnLock.shared,
      transfer,
      workerEventfd: this.#eventfds.worker,
      appEventfd: this.#eventfds.app,
      spinNs: spinUs * 1000,
      waitsForFaults,
      ...(this.trace && { trace: { capacity: trace, shared: this.trace.shared } }),
      clockOrigin: process.hrtime.bigint() - BigInt(Math.round(performance.now() * 1e6)),
    };
    this.#worker = new Worker(PROGRAM, {
      name: `wasm-roce ${link.interface.name}`,
      workerData: data,
      argv: [],
      execArgv: [],
    });
    this.ended = new Promise((resolve) => {
      this.#worker.once('exit', (code) => {
        this.#onExit(code);
        resolve();
      });
    });
    // An error rejects the start, or later is in the TurnLock.
    this.#worker.on('error', () => {});
    if (running.size === 0) process.on('exit', stopRunning);
    running.add(this);
  }

  get failure(): string | undefined {
    return this.turnLock.failure;
  }

  /** Dispatches events. The card's thread does everything else. */
  poll(): void {
    if (this.card.exports.eventPeek() !== 0) dispatchEvents(this.card, this.onEvent);
    if (this.turnLock.hasFailed) this.#fail();
  }

  posted(): void {
    // Check the sleep first: a thread that is awake keeps the doorbells' cursors in its own cache.
    if (this.turnLock.isAsleep && this.card.exports.isDoorbellRung() && this.turnLock.claimWakeup()) this.#wakeWorker();
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
    // before the rules are in force, and after they have ended: the gate reads whole frames
    const had = this.#hasFaults;
    this.#hasFaults = true;
    this.linkChanged();
    const { port1: ours, port2: theirs } = new MessageChannel();
    const answer = new Promise<unknown>((resolve) => ours.once('message', resolve).once('close', resolve));
    this.#worker.postMessage({ orders, hits, done: theirs } satisfies FaultMessage, [theirs]);
    if (this.turnLock.requestFaults()) this.#wakeWorker();
    const error = await answer;
    ours.close();
    this.#hasFaults = error instanceof Error ? had : orders.length > 0;
    if (!this.#isClosed) this.linkChanged();
    if (error instanceof Error) throw error;
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
    this.link.close();
    if (this.#hasExited) this.#closeEventfds();
    else this.#worker.ref();
    if (!hasStopped) this.#worker.terminate();
  }

  /** @internal Makes the thread take its last turns and stop. */
  stop(): void {
    if (this.turnLock.requestStop()) this.#wakeWorker();
  }

  async #waitStarted(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const refuse = (why: string, cause?: unknown) =>
        reject(new VerbsError('EIO', `the card's thread did not start: ${why}`, { cause }));
      this.#worker.once('message', () => resolve());
      this.#worker.once('error', (error) => refuse(error.message, error));
      this.#worker.once('exit', (code) => refuse(`it exited with code ${code}`));
    });
    this.#worker.unref();
  }

  #onWake(): void {
    native().eventfdClear(this.#eventfds.app);
    this.turnLock.clearNotice();
    this.#poller.start(-1, this.#refs > 0);
    this.link.onTransferNotice?.();
    dispatchEvents(this.card, this.onEvent);
  }

  #wakeWorker(): void {
    native().eventfdSignal(this.#eventfds.worker);
  }

  #onExit(code: number): void {
    running.delete(this);
    if (running.size === 0) process.off('exit', stopRunning);
    this.#hasExited = true;
    if (this.#isClosed) {
      this.#closeEventfds();
      return;
    }
    this.turnLock.markFailed(this.turnLock.failure ?? `its thread exited with code ${code}`);
    this.#fail();
  }

  #closeEventfds(): void {
    native().closeFd(this.#eventfds.worker);
    native().closeFd(this.#eventfds.app);
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
