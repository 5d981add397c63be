/** Requests of a connection that are in flight: a bounded number, each with registered memory of its own and a promise. */
import { WcStatus } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import { WcError } from '../verbs/explain.js';
import type { Mr } from '../verbs/mr.js';
import type { Qp } from '../verbs/qp.js';
import { checkWait, orGiveUp, type WaitOptions } from '../verbs/waiting.js';
import type { Wc } from '../verbs/wc.js';
import type { SendWr, Sge } from '../verbs/wr.js';

/** Where a request is put together, and where its answer arrives. */
export interface Place {
  readonly index: number;
  readonly bytes: Buffer;
  /** The first `length` bytes, for a work request. */
  sge(length: number): Sge;
}

/** A work request but for its number. */
export type Request = SendWr extends infer Wr ? (Wr extends SendWr ? Omit<Wr, 'wrId'> : never) : never;

/** A request's turn to leave. Who has asked for it may give it up before that. */
interface Turn {
  isGivenUp: boolean;
}

interface Waiting {
  readonly turn: Turn;
  take(place: Place): void;
  fail(error: unknown): void;
}

interface InFlight {
  succeed(): void;
  fail(error: unknown): void;
}

export class Requests {
  readonly #qp: Qp;
  readonly #free: Place[];
  #waiting: Waiting[] = [];
  readonly #inFlight: (InFlight | undefined)[];
  readonly #idle: (() => void)[] = [];
  #end: Error | undefined;

  /** @param mr divided evenly among `count` requests */
  constructor(qp: Qp, mr: Mr, count: number) {
    this.#qp = qp;
    const bytes = Math.floor(mr.length / count);
    this.#free = Array.from({ length: count }, (_, index) => ({
      index,
      bytes: mr.buffer.subarray(index * bytes, (index + 1) * bytes),
      sge: (length: number) => mr.slice(index * bytes, length),
    }));
    this.#inFlight = new Array(count);
  }

  /**
   * Posts a request as soon as there is a place for it, behind those that wait already. Who gives it up before that may do
   * with its data what he likes: it does not leave any more.
   * @param what for the message when the time is over
   * @param make puts it together when it leaves: at once where there is a place; what it throws is the promise's end
   * @param finish makes the result, once it is done
   */
  async run<T>(
    what: string,
    wait: WaitOptions,
    make: (place: Place) => Request,
    finish: (place: Place) => T,
  ): Promise<T> {
    checkWait(wait);
    const turn = { isGivenUp: false };
    return orGiveUp(this.#carryOut(turn, make, finish), what, wait, () => {
      turn.isGivenUp = true;
      this.#waiting = this.#waiting.filter((other) => other.turn !== turn);
    });
  }

  async #carryOut<T>(turn: Turn, make: (place: Place) => Request, finish: (place: Place) => T): Promise<T> {
    const place = this.#hasRoom ? this.#take() : await this.#wait(turn);
    try {
      if (this.#end !== undefined) throw this.#end;
      // when it had its place already
      if (turn.isGivenUp) throw new VerbsError('ECANCELED', 'given up before its turn');
      const done = new Promise<void>((succeed, fail) => {
        this.#inFlight[place.index] = { succeed, fail };
      });
      this.#qp.postSend({ ...make(place), wrId: place.index, signaled: true } as SendWr);
      await done;
      return finish(place);
    } finally {
      this.#inFlight[place.index] = undefined;
      this.#giveBack(place);
    }
  }

  /**
   * One is done. A flush tells only that the queue pair has ended, the connection manager (the peer said goodbye) or an event
   * tells why, soon: until then the request waits.
   * @returns why, when it failed by itself and not because all is at its end
   */
  complete(wc: Wc): WcError | undefined {
    if (wc.status === WcStatus.WR_FLUSH_ERR && this.#end === undefined) return undefined;
    const request = this.#inFlight[wc.wrId];
    if (wc.ok) {
      request?.succeed();
      return undefined;
    }
    const error = this.#end === undefined ? failure(wc) : undefined;
    request?.fail(error ?? this.#end);
    return error;
  }

  /** No more requests: those that wait, and those that fail from now on, fail for this reason. */
  end(error: Error): void {
    this.#end ??= error;
    for (const { fail } of this.#waiting.splice(0)) fail(this.#end);
  }

  /** Gives up those that are in flight too: no completions come any more. */
  abandon(): void {
    const error = this.#end ?? new VerbsError('ECANCELED', `${this.#qp} was closed`);
    for (const request of this.#inFlight) request?.fail(error);
  }

  /** Resolves when nothing is in flight and nothing waits. */
  idle(): Promise<void> {
    if (this.#isIdle) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  /** Nothing waits for a place: the next request goes out at once. */
  get #hasRoom(): boolean {
    return this.#free.length > 0 && this.#waiting.length === 0;
  }

  get #isIdle(): boolean {
    return this.#waiting.length === 0 && this.#free.length === this.#inFlight.length;
  }

  #take(): Place {
    return this.#free.pop() as Place;
  }

  #wait(turn: Turn): Promise<Place> {
    if (this.#end !== undefined) return Promise.reject(this.#end);
    return new Promise((take, fail) => this.#waiting.push({ turn, take, fail }));
  }

  #giveBack(place: Place): void {
    const next = this.#waiting.shift();
    if (next) next.take(place);
    else this.#free.push(place);
    if (this.#isIdle) for (const resolve of this.#idle.splice(0)) resolve();
  }
}

export function failure(wc: Wc): WcError {
  return new WcError(wc.explain());
}
