/** The card's thread as a thread of Node, with the card in V8 (cardworker.ts). It works on every link. */
import { MessageChannel, Worker } from 'node:worker_threads';
import { VerbsError } from '../errors.js';
import { packageFile } from '../packagefile.js';
import type { FaultOrder } from '../probe/faults/rules.js';
import { cardModule } from './card.js';
import type { CardThread, ThreadPlan } from './cardthread.js';
import type { CardWorkerData, FaultMessage } from './cardworker.js';

/** The thread's program. */
const PROGRAM = packageFile('dist/cardworker.js');

/** A thread of Node that takes the turns. */
export class V8Thread implements CardThread {
  readonly ended: Promise<void>;
  /** Of the thread that has ended. */
  exitCode = 0;
  readonly #worker: Worker;

  /** Starts the thread. @param waitsForFaults it takes no turn before the first `postFaults` */
  constructor(plan: ThreadPlan, name: string, waitsForFaults: boolean) {
    const { card, trace } = plan;
    const data: CardWorkerData = {
      module: cardModule(),
      memory: card.memory,
      options: card.options,
      turnLock: plan.turnLock.shared,
      transfer: plan.transfer,
      workerEventfd: plan.workerEventfd,
      appEventfd: plan.appEventfd,
      spinNs: plan.spinNs,
      waitsForFaults,
      ...(trace && { trace: { capacity: trace.capacity, shared: trace.shared } }),
      clockOrigin: plan.clockOrigin,
    };
    this.#worker = new Worker(PROGRAM, { name, workerData: data, argv: [], execArgv: [] });
    this.ended = new Promise((resolve) => {
      this.#worker.once('exit', (code) => {
        this.exitCode = code;
        resolve();
      });
    });
    // An error rejects `running`, or later is in the TurnLock.
    this.#worker.on('error', () => {});
  }

  async running(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const refuse = (why: string, cause?: unknown) =>
        reject(new VerbsError('EIO', `the card's thread did not start: ${why}`, { cause }));
      this.#worker.once('message', () => resolve());
      this.#worker.once('error', (error) => refuse(error.message, error));
      this.#worker.once('exit', (code) => refuse(`it exited with code ${code}`));
    });
    this.#worker.unref();
  }

  /** Sends rules of faults. The caller wakes the thread. @returns the error, or undefined */
  async postFaults(orders: readonly FaultOrder[], hits: SharedArrayBuffer): Promise<Error | undefined> {
    const { port1: ours, port2: theirs } = new MessageChannel();
    const answer = new Promise<unknown>((resolve) => ours.once('message', resolve).once('close', resolve));
    this.#worker.postMessage({ orders, hits, done: theirs } satisfies FaultMessage, [theirs]);
    const error = await answer;
    ours.close();
    return error instanceof Error ? error : undefined;
  }

  close(hasStopped: boolean): void {
    this.#worker.ref();
    if (!hasStopped) this.#worker.terminate();
  }
}
