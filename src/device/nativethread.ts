/**
 * The card's thread as a thread without JavaScript, with the card as C, on the sockets of the addon. It starts at once,
 * and wakes up faster than a thread of Node.
 */
import { invalidValue, VerbsError } from '../errors.js';
import { frameLayout } from '../link/ring.js';
import type { SocketTransfer } from '../link/transfer.js';
import { type NativeCardThread, native } from '../native.js';
import type { CardThread, ThreadPlan } from './cardthread.js';

/** Selects the card of mode `worker`: `native` (default), or `wasm` = as WebAssembly in V8 on all links. */
const CARD_VARIABLE = 'WASM_ROCE_CARD';

/**
 * Returns why a thread without JavaScript cannot take the turns; undefined = it can.
 * @throws TypeError if the environment says neither `native` nor `wasm`
 */
export function needsV8({ transfer, trace }: Pick<ThreadPlan, 'transfer' | 'trace'>): string | undefined {
  const wanted = process.env[CARD_VARIABLE] ?? 'native';
  if (wanted !== 'native' && wanted !== 'wasm')
    throw invalidValue(`${CARD_VARIABLE} is '${wanted}', must be native or wasm`);
  if (wanted === 'wasm') return `${CARD_VARIABLE} is wasm`;
  if (transfer.kind !== 'socket') return `the link is ${transfer.kind}`;
  return trace && 'it has a trace';
}

/** A thread without JavaScript that takes the turns. */
export class NativeThread implements CardThread {
  readonly ended = Promise.resolve();
  readonly #thread: NativeCardThread;

  /** Starts the thread. @throws VerbsError EIO */
  constructor(plan: ThreadPlan, { id, fd, gsoRefused }: SocketTransfer) {
    const { card, turnLock } = plan;
    this.#thread = new (native().CardThread)({
      memory: card.bytes,
      layout: frameLayout(card.frames),
      words: turnLock.words,
      socket: id,
      socketFd: fd,
      gsoRefused: new Int32Array(gsoRefused),
      workerEventfd: plan.workerEventfd,
      appEventfd: plan.appEventfd,
      spinNs: plan.spinNs,
      clockOrigin: plan.clockOrigin,
    });
    const result = this.#thread.start();
    if (result !== 0) throw new VerbsError('EIO', `the card's thread did not start (errno ${-result})`);
  }

  async running(): Promise<void> {}

  /** Waits for the thread's last turns, which are short. */
  close(): void {
    this.#thread.join();
  }
}
