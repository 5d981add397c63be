/** The calls of one client, at the server. */
import type { Counts, Shares } from '../../base/shares.js';
import { clearTimeout, performance, setTimeout } from '../../base/timers.js';
import type { Connection } from '../../index.js';
import { Channel } from './channel.js';
import { RpcError, statusOf } from './status.js';
import { RpcStream } from './stream.js';
import { decodeLarge, encodeStatus, type Frame, FrameType, LARGE } from './wire.js';

/** The context of a call, for its handler. */
export interface CallContext {
  /** Address of the client. */
  readonly address: string;
  /** Aborted when the client has ended the call, its time is over, or the connection has ended. */
  readonly signal: AbortSignal;
}

/** Handles a call. @returns the response @throws RpcError, or any error, which becomes INTERNAL */
export type MethodHandler = (request: Buffer, context: CallContext) => Uint8Array | Promise<Uint8Array>;

/** Handles a stream, which ends when it returns. @throws RpcError, or any error, which becomes INTERNAL */
export type StreamHandler = (stream: RpcStream, context: CallContext) => void | Promise<void>;

export interface Handlers {
  readonly methods: ReadonlyMap<string, MethodHandler>;
  readonly streams: ReadonlyMap<string, StreamHandler>;
}

/** Limits of a server, and what its clients take of them. A client is an address, however many connections it has. */
export interface Limits {
  readonly maxMessageBytes: number;
  /** Handlers that run, also of calls that their client has ended. */
  readonly calls: Counts;
  /** Bytes of the requests whose handlers run, and of messages that were not read. */
  readonly pendingBytes: Shares;
  /** Bytes of the device's memory that clients are to read. */
  readonly memory: Shares;
}

/** Bytes that a request or message takes besides its body, at least. */
const OVERHEAD_BYTES = 512;

/** A call as its handler knows it. */
class ServedCall implements CallContext {
  readonly #until: number | undefined;
  #controller: AbortController | undefined;
  #timer: NodeJS.Timeout | undefined;
  #end: RpcError | undefined;
  stream: RpcStream | undefined;

  constructor(
    readonly address: string,
    timeLeft: number,
  ) {
    this.#until = timeLeft === 0 ? undefined : performance.now() + timeLeft;
  }

  /** Made when it is asked for: most handlers of short calls never do. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      const late = () => this.#controller?.abort(new RpcError('DEADLINE_EXCEEDED', 'the time of the call is over'));
      if (this.#end !== undefined) this.#controller.abort(this.#end);
      else if (this.#until !== undefined) this.#timer = setTimeout(late, this.#until - performance.now()).unref();
    }
    return this.#controller.signal;
  }

  /** Whether the client wants no answer any more. */
  get isEnded(): boolean {
    return this.#end !== undefined;
  }

  /** The client wants no answer any more. */
  end(error: RpcError): void {
    this.#end = error;
    this.settle();
    this.#controller?.abort(error);
    this.stream?.fail(error);
  }

  /** The handler has returned. */
  settle(): void {
    clearTimeout(this.#timer);
  }
}

export class ServedClient {
  readonly #channel: Channel;
  readonly #handlers: Handlers;
  readonly #limits: Limits;
  readonly #calls = new Map<number, ServedCall>();
  readonly address: string;

  /** @param onEnd called once, when the connection has ended */
  constructor(connection: Connection, handlers: Handlers, limits: Limits, onEnd: (error: RpcError) => void) {
    this.address = connection.remoteAddress;
    this.#handlers = handlers;
    this.#limits = limits;
    const onEnded = (error: RpcError) => {
      for (const served of this.#calls.values()) served.end(error);
      this.#calls.clear();
      onEnd(error);
    };
    const listener = { onFrame: (frame: Frame) => this.#onFrame(frame), onEnd: onEnded };
    this.#channel = new Channel(connection, limits.maxMessageBytes, listener, limits.memory);
  }

  async close(): Promise<void> {
    await this.#channel.close();
  }

  #onFrame(frame: Frame): void {
    const { type, call } = frame;
    const served = this.#calls.get(call);
    if (type === FrameType.CALL || type === FrameType.OPEN) {
      if (served !== undefined) throw new Error(`it has begun call ${call} twice`);
      void this.#serve(frame);
    } else if (served === undefined) {
      // of a call that has ended here
      this.#channel.discard(frame);
    } else if (type === FrameType.CANCEL) {
      this.#calls.delete(call);
      served.end(new RpcError('CANCELLED', 'the client has ended the call'));
    } else if (served.stream === undefined) {
      throw new Error(`it has sent a frame of type ${type} for call ${call}, which is no stream`);
    } else if (type === FrameType.MESSAGE) {
      this.#onMessage(served.stream, frame);
    } else {
      served.stream.onFrame(frame);
    }
  }

  #onMessage(stream: RpcStream, frame: Frame): void {
    const { pendingBytes } = this.#limits;
    const bytes = unreadBytes(frame);
    if (!pendingBytes.take(this.address, bytes)) {
      this.#channel.discard(frame);
      stream.cancel(this.#tooManyBytes());
      return;
    }
    try {
      stream.onFrame(frame);
    } catch (error) {
      pendingBytes.release(this.address, bytes);
      throw error;
    }
  }

  async #serve(frame: Frame): Promise<void> {
    const { type, call, argument } = frame;
    const refusal = this.#refusal(frame);
    if (refusal !== undefined) {
      this.#channel.discard(frame);
      this.#fail(call, refusal);
      return;
    }
    const served = new ServedCall(this.address, argument);
    const bytes = requestBytes(frame);
    this.#calls.set(call, served);
    try {
      if (type === FrameType.OPEN) await this.#stream(served, frame);
      else await this.#method(served, frame);
    } catch (error) {
      served.stream?.fail(statusOf(error));
      if (!served.isEnded) this.#fail(call, statusOf(error));
    }
    served.settle();
    this.#limits.calls.release(this.address);
    this.#limits.pendingBytes.release(this.address, bytes);
    if (this.#calls.get(call) === served) this.#calls.delete(call);
  }

  async #method(served: ServedCall, frame: Frame): Promise<void> {
    const { call, name } = frame;
    const handler = this.#handlers.methods.get(name) as MethodHandler;
    const request = await this.#channel.body(frame);
    const response = await handler(request, served);
    this.#channel.checkBody(`the response of ${name}`, response);
    if (!served.isEnded) await this.#channel.sendBody({ type: FrameType.RESULT, call, body: response });
  }

  async #stream(served: ServedCall, { call, name }: Frame): Promise<void> {
    const handler = this.#handlers.streams.get(name) as StreamHandler;
    const cancel = (reason: Error) => {
      if (served.isEnded) return;
      const error = statusOf(reason);
      this.#calls.delete(call);
      this.#fail(call, error);
      served.end(error);
    };
    const onTaken = (message: Frame) => this.#limits.pendingBytes.release(this.address, unreadBytes(message));
    const stream = new RpcStream(this.#channel, call, { onCancel: cancel, onTaken });
    served.stream = stream;
    await handler(stream, served);
    await stream.finish();
  }

  /** The reason to refuse a call; undefined: it is carried out, and counts against the limits. */
  #refusal(frame: Frame): RpcError | undefined {
    const { type, name } = frame;
    const { calls, pendingBytes } = this.#limits;
    const isKnown = type === FrameType.OPEN ? this.#handlers.streams.has(name) : this.#handlers.methods.has(name);
    if (!isKnown) {
      const what = type === FrameType.OPEN ? 'stream' : 'method';
      return new RpcError('UNIMPLEMENTED', `there is no ${what} ${JSON.stringify(name)}`);
    }
    if (!calls.take(this.address))
      return new RpcError('RESOURCE_EXHAUSTED', `${calls.each} calls are under way already`);
    if (pendingBytes.take(this.address, requestBytes(frame))) return undefined;
    calls.release(this.address);
    return this.#tooManyBytes();
  }

  #tooManyBytes(): RpcError {
    const { pendingBytes } = this.#limits;
    const own = pendingBytes.held(this.address);
    const text = `the server has requests of ${pendingBytes.used} bytes already, ${own} of them of this client`;
    return new RpcError('RESOURCE_EXHAUSTED', text);
  }

  #fail(call: number, error: RpcError): void {
    this.#channel.send({ type: FrameType.FAIL, call, body: encodeStatus(error) });
  }
}

/** Bytes of the request of a call, which are read before its handler runs. */
const requestBytes = ({ flags, body }: Frame): number =>
  OVERHEAD_BYTES + ((flags & LARGE) === 0 ? body.length : decodeLarge(body).length);

/** Bytes of a message that its handler has not read; those in the client's memory are there until then. */
const unreadBytes = ({ body }: Frame): number => OVERHEAD_BYTES + body.length;
