/**
 * A connection as a Node program wants it: messages, the peer's memory, a stream. On one reliable queue pair, which the
 * connection manager has connected.
 */
import { EventEmitter } from 'node:events';
import type { Duplex } from 'node:stream';
import { WcStatus } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import type { AccessFlags } from '../verbs/access.js';
import { checkInteger } from '../verbs/check.js';
import type { Mr, RemoteMemory } from '../verbs/mr.js';
import type { Pd } from '../verbs/pd.js';
import type { Qp } from '../verbs/qp.js';
import type { WaitOptions } from '../verbs/waiting.js';
import type { Wc } from '../verbs/wc.js';
import type { Sge } from '../verbs/wr.js';
import { Inbox } from './inbox.js';
import { type Message, Messages } from './messages.js';
import { type AtomicOptions, OneSided, type ReadOptions, staged, type WriteOptions } from './onesided.js';
import type { Peer } from './peer.js';
import { Pump } from './pump.js';
import { failure, type Place, type Request, Requests } from './requests.js';
import { ConnectionStream } from './stream.js';

export interface ConnectionOptions {
  /** Bytes that a message may have, in either direction. A longer one ends the connection that it arrives on. Default 16384. */
  readonly messageBytes?: number;
  /** Messages that may be under way to us, or arrived and not taken, before the peer has to wait. Default 32. */
  readonly receives?: number;
  /** Requests in flight; more wait for their turn. Default 16. */
  readonly sends?: number;
  /** So many milliseconds of silence, and the peer is asked for a sign of life: a peer that has vanished ends the
   * connection. 0 = never. Default 10000. */
  readonly keepAlive?: number;
}

/** `wrId` of the request for a sign of life. */
const LIFE = -1;

interface Closable {
  close(): Promise<void>;
}

export interface SendOptions extends WaitOptions {
  /** 32 bits that go along. */
  readonly imm?: number;
}

/**
 * Events: `end` once, while `qp` is still there, for its counters; then `close`, with the error that ended the connection, or
 * none when one of the two ends closed it. It keeps the process running while it is open; see `unref`.
 */
export class Connection extends EventEmitter<{ end: []; close: [error?: Error] }> implements AsyncIterable<Message> {
  /** The domain in which peers' rights to our memory are given. */
  readonly pd: Pd;
  /** For those who want to do more; its send completions and receives are the connection's. */
  readonly qp: Qp;
  /** Bytes that a message may have. */
  readonly messageBytes: number;
  readonly #resources: readonly Closable[];
  readonly #requests: Requests;
  readonly #inbox: Inbox;
  readonly #messages = new Messages();
  readonly #oneSided: OneSided;
  readonly #pumps: readonly Pump[];
  readonly #shared = new Set<Mr>();
  readonly #keepAlive: number;
  #timer: NodeJS.Timeout | undefined;
  /** Something was heard of the peer since the timer last looked. */
  #isHeard = true;
  #peer: Peer | undefined;
  #stream: ConnectionStream | undefined;
  /** Draining: what was asked for is carried out, and nothing new. */
  #state: 'connecting' | 'open' | 'draining' | 'closing' | 'closed' = 'connecting';
  #isHolding = false;
  #isAskedForLife = false;
  #freeing: Promise<void> | undefined;
  #why: VerbsError | undefined;

  /**
   * @internal A connection to be: its queue pair is for the connection manager to connect.
   * @param ownsPd the domain goes with the connection
   * @throws TypeError, RangeError for wrong options; VerbsError ENOMEM
   */
  static async prepare(pd: Pd, options: ConnectionOptions = {}, ownsPd = false): Promise<Connection> {
    const { messageBytes = 16384, receives = 32, sends = 16, keepAlive = 10_000 } = options;
    const resources: Closable[] = [];
    const keep = <T extends Closable>(resource: T): T => {
      resources.unshift(resource);
      return resource;
    };
    if (ownsPd) keep(pd);
    try {
      checkInteger('messageBytes', messageBytes, 64, 2 ** 30);
      checkInteger('receives', receives, 8, 16384);
      checkInteger('sends', sends, 1, 16384);
      checkInteger('keepAlive', keepAlive, 0, 2 ** 31 - 1);
      const arriving = keep(await pd.regMr(receives * messageBytes));
      const leaving = keep(await pd.regMr(sends * messageBytes));
      // one more: for the sign of life
      const sendCq = keep(await pd.device.createCq({ cqe: sends + 1 }));
      const recvCq = keep(await pd.device.createCq({ cqe: receives }));
      const sizes = { maxSendWr: sends + 1, maxRecvWr: receives };
      const qp = keep(await pd.createQp({ sendCq, recvCq, ...sizes, sqSigAll: false }));
      return new Connection(
        qp,
        messageBytes,
        new Inbox(qp, arriving, receives),
        new Requests(qp, leaving, sends),
        keepAlive,
        resources,
      );
    } catch (error) {
      for (const resource of resources) await resource.close();
      throw error;
    }
  }

  private constructor(
    qp: Qp,
    messageBytes: number,
    inbox: Inbox,
    requests: Requests,
    keepAlive: number,
    resources: readonly Closable[],
  ) {
    super();
    this.qp = qp;
    this.pd = qp.pd;
    this.messageBytes = messageBytes;
    this.#inbox = inbox;
    this.#requests = requests;
    this.#oneSided = new OneSided((...request) => this.#run(...request), messageBytes);
    this.#keepAlive = keepAlive;
    this.#resources = resources;
    inbox.onArrival = (arrival) => this.#messages.push(arrival);
    this.#pumps = [new Pump(qp.sendCq, (wc) => this.#onSent(wc)), new Pump(qp.recvCq, (wc) => this.#onReceived(wc))];
    qp.on('event', ({ type }) => {
      if (type === 'QP_FATAL' || type === 'QP_ACCESS_ERR' || type === 'QP_REQ_ERR')
        this.destroy(new VerbsError('EIO', `the peer asked for what ${qp} does not allow (${type})`));
    });
  }

  /** @internal Posts the receives; the queue pair is in INIT. */
  postReceives(): void {
    this.#inbox.open();
  }

  /** @internal The queue pair is connected. @throws what has ended the connection before it was one */
  established(peer: Peer): void {
    if (this.#why !== undefined) throw this.#why.cause ?? this.#why;
    this.#peer = peer;
    this.#state = 'open';
    this.ref();
    if (this.#keepAlive > 0) this.#timer = setInterval(() => this.#askForLife(), this.#keepAlive).unref();
  }

  /** @internal The peer has said goodbye, or by the error has gone without one. */
  peerLeft(error?: Error): void {
    for (const pump of this.#pumps) pump.finish();
    // if it left for an error of this queue pair, the event that tells of it comes first
    setImmediate(() => this.#end(error));
  }

  /** The other end's address and port. */
  get remoteAddress(): string | undefined {
    return this.#peer?.address;
  }
  get remotePort(): number | undefined {
    return this.#peer?.port;
  }
  /** What the other end sent along when the connection was made, filled up with zeros. */
  get privateData(): Uint8Array {
    return this.#peer?.privateData ?? new Uint8Array(0);
  }
  /** Neither end has closed it. */
  get isOpen(): boolean {
    return this.#state === 'open';
  }

  /**
   * Sends a message. Resolves when the peer's card has it; so many at a time as `sends` says, the others wait.
   * @param data bytes, which are copied at once or when it is their turn; or a piece of registered memory, which is not to
   * be changed before the promise ends
   * @throws TypeError, RangeError; VerbsError EMSGSIZE, ECONNRESET when the connection is at its end; WcError when the
   * peer refused it
   */
  send(data: Uint8Array | Sge, { imm, ...wait }: SendOptions = {}): Promise<void> {
    if (this.#stream !== undefined) return Promise.reject(this.#taken());
    const { length } = data;
    if (data instanceof Uint8Array && length > this.messageBytes)
      return Promise.reject(
        new VerbsError('EMSGSIZE', `a message of ${length} bytes: at most ${this.messageBytes} (messageBytes)`),
      );
    return this.post(() => ({ data, imm }), wait);
  }

  /** @internal Sends a message, which is made when it leaves; the stream has the right to. */
  post(make: () => { data: Uint8Array | Sge; imm: number | undefined }, wait: WaitOptions = {}): Promise<void> {
    return this.#run(
      'no answer to the SEND',
      wait,
      (place) => {
        const { data, imm } = make();
        const how =
          imm === undefined ? { opcode: 'SEND' as const } : { opcode: 'SEND_WITH_IMM' as const, immData: imm };
        return { ...how, sgList: staged(place, data), solicited: true };
      },
      () => {},
    );
  }

  /**
   * The next message; undefined when there is none any more because one of the two ends has closed the connection.
   * @throws what ended the connection, the signal's reason, VerbsError ETIMEDOUT
   */
  receive(wait: WaitOptions = {}): Promise<Message | undefined> {
    if (this.#stream !== undefined) return Promise.reject(this.#taken());
    return this.#messages.next(wait);
  }

  /** All messages, to the end of the connection. Leaving the loop does not close it. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Message, void, void> {
    for (let message = await this.receive(); message !== undefined; message = await this.receive()) yield message;
  }

  /**
   * Memory for the peer: what `mr.remote` says is to be sent to it. The sharing ends when the region or the connection is
   * closed.
   * @param source as `pd.regMr` takes it: a number of bytes, or memory of a region
   */
  async share(
    source: number | Uint8Array | Mr,
    access: AccessFlags = ['localWrite', 'remoteRead', 'remoteWrite', 'remoteAtomic'],
  ): Promise<Mr> {
    const mr = await this.pd.regMr(source, { access });
    this.#shared.add(mr);
    return mr;
  }

  /**
   * Writes to the peer's memory; resolves when it is there.
   * @param remote what the peer's `mr.remote` says
   * @throws RangeError beyond the region; as `send`
   */
  write(remote: RemoteMemory, data: Uint8Array | Sge, options: WriteOptions = {}): Promise<void> {
    return this.#oneSided.write(remote, data, options);
  }

  /**
   * Reads the peer's memory.
   * @param remote what the peer's `mr.remote` says
   * @throws RangeError beyond the region; as `send`
   */
  read(remote: RemoteMemory, options: ReadOptions = {}): Promise<Buffer> {
    return this.#oneSided.read(remote, options);
  }

  /**
   * If the 8 bytes (host byte order) at `offset`, a multiple of 8, are `expected` they become `desired`, in one step.
   * @returns what was there before
   * @throws as `read`
   */
  compareSwap(remote: RemoteMemory, expected: bigint, desired: bigint, options: AtomicOptions = {}): Promise<bigint> {
    return this.#oneSided.atomic(remote, options, {
      opcode: 'ATOMIC_CMP_AND_SWP',
      compareAdd: expected,
      swap: desired,
    });
  }

  /**
   * Adds to the 8 bytes (host byte order) at `offset`, a multiple of 8, in one step, modulo 2^64.
   * @returns what was there before
   * @throws as `read`
   */
  fetchAdd(remote: RemoteMemory, add: bigint, options: AtomicOptions = {}): Promise<bigint> {
    return this.#oneSided.atomic(remote, options, { opcode: 'ATOMIC_FETCH_AND_ADD', compareAdd: add });
  }

  /**
   * The connection as a stream of bytes. The peer does the same with its end; from then on messages are the stream's.
   * Ending it at both ends closes the connection, and closing the connection ends it.
   * @throws VerbsError EBUSY the second time
   */
  stream(): Duplex {
    if (this.#stream !== undefined) throw this.#taken();
    const stream = new ConnectionStream(this, this.#inbox.count);
    this.#stream = stream;
    this.#inbox.onArrival = (arrival) => stream.arrived(arrival);
    this.#messages.divert((arrival) => stream.arrived(arrival), this.#taken());
    if (this.#why !== undefined) stream.connectionEnded(undefined);
    return stream;
  }

  /** Keeps the process running while the connection is open, as it does by itself. */
  ref(): this {
    if (!this.#isHolding && this.#state === 'open') {
      this.#isHolding = true;
      this.qp.device.engine.hold();
    }
    return this;
  }

  /** Lets the process end although the connection is open. */
  unref(): this {
    if (this.#isHolding) this.qp.device.engine.release();
    this.#isHolding = false;
    return this;
  }

  /**
   * Takes no more requests, waits until everything that was sent has arrived, says goodbye and frees all.
   * @throws VerbsError EBUSY when something else of the program's uses the domain or shared memory
   */
  async close(): Promise<void> {
    if (this.#state === 'open') this.#state = 'draining';
    if (this.#state === 'draining') await this.#requests.idle();
    // the peer may have closed it, or vanished, meanwhile
    this.#end();
    await this.#freeing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Ends the connection at once; what is under way is lost. @param error for those who wait on it */
  destroy(error?: Error): void {
    this.#end(error);
  }

  #onSent(wc: Wc): void {
    this.#isHeard ||= wc.ok;
    if (wc.wrId === LIFE) {
      this.#isAskedForLife = false;
      if (!wc.ok) this.#end(failure(wc));
      return;
    }
    const error = this.#requests.complete(wc);
    if (error !== undefined) this.#end(error);
  }

  #onReceived(wc: Wc): void {
    this.#isHeard ||= wc.ok;
    // readers have been told that nothing comes any more, and the memory goes
    if (this.#why !== undefined) return;
    if (wc.ok) this.#inbox.complete(wc);
    else if (wc.status !== WcStatus.WR_FLUSH_ERR) this.#end(failure(wc));
  }

  /** After a silence: a WRITE of no bytes, which any peer answers and nobody notices. */
  #askForLife(): void {
    if (!this.#isHeard && !this.#isAskedForLife) {
      this.#isAskedForLife = true;
      try {
        this.qp.postSend({ wrId: LIFE, opcode: 'RDMA_WRITE', remoteAddr: 0, rkey: 0, signaled: true });
      } catch (error) {
        // the program has closed the queue pair, or its device
        this.#end(error as Error);
      }
    }
    this.#isHeard = false;
  }

  /** @param what for the message when the time is over */
  #run<T>(what: string, wait: WaitOptions, make: (place: Place) => Request, finish: (place: Place) => T): Promise<T> {
    if (this.#state !== 'open') return Promise.reject(new VerbsError('ECONNRESET', `the connection is ${this.#state}`));
    return this.#requests.run(what, wait, make, finish);
  }

  #taken(): VerbsError {
    return new VerbsError('EBUSY', 'the connection is a stream: its messages are the stream’s');
  }

  /** Begins the end, once. */
  #end(error?: Error): void {
    if (this.#state === 'closing' || this.#state === 'closed') return;
    this.#state = 'closing';
    this.unref();
    clearInterval(this.#timer);
    const reason = error ? `: ${error.message}` : '';
    this.#why = new VerbsError('ECONNRESET', `the connection is closed${reason}`, { cause: error });
    this.#requests.end(this.#why);
    this.#messages.end(error);
    this.#stream?.connectionEnded(error);
    this.#freeing = this.#free();
    this.#freeing.catch(() => {}).then(() => this.emit('close', error));
    // behind all that has to be done: a listener may throw
    this.emit('end');
  }

  async #free(): Promise<void> {
    await this.#peer?.leave().catch(() => {});
    this.#requests.abandon();
    for (const resource of [...this.#shared, ...this.#resources]) await resource.close();
    this.#state = 'closed';
  }
}
