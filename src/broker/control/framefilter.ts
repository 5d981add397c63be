/**
 * The frames of a program of the library while rules of faults are in force: its gate (native/verbs/gate.h) sends them
 * here on their way between card and link, and what the rules leave of them goes back.
 *
 * Both ends write records to a stream: a head, and a frame. A head has the kind, the options of the frame's descriptor,
 * and the frame's bytes, each a u32 in little-endian order.
 */
import { Socket } from 'node:net';
import { Deferred } from '../../base/deferred.js';
import { performance } from '../../base/timers.js';
import { VerbsError } from '../../errors.js';
import { errnoError } from '../../link/errno.js';
import { openPoller } from '../../link/poller.js';
import { type NativePoller, native } from '../../native.js';
import { singlePackets } from '../../probe/faults/frames.js';
import { type FaultOrder, FaultRules } from '../../probe/faults/rules.js';

/** Kinds of records. `Kind` of native/verbs/gate.cc has the same. */
const KIND = {
  /** The link has received the frame; the card is to receive it. */
  received: 0,
  /** The card has sent the frame; the link is to send it. */
  sent: 1,
  /** The gate's first record: from now on every frame comes this way. */
  begin: 2,
  /** Comes back behind the frames before it. */
  mark: 3,
  /** No rule needs the gate any more. Its answer is the last record; the end of the stream is the end of the gate. */
  end: 4,
} as const;
const HEAD_BYTES = 12;
/** Bytes of the card's slots: kRxSlotBytes and kTxSlotBytes of native/verbs/adapter.cc. */
const MAX_RECEIVED = 69_632;
const MAX_SENT = 4608;
/** Bytes that the program has not read, beyond which the filter reads no more from it. */
const MAX_UNREAD = 2 ** 20;
/** Time that the program may take to open its gate (ms): its engine may be busy with a call of the program's. */
const BEGIN_MS = 2000;

/** Gives the program the other end of the stream. @returns false if the program is not connected with the broker */
export type SendGate = (fd: number) => boolean;

const now = () => performance.now() * 1e6;

/** See the head of this file. A device's faults use it as their engine. */
export class FrameFilter {
  readonly #sendGate: SendGate;
  readonly #timer: NativePoller;
  #rules: FaultRules | undefined;
  #socket: Socket | undefined;
  /** Resolved when the gate's first record has come. */
  #begin = new Deferred<void>();
  /** Resolved when the stream has ended, once it is to end. */
  #ending: Deferred<void> | undefined;
  #unread: Buffer = Buffer.alloc(0);
  #written: Uint8Array[] = [];

  /** @throws VerbsError EIO without file descriptors */
  constructor(sendGate: SendGate) {
    this.#sendGate = sendGate;
    this.#timer = openPoller([], () => this.#onTimer());
  }

  /**
   * Sets the rules that are in force.
   * @param hits receives the numbers of packets that the rules have hit
   * @throws VerbsError ECANCELED if the program is not connected with the broker, ETIMEDOUT if it does not react
   */
  async setFaults(orders: readonly FaultOrder[], hits: SharedArrayBuffer): Promise<void> {
    await this.#ending?.promise;
    this.#rules ??= new FaultRules(
      new Float64Array(hits),
      { maxFrame: MAX_RECEIVED, put: (frame, options) => this.#put(KIND.received, frame, options) },
      { maxFrame: MAX_SENT, put: (frame, options) => this.#put(KIND.sent, frame, options) },
    );
    this.#rules.set(orders);
    if (orders.length > 0 && this.#socket === undefined) await this.#open();
    this.#settle();
  }

  /** Ends the gate, and what it holds back is lost. */
  close(): void {
    this.#timer.close();
    const socket = this.#socket;
    if (socket === undefined) return;
    // nothing starts the timer any more
    this.#onClose(socket);
    socket.destroy();
  }

  async #open(): Promise<void> {
    const pair = native().unix.pair();
    if (typeof pair === 'number') throw errnoError(pair, 'the broker has no stream for the frames', {});
    const [ours, theirs] = pair;
    const isSent = this.#sendGate(theirs);
    native().closeFd(theirs);
    if (!isSent) {
      native().closeFd(ours);
      throw new VerbsError('ECANCELED', 'the program is not connected with the broker');
    }
    native().releaseFd(ours);
    const socket = new Socket({ fd: ours, readable: true, writable: true });
    this.#begin = new Deferred<void>();
    this.#unread = Buffer.alloc(0);
    this.#socket = socket;
    socket.unref();
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#onClose(socket));
    socket.on('drain', () => socket.resume());
    socket.on('data', (bytes: Buffer) => this.#onData(socket, bytes));
    if (await this.#begin.isSettledWithin(BEGIN_MS)) return this.#begin.promise;
    socket.destroy();
    throw new VerbsError('ETIMEDOUT', `the program does not send its frames within ${BEGIN_MS} ms`);
  }

  #onClose(socket: Socket): void {
    if (this.#socket !== socket) return;
    this.#socket = undefined;
    if (this.#begin.isPending) this.#begin.reject(new VerbsError('ECANCELED', 'the program has ended'));
    this.#ending?.resolve();
    this.#ending = undefined;
  }

  /** Ends the gate of a program, perhaps another user's, whose bytes are no records. */
  #onData(socket: Socket, bytes: Buffer): void {
    try {
      this.#takeAll(bytes);
    } catch {
      socket.destroy();
      return;
    }
    this.#settle();
    if (socket.writableLength > MAX_UNREAD) socket.pause();
  }

  /** @throws RangeError for what is no record */
  #takeAll(bytes: Buffer): void {
    this.#unread = this.#unread.length === 0 ? bytes : Buffer.concat([this.#unread, bytes]);
    let at = 0;
    while (this.#unread.length - at >= HEAD_BYTES) {
      const [kind = 0, options = 0, count = 0] = [0, 4, 8].map((offset) => this.#unread.readUInt32LE(at + offset));
      const end = at + HEAD_BYTES + count;
      if (kind > KIND.end || count > MAX_RECEIVED) throw new RangeError(`kind ${kind}, ${count} bytes`);
      if (end > this.#unread.length) break;
      this.#take(kind, new Uint8Array(this.#unread.subarray(at + HEAD_BYTES, end)), options);
      at = end;
    }
    this.#unread = this.#unread.subarray(at);
  }

  #take(kind: number, frame: Uint8Array, options: number): void {
    const rules = this.#rules as FaultRules;
    switch (kind) {
      case KIND.received:
        for (const each of frame.length === 0 ? [] : singlePackets(frame, options))
          rules.received.pass(each.frame, each.options, now());
        break;
      case KIND.sent:
        rules.sent.pass(frame, options, now());
        break;
      case KIND.begin:
        this.#begin.resolve();
        break;
      case KIND.mark:
        this.#put(KIND.mark, frame, options);
        break;
      default:
        this.#write();
        this.#socket?.end();
    }
  }

  #onTimer(): void {
    this.#rules?.received.release(now());
    this.#rules?.sent.release(now());
    this.#settle();
  }

  /** Writes what is ready, and ends the gate that nobody needs. */
  #settle(): void {
    this.#write();
    const rules = this.#rules;
    if (rules === undefined || this.#socket === undefined) return;
    rules.countHits();
    const { deadline } = rules;
    if (deadline > 0) this.#timer.start(Math.max(deadline - now(), 0), false);
    if (!rules.isIdle || this.#ending !== undefined) return;
    this.#ending = new Deferred<void>();
    this.#put(KIND.end, new Uint8Array(0), 0);
    this.#write();
  }

  #put(kind: number, frame: Uint8Array, options: number): boolean {
    const head = Buffer.alloc(HEAD_BYTES);
    for (const [i, word] of [kind, options, frame.length].entries()) head.writeUInt32LE(word >>> 0, 4 * i);
    this.#written.push(head, frame);
    return true;
  }

  #write(): void {
    if (this.#written.length === 0) return;
    const bytes = Buffer.concat(this.#written);
    this.#written = [];
    if (this.#socket?.writable) this.#socket.write(bytes);
  }
}
