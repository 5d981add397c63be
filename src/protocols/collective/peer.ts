/** The queue pair with another rank: data for each lane, the credits that they need, and control messages. */
import { AsyncQueue } from '../../base/asyncqueue.js';
import { performance } from '../../base/timers.js';
import { within } from '../../base/within.js';
import {
  type CmId,
  type Cq,
  type Mr,
  type Pd,
  type Qp,
  type SendWr,
  throwIfFailed,
  type Wc,
  WcOpcode,
  WcStatus,
} from '../../index.js';
import { onFatalEvent, untilDisconnected } from '../../transport/disconnect.js';
import { RankError } from './errors.js';
import {
  CONTROL_BYTES,
  type ControlMessage,
  CREDIT_BYTES,
  type Credit,
  DEPTH,
  decodeControl,
  decodeCredit,
  EAGER_BYTES,
  encodeControl,
  encodeCredit,
  immediate,
  Kind,
  LANES,
  SLOT_BYTES,
  splitImmediate,
} from './wire.js';

/** Receives that are posted; the peer waits when it has sent more short data than we have taken. */
const RECEIVES = 32;
const CONTROL_RECEIVES = 8;
/** Requests that the queue pair holds. */
const SENDS = 64;
/** Time that the messages before a disconnect have to get through (ms). */
const LEAVE_MS = 1000;

/** Completions of one peer that may be pending. */
export const CQE_PER_PEER = SENDS + RECEIVES;

/** An offset in a region. */
export interface MrOffset {
  readonly mr: Mr;
  /** Bytes from the start of the region. */
  readonly offset: number;
}

/** Data that have arrived. */
export interface Arrival {
  readonly tag: number;
  readonly bytes: number;
  readonly place: MrOffset;
  /** The data are needed no more. */
  release(): void;
}

/** A credit of the peer, for data of a call. */
export interface TaggedCredit extends Credit {
  readonly tag: number;
}

/** The communicator, as a peer sees it. */
export interface PeerListener {
  /** A message of a call has arrived. */
  onTag(peer: Peer, tag: number): void;
  onControl(peer: Peer, message: ControlMessage): void;
  /** Passes on all completions that there are. */
  drain(): void;
  /** The connection has ended. Called once, and not after `close`. */
  onEnd(peer: Peer, error: RankError): void;
}

/** The purpose of one end of the connection. */
export interface PeerInit {
  readonly rank: number;
  /** Whether both ends exchange data, and not control messages alone. */
  readonly hasData: boolean;
}

interface LaneEnds {
  /** Numbers of the slots that are not announced. */
  readonly slots: number[];
  /** Destinations of the data that the peer may send, in order. */
  readonly announced: { readonly slot: number; readonly place: MrOffset }[];
  readonly arrivals: AsyncQueue<Arrival>;
  readonly credits: AsyncQueue<TaggedCredit>;
  /** Credits that were written to the peer, and that came from it. */
  written: number;
  read: number;
}

interface Pending {
  resolve(): void;
  reject(error: Error): void;
}

export class Peer {
  readonly rank: number;
  readonly #hasData: boolean;
  /** Bytes of a receive. */
  readonly #receiveBytes: number;
  readonly #id: CmId;
  readonly #mr: Mr;
  readonly #qp: Qp;
  readonly #listener: PeerListener;
  readonly #lanes: readonly LaneEnds[];
  /** The peer's FIFO. */
  #fifo = { addr: 0n, rkey: 0 };
  readonly #pending = new Map<number, Pending>();
  /** Requests for which the queue pair has no room yet. */
  readonly #backlog: SendWr[] = [];
  #posted = 0;
  #lastWrId = 0;
  #isStarted = false;
  #hasLeft = false;
  #failure: RankError | undefined;
  #beat: { readonly since: number } | undefined;
  #closed: Promise<boolean> | undefined;

  private constructor(parts: { id: CmId; mr: Mr; qp: Qp }, { rank, hasData }: PeerInit, listener: PeerListener) {
    this.rank = rank;
    this.#hasData = hasData;
    this.#receiveBytes = hasData ? EAGER_BYTES : CONTROL_BYTES;
    this.#id = parts.id;
    this.#mr = parts.mr;
    this.#qp = parts.qp;
    this.#listener = listener;
    this.#lanes = Array.from({ length: hasData ? LANES : 0 }, () => ({
      slots: Array.from({ length: DEPTH }, (_, slot) => slot),
      announced: [],
      arrivals: new AsyncQueue<Arrival>(),
      credits: new AsyncQueue<TaggedCredit>(),
      written: 0,
      read: 0,
    }));
    onFatalEvent(parts.qp, (error) => this.#endBy(error));
    const receives = hasData ? RECEIVES : CONTROL_RECEIVES;
    for (let slot = 0; slot < receives; slot++) this.#postReceive(slot);
  }

  /**
   * Makes the queue pair of an id, whose completions are passed to `take`.
   * @throws VerbsError ENOMEM; nothing is left allocated then, but the id
   */
  static async open(id: CmId, pd: Pd, cq: Cq, init: PeerInit, listener: PeerListener): Promise<Peer> {
    const bytes = init.hasData ? SLOTS_AT + LANES * DEPTH * SLOT_BYTES : CONTROL_RECEIVES * CONTROL_BYTES;
    const mr = await pd.regMr(bytes, { access: ['localWrite', 'remoteWrite'] });
    try {
      const maxRecvWr = init.hasData ? RECEIVES : CONTROL_RECEIVES;
      const sizes = { maxSendWr: SENDS, maxRecvWr, maxSendSge: 1, maxRecvSge: 1, maxInlineData: CREDIT_BYTES };
      const qp = (await id.createQp(pd, { sendCq: cq, ...sizes })).postedByLibrary();
      return new Peer({ id, mr, qp }, init, listener);
    } catch (error) {
      await mr.close();
      throw error;
    }
  }

  /** Number of the queue pair. */
  get qpNum(): number {
    return this.#qp.qpNum;
  }

  /** Address of the rank. */
  get address(): string {
    return this.#id.remoteAddress?.address ?? '';
  }

  /** Our FIFO, for the peer's Hello. */
  get fifo(): { readonly fifoAddr: bigint; readonly fifoRkey: number } {
    if (!this.#hasData) return { fifoAddr: 0n, fifoRkey: 0 };
    return { fifoAddr: BigInt(this.#mr.addr + FIFO_AT), fifoRkey: this.#mr.rkey };
  }

  /** The connection is established. @param fifo the peer's */
  start(fifo: { readonly fifoAddr: bigint; readonly fifoRkey: number }): void {
    this.#fifo = { addr: fifo.fifoAddr, rkey: fifo.fifoRkey };
    this.#isStarted = true;
    void this.#awaitDisconnect();
  }

  // ---- data ----

  /** Whether a slot of a lane can be announced. */
  hasSlot(lane: number): boolean {
    return this.#lane(lane).slots.length > 0;
  }

  /**
   * Allows the peer to send data. There is a free slot.
   * @param place destination of the data. Default: the slot
   */
  announce(lane: number, tag: number, bytes: number, place?: MrOffset): void {
    const ends = this.#lane(lane);
    const slot = ends.slots.shift() as number;
    const to = place ?? { mr: this.#mr, offset: SLOTS_AT + (lane * DEPTH + slot) * SLOT_BYTES };
    ends.announced.push({ slot, place: to });
    const credit = encodeCredit({ addr: BigInt(to.mr.addr + to.offset), rkey: to.mr.rkey, bytes });
    const entry = lane * DEPTH + (ends.written++ % DEPTH);
    this.#post({
      opcode: 'RDMA_WRITE_WITH_IMM',
      sgList: credit,
      remoteAddr: this.#fifo.addr + BigInt(entry * CREDIT_BYTES),
      rkey: this.#fifo.rkey,
      immData: immediate(Kind.CREDIT, lane, tag),
    }).catch(() => {});
  }

  /** Takes the next data of a lane. @throws the error that has ended the communicator */
  arrival(lane: number): Promise<Arrival> {
    return this.#lane(lane).arrivals.take();
  }

  /** Takes the next credit of a lane. @throws the error that has ended the communicator */
  credit(lane: number): Promise<TaggedCredit> {
    return this.#lane(lane).credits.take();
  }

  /** Sends data to where a credit says. Resolves when the peer's adapter has them. */
  write(lane: number, { addr, rkey, bytes, tag }: TaggedCredit, { mr, offset }: MrOffset): Promise<void> {
    const immData = immediate(Kind.DATA, lane, tag);
    const sgList = mr.sge(offset, bytes);
    return this.#post({ opcode: 'RDMA_WRITE_WITH_IMM', sgList, remoteAddr: addr, rkey, immData });
  }

  /** Sends short data. Resolves when the peer's adapter has them. */
  sendEager(lane: number, tag: number, { mr, offset }: MrOffset, bytes: number): Promise<void> {
    const immData = immediate(Kind.EAGER, lane, tag);
    return this.#post({ opcode: 'SEND_WITH_IMM', sgList: mr.sge(offset, bytes), immData });
  }

  // ---- control ----

  /** Sends a control message. Resolves when the peer's adapter has it. */
  async control(pd: Pd, message: ControlMessage): Promise<void> {
    const text = encodeControl(message);
    const mr = await pd.regMr(text.length);
    try {
      mr.copyIn(text);
      await this.#post({ opcode: 'SEND_WITH_IMM', sgList: mr.sge(), immData: immediate(Kind.CONTROL, 0, 0) });
    } finally {
      await mr.close();
    }
  }

  /** Sees whether the rank answers. It ends the connection if the one before has had no answer for `timeout` ms. */
  heartbeat(timeout: number): void {
    if (!this.#isStarted || this.#failure !== undefined || this.#hasLeft) return;
    if (this.#beat === undefined) {
      this.#beat = { since: performance.now() };
      const answered = () => {
        this.#beat = undefined;
      };
      this.#post({ opcode: 'RDMA_WRITE', sgList: [], remoteAddr: 0, rkey: 0 }).then(answered, () => {});
    } else if (performance.now() - this.#beat.since >= timeout) {
      this.#end(new RankError(this.rank, 'ETIMEDOUT', `rank ${this.rank} has not answered for ${timeout} ms`));
    }
  }

  /** Takes a completion of the queue pair. */
  take(wc: Wc): void {
    // A flush only shows that the queue pair is in ERR. Its cause has an event, a completion or a disconnect.
    if (this.#failure !== undefined || (wc.status === WcStatus.WR_FLUSH_ERR && !this.#hasLeft)) return;
    const isReceive = wc.opcode === WcOpcode.RECV || wc.opcode === WcOpcode.RECV_RDMA_WITH_IMM;
    try {
      // what a rank has not acknowledged before it left, it needs no more
      if (!this.#hasLeft) throwIfFailed(wc);
      if (!isReceive) this.#onSent(wc.wrId);
      else if (wc.status === WcStatus.SUCCESS) this.#onMessage(wc.wrId, wc.immData, wc.byteLen);
    } catch (cause) {
      this.#endBy(cause);
    }
  }

  /** The rank has said that it leaves: it has all that it needs of us. */
  markLeft(): void {
    this.#hasLeft = true;
  }

  /** Rejects everything that waits for the peer, now and later. */
  fail(error: Error): void {
    for (const { arrivals, credits } of this.#lanes) {
      arrivals.end(error);
      credits.end(error);
    }
  }

  /**
   * Disconnects, and frees everything.
   * @param sendLast sends the last message, for which there is a second
   * @returns whether the last message got no answer in that time
   */
  close(sendLast: () => Promise<void>): Promise<boolean> {
    this.#closed ??= this.#close(sendLast);
    return this.#closed;
  }

  async #close(sendLast: () => Promise<void>): Promise<boolean> {
    const canSend = this.#isStarted && this.#failure === undefined && !this.#hasLeft;
    const isUnanswered =
      canSend &&
      !(await within(
        LEAVE_MS,
        sendLast().catch(() => {}),
      ));
    this.#failure ??= new RankError(this.rank, 'ECANCELED', 'the communicator was closed');
    await this.#id.close();
    this.fail(this.#failure);
    for (const { reject } of this.#pending.values()) reject(this.#failure);
    this.#pending.clear();
    await this.#mr.close();
    return isUnanswered;
  }

  /** Ends the connection by an error of the queue pair. */
  #endBy(cause: unknown): void {
    const { code } = cause as { code?: string };
    const isSilent = code === 'RETRY_EXC_ERR' || code === 'RNR_RETRY_EXC_ERR';
    const text = isSilent ? `rank ${this.rank} does not answer` : `the connection with rank ${this.rank} has failed`;
    this.#end(new RankError(this.rank, isSilent ? 'ETIMEDOUT' : 'ECONNRESET', text, { cause }));
  }

  #end(error: RankError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
    this.fail(error);
    this.#listener.onEnd(this, error);
  }

  async #awaitDisconnect(): Promise<void> {
    await untilDisconnected(this.#id);
    // that it leaves may be among what has arrived before
    this.#listener.drain();
    if (this.#hasLeft) this.fail(new RankError(this.rank, 'ECONNRESET', `rank ${this.rank} has left`));
    else this.#end(new RankError(this.rank, 'ECONNRESET', `rank ${this.rank} has disconnected`));
  }

  #lane(lane: number): LaneEnds {
    return this.#lanes[lane] as LaneEnds;
  }

  #post(wr: SendWr): Promise<void> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    const wrId = ++this.#lastWrId;
    const sent = new Promise<void>((resolve, reject) => this.#pending.set(wrId, { resolve, reject }));
    this.#backlog.push({ ...wr, wrId });
    this.#postBacklog();
    return sent;
  }

  #postBacklog(): void {
    while (this.#posted < SENDS && this.#backlog.length > 0) {
      this.#posted++;
      try {
        this.#qp.postSend(this.#backlog.shift() as SendWr);
      } catch (cause) {
        // the queue pair or the device has been closed meanwhile
        this.#endBy(cause);
        return;
      }
    }
  }

  #onSent(wrId: number): void {
    this.#posted--;
    this.#pending.get(wrId)?.resolve();
    this.#pending.delete(wrId);
    this.#postBacklog();
  }

  #postReceive(slot: number): void {
    if (this.#closed !== undefined || this.#failure !== undefined) return;
    const bytes = this.#receiveBytes;
    this.#qp.postRecv({ wrId: slot, sgList: this.#mr.sge(slot * bytes, bytes) });
  }

  #onMessage(receive: number, immData: number | undefined, bytes: number): void {
    const { kind, lane, tag } = splitImmediate(immData ?? 0);
    const ends = this.#lanes[lane];
    const release = () => this.#postReceive(receive);
    if (kind === Kind.CONTROL) {
      const at = receive * this.#receiveBytes;
      const message = decodeControl(Buffer.from(this.#mr.buffer.subarray(at, at + bytes)));
      release();
      if (message === undefined) this.#break('it has sent an invalid control message');
      else this.#listener.onControl(this, message);
    } else if (ends === undefined) {
      this.#break(`it has sent data for lane ${lane}, of ${this.#lanes.length}`);
    } else if (kind === Kind.EAGER) {
      ends.arrivals.put({ tag, bytes, place: { mr: this.#mr, offset: receive * EAGER_BYTES }, release });
      this.#listener.onTag(this, tag);
    } else {
      release();
      if (kind === Kind.CREDIT) this.#onCredit(ends, lane, tag);
      else if (kind === Kind.DATA) this.#onData(ends, tag, bytes);
      else this.#break(`it has sent a message of kind ${kind}`);
    }
  }

  #onCredit(ends: LaneEnds, lane: number, tag: number): void {
    if (ends.credits.items.length === DEPTH) {
      this.#break(`it has given more than ${DEPTH} credits for lane ${lane}`);
      return;
    }
    const entry = lane * DEPTH + (ends.read++ % DEPTH);
    const credit = decodeCredit(this.#mr.buffer, FIFO_AT + entry * CREDIT_BYTES);
    if (credit === undefined) {
      this.#break('it has given a credit for memory that ends beyond 2^64');
      return;
    }
    ends.credits.put({ ...credit, tag });
    this.#listener.onTag(this, tag);
  }

  #onData(ends: LaneEnds, tag: number, bytes: number): void {
    const announced = ends.announced.shift();
    if (announced === undefined) {
      this.#break('it has sent data without a credit');
      return;
    }
    const { slot, place } = announced;
    ends.arrivals.put({ tag, bytes, place, release: () => void ends.slots.push(slot) });
    this.#listener.onTag(this, tag);
  }

  /** The peer does not keep to the protocol. */
  #break(text: string): void {
    this.#end(new RankError(this.rank, 'EPROTO', `rank ${this.rank} breaks the protocol: ${text}`));
  }
}

/** Offset of the FIFO in the region of a peer with data; receives come before it, slots after. */
const FIFO_AT = RECEIVES * EAGER_BYTES;
const SLOTS_AT = FIFO_AT + Math.ceil((LANES * DEPTH * CREDIT_BYTES) / 4096) * 4096;
