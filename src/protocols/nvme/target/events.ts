/**
 * The asynchronous events of a controller (NVM Express base specification, "Asynchronous Event Request command"). The
 * host leaves requests with the controller, and an event completes one. Namespaces that come and go are the only
 * events.
 */
import { CommandError, Status } from '../status.js';
import { IDENTIFY_BYTES, NAMESPACE_NOTICES, NAMESPACES_CHANGED } from '../wire.js';

/** Requests that a controller holds. */
export const MAX_ASYNC_EVENTS = 4;

export class AsyncEvents {
  /** Bits of the events that the host wants (feature ASYNC_EVENTS). */
  enabled = 0;
  readonly #requests: ((result: bigint) => void)[] = [];
  /** Namespaces that have changed since the host read the log. */
  readonly #changed = new Set<number>();
  /** The host has been told to read the log, and has not done so: it is not told again. */
  #isReported = false;

  /** @returns resolves with the next event @throws CommandError */
  request(): Promise<bigint> {
    if (this.#requests.length === MAX_ASYNC_EVENTS) throw new CommandError(Status.ASYNC_EVENT_LIMIT_EXCEEDED);
    return new Promise((resolve) => {
      this.#requests.push(resolve);
      this.#report();
    });
  }

  /** A namespace has come, or gone. */
  namespaceChanged(nsid: number): void {
    this.#changed.add(nsid);
    this.#report();
  }

  /** Returns the log of changed namespaces. @param isRetained the host has not read it for good */
  readChanged(isRetained: boolean): Buffer {
    const log = Buffer.alloc(IDENTIFY_BYTES);
    for (const [i, nsid] of [...this.#changed].sort((a, b) => a - b).entries()) log.writeUInt32LE(nsid, 4 * i);
    if (!isRetained) {
      this.#changed.clear();
      this.#isReported = false;
    }
    return log;
  }

  /** Ends the requests. Nobody gets the responses. */
  end(): void {
    for (const resolve of this.#requests.splice(0)) resolve(0n);
  }

  #report(): void {
    const isDue = this.#changed.size > 0 && !this.#isReported && (this.enabled & NAMESPACE_NOTICES) !== 0;
    if (!isDue || this.#requests.length === 0) return;
    this.#isReported = true;
    this.#requests.shift()?.(BigInt(NAMESPACES_CHANGED));
  }
}
