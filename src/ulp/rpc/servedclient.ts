/** The calls of one client, at the server. */
import type { Connection } from '../../index.js';
import { Channel } from './channel.js';
import { RpcError, statusOf } from './status.js';
import { RpcStream } from './stream.js';
import { decodeLarge, encodeStatus, type Frame, FrameType, LARGE } from './wire.js';

/** What a handler knows of its call. */
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

/** Limits of a server, and what counts towards them. */
export interface Limits {
  readonly maxMessageBytes: number;
  readonly maxCalls: number;
  readonly maxPendingBytes: number;
  /** Bytes of the requests whose handlers run, and of messages that were not read. */
  pendingBytes: number;
}

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
    this.address = connection.remoteAddress ?? '';
    this.#handlers = handlers;
    this.#limits = limits;
    this.#channel = new Channel(connection, limits.maxMessageBytes, {
      onFrame: (frame) => this.#onFrame(frame),
      onEnd: (error) => {
        for (const served of this.#calls.values()) served.end(error);
        this.#calls.clear();
        onEnd(error);
      },
    });
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
    } else if (
      type === FrameType.MESSAGE &&
      this.#limits.pendingBytes + frame.body.length > this.#limits.maxPendingBytes
    ) {
      this.#channel.discard(frame);
      served.stream.cancel(tooManyBytes(this.#limits));
    } else {
      served.stream.onFrame(frame);
      if (type === FrameType.MESSAGE) this.#limits.pendingBytes += frame.body.length;
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
    const bytes = bytesOf(frame);
    this.#calls.set(call, served);
    this.#limits.pendingBytes += bytes;
    try {
      if (type === FrameType.OPEN) await this.#stream(served, frame);
      else await this.#method(served, frame);
    } catch (error) {
      served.stream?.fail(statusOf(error));
      if (!served.isEnded) this.#fail(call, statusOf(error));
    }
    served.settle();
    this.#limits.pendingBytes -= bytes;
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
    const onTaken = ({ body }: Frame) => {
      this.#limits.pendingBytes -= body.length;
    };
    const stream = new RpcStream(this.#channel, call, { onCancel: cancel, onTaken });
    served.stream = stream;
    await handler(stream, served);
    await stream.finish();
  }

  /** Why a call is not carried out. */
  #refusal(frame: Frame): RpcError | undefined {
    const { type, name } = frame;
    const { maxCalls, maxPendingBytes, pendingBytes } = this.#limits;
    const isKnown = type === FrameType.OPEN ? this.#handlers.streams.has(name) : this.#handlers.methods.has(name);
    if (!isKnown) {
      const what = type === FrameType.OPEN ? 'stream' : 'method';
      return new RpcError('UNIMPLEMENTED', `there is no ${what} ${JSON.stringify(name)}`);
    }
    if (this.#calls.size >= maxCalls)
      return new RpcError('RESOURCE_EXHAUSTED', `${maxCalls} calls are under way already`);
    if (pendingBytes + bytesOf(frame) > maxPendingBytes) return tooManyBytes(this.#limits);
    return undefined;
  }

  #fail(call: number, error: RpcError): void {
    this.#channel.send({ type: FrameType.FAIL, call, body: encodeStatus(error) });
  }
}

const tooManyBytes = ({ pendingBytes }: Limits): RpcError =>
  new RpcError('RESOURCE_EXHAUSTED', `the server has requests of ${pendingBytes} bytes already`);

/** Bytes of the request of a call. */
function bytesOf({ flags, body }: Frame): number {
  return (flags & LARGE) === 0 ? body.length : decodeLarge(body).length;
}
