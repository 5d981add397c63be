/** Exceptions and rejections of this process that nobody takes. */
const EVENTS = ['unhandledRejection', 'uncaughtException'] as const;

/** Records them until it is disposed of. A test runner that listens too reports them as well. */
export class Uncaught implements Disposable {
  readonly errors: unknown[] = [];
  readonly #record = (error: unknown) => void this.errors.push(error);

  constructor() {
    for (const event of EVENTS) process.on(event, this.#record);
  }

  /** @throws Error when there was one */
  check(): void {
    const [error] = this.errors;
    if (error !== undefined) throw new Error('an exception was uncaught', { cause: error });
  }

  [Symbol.dispose](): void {
    for (const event of EVENTS) process.off(event, this.#record);
  }
}
