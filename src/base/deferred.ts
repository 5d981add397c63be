import { within } from './within.js';

/** A promise that an event settles. A rejection need not be handled: the event reports the same error. */
export class Deferred<T> {
  readonly promise: Promise<T>;
  #resolve!: (value: T) => void;
  #reject!: (error: unknown) => void;
  #settled: (() => void) | undefined;

  /** @param onSettled called once, when the promise is settled */
  constructor(onSettled: () => void = () => {}) {
    this.#settled = onSettled;
    this.promise = new Promise<T>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.promise.catch(() => {});
  }

  /** Neither resolved nor rejected yet. */
  get isPending(): boolean {
    return this.#settled !== undefined;
  }

  /** Waits until it is settled. @returns false if that takes longer (ms) */
  isSettledWithin(ms: number): Promise<boolean> {
    const settled = () => {};
    return within(ms, this.promise.then(settled, settled));
  }

  resolve(value: T): void {
    this.#settle();
    this.#resolve(value);
  }

  reject(error: unknown): void {
    this.#settle();
    this.#reject(error);
  }

  #settle(): void {
    this.#settled?.();
    this.#settled = undefined;
  }
}
