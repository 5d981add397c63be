/** The client's end of calls. */

import { whenAborted } from '../../base/abort.js';
import { type Checks, checkOptions, hostName, integer, required } from '../../base/options.js';
import { Scope } from '../../base/scope.js';
import { clearTimeout, performance, setTimeout } from '../../base/timers.js';
import { MAX_TIMER_MS, WAIT_CHECKS } from '../../base/waiting.js';
import { type DeviceUse, openedDevice, useDevice } from '../../deviceuse.js';
import type { Device } from '../../index.js';
import { lookupHost } from '../../link/peer.js';
import { Channel, CONNECTION_OPTIONS, isOurs } from './channel.js';
import { MAX_MESSAGE_BYTES, RPC_PORT } from './limits.js';
import { RpcError } from './status.js';
import { RpcStream } from './stream.js';
import { checkMethodName, decodeStatus, type Frame, type FrameInit, FrameType } from './wire.js';

/** Options of `connect`. */
export interface RpcConnectOptions {
  /** Name or address of the server. */
  readonly host: string;
  /** Port of rdma_cm. Default 7473. */
  readonly port?: number;
  /** Device. Default: one on the route to the server. */
  readonly device?: Device;
  /** Longest request, response or message of a stream in bytes, up to 2^30. Default 4 MiB. */
  readonly maxMessageBytes?: number;
  /** Calls under way at a time, 1 to 65536; further ones wait. Default 1024. */
  readonly maxCalls?: number;
  /** Milliseconds until the attempt to connect fails. Default 10,000. */
  readonly timeout?: number;
  /** Ends the attempt to connect. */
  readonly signal?: AbortSignal;
  /** As of `device.connect`. Default 75000. */
  readonly peerTimeout?: number;
}

const CHECKS: Checks<RpcConnectOptions> = {
  ...WAIT_CHECKS,
  host: required(hostName),
  port: integer(1, 65535),
  device: openedDevice,
  maxMessageBytes: integer(1, 2 ** 30),
  maxCalls: integer(1, 65_536),
  peerTimeout: integer(0, MAX_TIMER_MS),
};

/** Options of a call. */
export interface CallOptions {
  /** Milliseconds that the call may take. Default: no limit. */
  readonly timeout?: number;
  /** Cancels the call: it fails with the signal's reason, and the signal of the server's handler is aborted. */
  readonly signal?: AbortSignal;
}

const CALL_CHECKS: Checks<CallOptions> = { ...WAIT_CHECKS, timeout: integer(1, MAX_TIMER_MS) };

/** A call that is under way. */
interface Pending {
  onFrame(frame: Frame): void;
  fail(error: Error): void;
}

interface StartedCall {
  readonly call: number;
  /** The call is under way no more. @returns whether it was */
  settle(): boolean;
  /** Ends the call at both ends. */
  cancel(error: Error): void;
}

/** A client; `connect` makes it. Calls may overlap in any number. */
export class RpcClient {
  readonly #use: DeviceUse;
  readonly #channel: Channel;
  readonly #maxCalls: number;
  readonly #calls = new Map<number, Pending>();
  /** Calls that wait until fewer are under way. */
  readonly #waiting = new Set<() => void>();
  #lastCall = 0;
  #end: RpcError | undefined;
  #closed: Promise<void> | undefined;
  /** Resolves when the connection has ended, with the reason. */
  readonly ended: Promise<RpcError>;
  #resolveEnded!: (error: RpcError) => void;

  private constructor(use: DeviceUse, open: (client: RpcClient) => Channel, maxCalls: number) {
    this.#use = use;
    this.#maxCalls = maxCalls;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    this.#channel = open(this);
  }

  /** @internal */
  static async connect(options: RpcConnectOptions): Promise<RpcClient> {
    const checked = checkOptions('connect', options, CHECKS);
    const { host, port = RPC_PORT, device, timeout = 10_000, signal, peerTimeout } = checked;
    const { maxMessageBytes = MAX_MESSAGE_BYTES, maxCalls = 1024 } = checked;
    return Scope.open(async (scope) => {
      const address = await lookupHost(host);
      const use = scope.add(await useDevice(device, { peer: address }));
      const wait = { timeout, ...(signal && { signal }) };
      const options = { ...CONNECTION_OPTIONS, ...(peerTimeout !== undefined && { peerTimeout }) };
      const connection = await use.device.connect({ host: address, port, ...options, ...wait });
      if (!isOurs(connection)) {
        connection.destroy();
        throw new RpcError('UNAVAILABLE', `${host}:${port} is no server of wasm-roce/rpc`);
      }
      const open = (client: RpcClient) =>
        new Channel(connection, maxMessageBytes, {
          onFrame: (frame) => client.#onFrame(frame),
          onEnd: (error) => client.#onEnd(error),
        });
      return new RpcClient(use, open, maxCalls);
    });
  }

  /** Address of the server. */
  get address(): string {
    return this.#channel.address;
  }

  /**
   * Calls a method. Its request must not be changed before the call is done.
   * @returns the response
   * @throws TypeError, RangeError for wrong arguments; RpcError; the signal's reason
   */
  async call(method: string, request: Uint8Array, options: CallOptions = {}): Promise<Buffer> {
    checkMethodName(method);
    this.#channel.checkBody('request', request);
    const { signal } = options;
    const until = deadlineOf(checkOptions('the call', options, CALL_CHECKS));
    while (this.#end === undefined && this.#calls.size >= this.#maxCalls) await this.#untilOther(until, signal);
    signal?.throwIfAborted();
    if (this.#end !== undefined) throw this.#end;
    return new Promise<Buffer>((resolve, reject) => {
      const { call, settle } = this.#begin(options, until, {
        onFrame: (frame) => {
          if (frame.type !== FrameType.RESULT && frame.type !== FrameType.FAIL)
            throw new Error(`it has sent a frame of type ${frame.type} for a call`);
          settle();
          if (frame.type === FrameType.RESULT) this.#channel.body(frame).then(resolve, reject);
          else reject(decodeStatus(frame.body));
        },
        fail: reject,
      });
      const frame: FrameInit = { type: FrameType.CALL, call, name: method, argument: timeLeft(until) };
      this.#channel.sendBody({ ...frame, body: request }).catch((error) => {
        settle();
        reject(error);
      });
    });
  }

  /**
   * Opens a stream of a method.
   * @throws TypeError, RangeError for wrong arguments; RpcError when the connection has ended
   */
  stream(method: string, options: CallOptions = {}): RpcStream {
    checkMethodName(method);
    const until = deadlineOf(checkOptions('the call', options, CALL_CHECKS));
    options.signal?.throwIfAborted();
    if (this.#end !== undefined) throw this.#end;
    if (this.#calls.size >= this.#maxCalls)
      throw new RpcError('RESOURCE_EXHAUSTED', `${this.#maxCalls} calls are under way already`);
    const { call, settle, cancel } = this.#begin(options, until, {
      onFrame: (frame) => {
        if (frame.type === FrameType.RESULT || frame.type === FrameType.FAIL) settle();
        if (frame.type === FrameType.FAIL) stream.fail(decodeStatus(frame.body));
        else stream.onFrame(frame);
      },
      fail: (error) => stream.fail(error),
    });
    const stream = new RpcStream(this.#channel, call, { onCancel: cancel });
    this.#channel.send({ type: FrameType.OPEN, call, name: method, argument: timeLeft(until) });
    return stream;
  }

  /** Closes the connection. Calls that are under way fail. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** As `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    this.#onEnd(new RpcError('CANCELLED', 'the client was closed'));
    await this.#channel.close();
    await this.#use.close();
  }

  #onFrame(frame: Frame): void {
    const pending = this.#calls.get(frame.call);
    // the answer to a call that has ended here
    if (pending === undefined) this.#channel.discard(frame);
    else pending.onFrame(frame);
  }

  #onEnd(error: RpcError): void {
    if (this.#end !== undefined) return;
    this.#end = error;
    for (const { fail } of [...this.#calls.values()]) fail(error);
    for (const admit of this.#waiting) admit();
    this.#resolveEnded(error);
  }

  /** Waits until another call has ended. @throws RpcError when this one's time is over before; the signal's reason */
  async #untilOther(until: number | undefined, signal: AbortSignal | undefined): Promise<void> {
    const admitted = new AbortController();
    await new Promise<void>((resolve) => {
      const admit = () => {
        this.#waiting.delete(admit);
        admitted.abort();
        resolve();
      };
      this.#waiting.add(admit);
      signal?.addEventListener('abort', admit, { signal: admitted.signal });
      if (until === undefined) return;
      const timer = setTimeout(admit, until - performance.now());
      admitted.signal.addEventListener('abort', () => clearTimeout(timer));
    });
    signal?.throwIfAborted();
    if (until !== undefined && performance.now() >= until)
      throw new RpcError('DEADLINE_EXCEEDED', 'other calls have taken all its time');
  }

  /** Begins a call. Its signal and its timeout cancel it, until it is settled. */
  #begin({ signal, timeout }: CallOptions, until: number | undefined, pending: Pending): StartedCall {
    do this.#lastCall = (this.#lastCall + 1) >>> 0;
    while (this.#calls.has(this.#lastCall));
    const call = this.#lastCall;
    const settle = (): boolean => {
      clearTimeout(timer);
      forgetSignal();
      return this.#remove(call);
    };
    const cancel = (error: Error) => {
      if (!settle()) return;
      this.#channel.send({ type: FrameType.CANCEL, call });
      pending.fail(error);
    };
    const late = () => cancel(new RpcError('DEADLINE_EXCEEDED', `there was no response within ${timeout} ms`));
    const timer = until === undefined ? undefined : setTimeout(late, until - performance.now());
    const forgetSignal = whenAborted(signal, () => cancel(signal?.reason));
    const fail = (error: Error) => {
      if (settle()) pending.fail(error);
    };
    this.#calls.set(call, { onFrame: pending.onFrame, fail });
    return { call, settle, cancel };
  }

  /** @returns whether the call was under way */
  #remove(call: number): boolean {
    const isPending = this.#calls.delete(call);
    if (!isPending) return false;
    const [admit] = this.#waiting;
    admit?.();
    return true;
  }
}

/** Returns when a call must be done; undefined: at any time. */
function deadlineOf({ timeout }: CallOptions): number | undefined {
  if (timeout === undefined) return undefined;
  return performance.now() + timeout;
}

const timeLeft = (until: number | undefined): number =>
  until === undefined ? 0 : Math.max(1, Math.ceil(until - performance.now()));
