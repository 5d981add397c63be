/** The states of a connection, and the steps of its end. */
import { Deferred } from '../../base/deferred.js';
import { clearTimeout, setImmediate, setTimeout } from '../../base/timers.js';
import { type Transitions, transition } from '../../base/transitions.js';
import { VerbsError } from '../../errors.js';

/**
 * - `open`: the application has the connection, or is about to get it.
 * - `draining`: `close` waits until the peer has acknowledged everything. New requests are refused.
 * - `closing`: the connection has ended, and frees its resources.
 * - `closed`: it has freed everything.
 */
export type ConnectionState = 'open' | 'draining' | 'closing' | 'closed';

/** The states that may follow each. */
const NEXT: Transitions<ConnectionState> = {
  open: ['draining', 'closing'],
  draining: ['closing'],
  closing: ['closed'],
  closed: [],
};

/** The reason for the end of a connection. */
export class EndReason {
  #error: VerbsError | undefined;

  /** @param cause the error that has ended the connection; undefined when one of the two ends has closed it */
  constructor(readonly cause: Error | undefined) {}

  /** The error of requests since then, ECONNRESET: always the same, made when it is asked for. */
  get error(): VerbsError {
    const { cause } = this;
    const why = cause ? `: ${cause.message}` : '';
    this.#error ??= new VerbsError('ECONNRESET', `the connection is closed${why}`, { cause });
    return this.#error;
  }
}

/** The steps of the end, in this order. */
export interface EndSteps {
  /** Resolves when the peer has acknowledged everything that was sent. Only for an end in order. */
  drained(): Promise<void> | undefined;
  /** Ends requests and readers. @param isLocal this end has ended the connection */
  stop(reason: EndReason, isLocal: boolean): void;
  /** Disconnects from the peer and frees the resources, in a second call those that could not be freed. */
  free(): Promise<void>;
  /** Tells listeners of the end. It may throw what they throw. */
  announce(): void;
  /** The resources are free. */
  onClosed(error: Error | undefined): void;
}

/** The life of one connection. */
export class Lifecycle {
  readonly #steps: EndSteps;
  readonly #closeTimeout: number;
  #state: ConnectionState = 'open';
  #reason: EndReason | undefined;
  /** The application has had the time to add its listeners. Until then the connection does not end by itself. */
  #isHandedOver = false;
  /** The end of the connection, if it came before that. */
  #earlyEnd: { readonly error: Error | undefined } | undefined;
  /** Resolves when the peer is ready to receive, or the connection has ended. */
  readonly #ready = new Deferred<void>();
  /** `close` waits for the peer. */
  #draining: Promise<void> | undefined;
  #closeTimer: NodeJS.Timeout | undefined;
  /** Undefined before it begins, and when it has failed. */
  #cleanup: Promise<void> | undefined;

  /**
   * The application is about to get the connection.
   * @param closeTimeout as `ConnectionOptions.closeTimeout`, in ms
   */
  constructor(closeTimeout: number, steps: EndSteps) {
    this.#closeTimeout = closeTimeout;
    this.#steps = steps;
    setImmediate(() => {
      this.#isHandedOver = true;
      if (this.#earlyEnd !== undefined) this.#end(this.#earlyEnd.error, false);
    });
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** The reason for the end; undefined before it. */
  get reason(): EndReason | undefined {
    return this.#reason;
  }

  /** The error that has ended the connection before the application had it. */
  get earlyError(): Error | undefined {
    return this.#earlyEnd?.error;
  }

  /** The peer is ready to receive. */
  onReady(): void {
    this.#ready.resolve();
  }

  /** The peer has acknowledged something. */
  onProgress(): void {
    this.#closeTimer?.refresh();
  }

  /** The connection has ended by itself. */
  ended(error: Error | undefined): void {
    if (this.#isHandedOver) this.#end(error, false);
    else this.#earlyEnd ??= { error };
  }

  /** Ends the connection at once. */
  destroy(error?: Error): void {
    this.#end(error, true);
  }

  /**
   * Ends the connection in order. A call after one that has failed tries again to free the resources.
   * @throws VerbsError ETIMEDOUT after `closeTimeout`, EBUSY while memory windows are bound to memory that was shared
   */
  async close(): Promise<void> {
    if (this.#state === 'open') this.#setState('draining');
    if (this.#state === 'draining') {
      this.#draining ??= this.#drain();
      await this.#draining;
    }
    // The peer may have closed the connection, or vanished, in the meantime.
    this.destroy();
    await (this.#cleanup ?? this.#cleanUp());
  }

  /** Waits until the peer has acknowledged everything. @throws VerbsError ETIMEDOUT after it was given up */
  async #drain(): Promise<void> {
    const late = new Deferred<VerbsError>();
    const timeout = this.#closeTimeout;
    const text = `the peer has acknowledged nothing for ${timeout} ms (closeTimeout), and the connection was destroyed`;
    const onTimeout = () => late.resolve(new VerbsError('ETIMEDOUT', text));
    if (timeout > 0) this.#closeTimer = setTimeout(onTimeout, timeout);
    const drained = this.#ready.promise.then(() => this.#steps.drained());
    const error = await Promise.race([drained, late.promise]);
    clearTimeout(this.#closeTimer);
    this.#closeTimer = undefined;
    if (error === undefined || this.#state !== 'draining') return;
    this.destroy(error);
    await this.#cleanup;
    throw error;
  }

  /** The only way into `closing`. Later calls do nothing. */
  #end(error: Error | undefined, isLocal: boolean): void {
    if (this.#reason !== undefined) return;
    this.#setState('closing');
    this.#reason = new EndReason(error);
    this.#ready.resolve();
    this.#steps.stop(this.#reason, isLocal);
    this.#cleanUp()
      .catch(() => {})
      .then(() => this.#steps.onClosed(error));
    // last, because a listener may throw
    this.#steps.announce();
  }

  #cleanUp(): Promise<void> {
    this.#cleanup = this.#steps.free().then(
      () => this.#setState('closed'),
      (error) => {
        this.#cleanup = undefined;
        throw error;
      },
    );
    return this.#cleanup;
  }

  #setState(state: ConnectionState): void {
    this.#state = transition(NEXT, this.#state, state, 'a connection');
  }
}
