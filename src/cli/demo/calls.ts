/**
 * Calls of methods in another process, over any channel that carries messages as JSON does. It imports nothing, so that
 * programs other than the demo can use it.
 */

/** A call, as the caller sends it. */
export interface Call {
  readonly id: number;
  readonly method: string;
  readonly values: readonly unknown[];
}

/** The answer to the call with this `id`. */
export interface Answer {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: CallError;
}

/** The rest of an error that was sent to another process. */
export interface CallError {
  readonly code?: string | undefined;
  readonly message: string;
  readonly stack?: string | undefined;
}

/** The calls that wait for their answer. */
export class PendingCalls {
  readonly #pending = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  #calls = 0;

  /**
   * @param send sends the call to the other process, and calls `failed` when it cannot
   * @param errorOf makes an error of one that the other process has answered
   */
  constructor(
    readonly send: (call: Call, failed: (error: Error) => void) => void,
    readonly errorOf = ({ message }: CallError): Error => new Error(message),
  ) {}

  /** Resolves with the value that the other process answers. @throws the error that it answers */
  call(method: string, values: readonly unknown[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const id = this.#calls++;
      this.#pending.set(id, { resolve, reject });
      this.send({ id, method, values }, reject);
    });
  }

  /** Settles the call that an answer belongs to. Messages with another `id` are ignored. */
  settle({ id, value, error }: Answer): void {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (error === undefined) pending?.resolve(value);
    else pending?.reject(this.errorOf(error));
  }

  /** Rejects all calls: the other process is gone. */
  fail(error: Error): void {
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }
}

/**
 * Answers a call by a method of this process. Never rejects: the error that a method throws is the answer.
 * @param describe returns the form of that error for the caller
 */
export async function answer(
  methods: object,
  { id, method, values }: Call,
  describe: (error: unknown) => CallError = plainError,
): Promise<Answer> {
  try {
    const value = await (methods as Record<string, (...values: readonly unknown[]) => unknown>)[method]?.(...values);
    return { id, value };
  } catch (error) {
    return { id, error: describe(error) };
  }
}

function plainError(error: unknown): CallError {
  const { code, message, stack } = error as NodeJS.ErrnoException;
  return { code, message, stack };
}
