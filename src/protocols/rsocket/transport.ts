/**
 * The protocol of rsockets on one queue pair: a stream of bytes in both directions, by RDMA WRITE with immediate into
 * the memory of the reader.
 *
 * Two things limit a writer: the halves of the peer's ring that it may write, and credits, one for each message, so
 * that the peer's receives last. The reader gives both again when half of either is used.
 */
import { type Device, type Mr, type Pd, type Qp, type QpOptions, type Sge, type Wc, WcOpcode } from '../../index.js';
import {
  type BufferSizes,
  CHUNK_BYTES,
  type Protocol,
  type Transport,
  type TransportListener,
} from '../../sockets/protocol.js';
import type { PeerMemory } from '../../transport/peermemory.js';
import type { ChunkQueue } from '../../transport/pools/chunkqueue.js';
import { GrowableBuffer } from '../../transport/pools/growablebuffer.js';
import { SendRing } from '../../transport/pools/sendring.js';
import { Queues } from '../../transport/queues.js';
import { Iomap, type IomapTransport } from './iomap.js';
import { ReceiveRing } from './receivering.js';
import {
  broken,
  type ConnectData,
  Control,
  decodeConnectData,
  encodeConnectData,
  immediate,
  MAPPING_BYTES,
  type Mapping,
  MessageKind,
  messageKind,
  messageValue,
  readTarget,
  TARGET_BYTES,
  TARGETS,
  writeMapping,
  writeTarget,
} from './wire.js';

/** Messages with data that the peer may send before we give further credits; half of them are our own limit too. */
const CREDITS = 384;
/** Messages with data of ours in flight. */
const MAX_DATA = 384;
/** Messages of ours without data in flight. The stock implementation has as many. */
const MAX_CONTROL = 4;
/** Messages without data that a peer may have in flight, above that of the stock implementation. */
const CONTROL_RECEIVES = 16;
/** The most bytes of one message: the stock implementation writes no more. */
const MAX_MESSAGE = 65_536;
/** Sequence numbers have 16 bits. */
const SEQUENCE_MASK = 0xffff;

/** A receive for a message whose data goes elsewhere. */
const EMPTY_RECEIVE = {};

/** The `wrId` of our work requests. */
enum Request {
  DATA,
  CREDITS,
  CONTROL,
  /** An entry of the peer's table of mapped memory. */
  MAPPING,
  /** Data for memory that the peer has mapped. */
  MAPPED,
}

/** Offsets in our own memory: of the entries that are on their way, and of the ring of data after them. */
const MAPPING_AT = TARGET_BYTES;
const DATA_AT = MAPPING_AT + MAPPING_BYTES;

export class RsocketTransport implements Transport, IomapTransport {
  /** The peer writes the target list, the table of its mapped memory, and the ring; we write from the own region. */
  readonly #queues: Queues;
  readonly #list: DataView;
  readonly #entry: DataView;
  readonly #mappingEntry: DataView;
  readonly #iomap: Iomap;
  readonly #received: ReceiveRing;
  readonly #sent: SendRing;
  readonly #receiveGrowth: GrowableBuffer;
  readonly #sendGrowth: GrowableBuffer;
  readonly #listener: TransportListener;
  #peer: ConnectData | undefined;
  /** The queue pair can send. Messages of the peer may come earlier, when its RTU is late. */
  #isStarted = false;
  /** Memory of the peer that we may write, in order: at most the entries of our list. */
  readonly #targets: PeerMemory[] = [];
  /** The entry of our list that the peer writes next, and that of the peer's that we write next. */
  #ownIndex = 1;
  #peerIndex = 1;
  /** Data messages sent, and the first sequence number without a credit, 16 bits. */
  #sequence = 0;
  #creditLimit = 0;
  /** Messages read when we last gave credits. */
  #creditsGivenAt = 0;
  #dataInFlight = 0;
  #controlInFlight = 0;
  /** An entry of the peer's list is on its way: its copy must not change. */
  #isEntryInFlight = false;
  /** Control messages that wait for their turn. */
  readonly #waiting: Control[] = [];
  #isPeerEnded = false;
  #isPeerGone = false;

  private constructor(queues: Queues, iomapSize: number, sizes: BufferSizes, listener: TransportListener) {
    const { pd, shared, own } = queues;
    this.#queues = queues;
    this.#listener = listener;
    this.#list = viewOf(shared.buffer, TARGETS * TARGET_BYTES);
    this.#entry = viewOf(own.buffer, TARGET_BYTES);
    this.#mappingEntry = viewOf(own.buffer.subarray(MAPPING_AT), MAPPING_BYTES);
    const ringAt = listBytes(iomapSize);
    this.#iomap = new Iomap(this, shared.buffer.subarray(TARGETS * TARGET_BYTES, ringAt));
    this.#received = new ReceiveRing(shared, ringAt);
    this.#sent = new SendRing(own, DATA_AT);
    this.#receiveGrowth = new GrowableBuffer(pd, shared, sizes.receive, (mr) => this.#received.moveTo(mr));
    this.#sendGrowth = new GrowableBuffer(pd, own, sizes.send, (mr) => this.#moveSent(mr));
    queues.deliver((wc) => this.#onCompletion(wc));
  }

  static async open(
    device: Device,
    sizes: BufferSizes,
    iomapSize: number,
    listener: TransportListener,
  ): Promise<RsocketTransport> {
    const allocation = {
      cqe: CREDITS + CONTROL_RECEIVES + MAX_DATA + MAX_CONTROL,
      sharedBytes: listBytes(iomapSize) + sizes.receive.bytes,
      ownBytes: DATA_AT + sizes.send.bytes,
    };
    const queues = await Queues.open(device, allocation, (error) => listener.onFailure(error));
    return new RsocketTransport(queues, iomapSize, sizes, listener);
  }

  /** Protection domain for the queue pair. */
  get pd(): Pd {
    return this.#queues.pd;
  }

  /** Options for the queue pair. */
  get qpOptions(): Omit<QpOptions, 'type'> {
    return {
      sendCq: this.#queues.cq,
      maxSendWr: MAX_DATA + MAX_CONTROL,
      maxRecvWr: CREDITS + CONTROL_RECEIVES,
      maxSendSge: 1,
      maxRecvSge: 1,
      maxInlineData: 0,
    };
  }

  /** Private data for the peer. */
  get privateData(): Uint8Array {
    const { iova, rkey } = this.#queues.shared;
    return encodeConnectData({
      isBigEndian: false,
      credits: CREDITS,
      list: { addr: BigInt(iova), rkey, length: TARGETS },
      buffer: this.#received.first,
      mappings: this.#iomap.size,
    });
  }

  /** Posts the receives of a queue pair in INIT. */
  use(qp: Qp): void {
    this.#queues.use(qp);
    this.#queues.postReceive(Array.from({ length: CREDITS + CONTROL_RECEIVES }, () => EMPTY_RECEIVE));
  }

  /** The peer's private data is known: its first half can be written as soon as the connection is established. */
  onPeerData(privateData: Uint8Array): void {
    const peer = decodeConnectData(privateData);
    this.#peer = peer;
    this.#targets.push(peer.buffer);
    this.#creditLimit = peer.credits;
  }

  /** The connection is established: the peer gets the second half of our ring. */
  start(): void {
    this.#isStarted = true;
    this.#giveCredits();
    this.#listener.onWritable();
  }

  get hasData(): boolean {
    return this.#received.filled > 0;
  }

  /** Whether the peer has said that it writes no more. */
  get isPeerEnded(): boolean {
    return this.#isPeerEnded;
  }

  /** Whether the peer has said that it reads no more either. */
  get isPeerGone(): boolean {
    return this.#isPeerGone;
  }

  /** Whether the peer's adapter has acknowledged all that was written. */
  get isIdle(): boolean {
    return this.#dataInFlight + this.#controlInFlight + this.#waiting.length + this.#iomap.pending === 0;
  }

  read(): Buffer {
    const data = this.#received.read(CHUNK_BYTES);
    this.#giveCredits();
    return data;
  }

  write(unsent: ChunkQueue): void {
    this.#iomap.sendMappings();
    while (unsent.bytes > 0) {
      const room = this.#room();
      if (room === 0) break;
      this.#postData(unsent.take(room));
    }
    if (this.#sent.room === 0 && this.#peerRoom >= this.#sent.bytes) this.#sendGrowth.grow();
  }

  /** Tells the peer that we write no more, or that we read no more either, after what was written before. */
  end(isGone: boolean): void {
    this.#waiting.push(isGone ? Control.DISCONNECT : Control.SHUTDOWN);
    this.#sendWaiting();
  }

  /** As `Iomap.map`. */
  map(bytes: number, offset: bigint): Promise<Mr> {
    return this.#iomap.map(this.pd, bytes, offset, this.#peer?.mappings ?? 0);
  }

  /** As `Iomap.write`. */
  writeMapped(data: Uint8Array, offset: bigint): Promise<void> {
    return this.#iomap.write(data, offset);
  }

  /** Delivers no more. */
  stop(): void {
    this.#queues.stop();
    this.#iomap.end();
  }

  /**
   * Both ends say that they write no more before they disconnect: something was lost otherwise. The end of a process
   * says it, too.
   */
  disconnected(hasExited: boolean): boolean {
    this.#queues.drain();
    this.stop();
    const isComplete = (this.#isPeerEnded || hasExited) && (this.#dataInFlight === 0 || this.#isPeerGone);
    if (hasExited) this.#isPeerEnded = this.#isPeerGone = true;
    return isComplete;
  }

  async close(): Promise<void> {
    this.stop();
    await this.#iomap.close();
    for (const growth of [this.#receiveGrowth, this.#sendGrowth]) await growth.close();
    await this.#queues.close();
  }

  /** Bytes that one message can have now; 0 when the peer or our buffer has no room. */
  #room(): number {
    if (!this.#canSendData || this.#sequence === this.#creditLimit) return 0;
    return Math.min(this.#targets[0]?.length ?? 0, this.#sent.room, MAX_MESSAGE);
  }

  get #canSendData(): boolean {
    return !this.#queues.isStopped && this.#dataInFlight < MAX_DATA;
  }

  /** Bytes that the peer permits us to write now. */
  get #peerRoom(): number {
    return this.#targets.reduce((bytes, { length }) => bytes + length, 0);
  }

  /** Our buffer was smaller than that of the peer. */
  #moveSent(mr: Mr): void {
    this.#sent.moveTo(mr);
    this.#iomap.sendWrites();
    this.#listener.onWritable();
  }

  #postData(data: Uint8Array): void {
    const { addr, rkey, length } = this.#targets[0] as PeerMemory;
    this.#post(Request.DATA, MessageKind.DATA, data.length, { addr, rkey, sge: this.#sent.take(data) });
    this.#dataInFlight++;
    this.#sequence = (this.#sequence + 1) & SEQUENCE_MASK;
    const left = length - data.length;
    if (left > 0) this.#targets[0] = { addr: addr + BigInt(data.length), rkey, length: left };
    else this.#targets.shift();
  }

  #post(
    request: Request,
    kind: MessageKind,
    value: number,
    data?: { readonly addr: bigint; readonly rkey: number; readonly sge: Sge },
  ): void {
    this.#queues.post({
      opcode: 'RDMA_WRITE_WITH_IMM',
      wrId: request,
      immData: immediate(kind, value),
      sgList: data?.sge ?? [],
      remoteAddr: data?.addr ?? 0,
      rkey: data?.rkey ?? 0,
    });
  }

  /** Gives the peer credits, and a half of the ring, when half of either is used. */
  #giveCredits(): void {
    if (this.#peer === undefined || !this.#isStarted || this.#queues.isStopped || this.#isPeerEnded) return;
    const read = this.#received.messagesRead + this.#iomap.taken;
    const withEntry = this.#received.hasFreeHalf && !this.#isEntryInFlight;
    const isDue = withEntry || read - this.#creditsGivenAt >= CREDITS / 2;
    // one is left to CONTROL, so that an end does not wait for credits
    if (!isDue || this.#controlInFlight >= MAX_CONTROL - 1) return;
    this.#creditsGivenAt = read;
    this.#controlInFlight++;
    this.#post(
      Request.CREDITS,
      MessageKind.CREDITS,
      (read + CREDITS) & SEQUENCE_MASK,
      withEntry ? this.#giveHalf(this.#peer) : undefined,
    );
  }

  /** Writes the next free half into the peer's list. */
  #giveHalf({ list, isBigEndian }: ConnectData) {
    const half = this.#received.grant();
    this.#receiveGrowth.used(half.length);
    writeTarget(this.#entry, 0, half, isBigEndian);
    this.#isEntryInFlight = true;
    const addr = list.addr + BigInt(this.#peerIndex * TARGET_BYTES);
    this.#peerIndex = (this.#peerIndex + 1) % list.length;
    return { addr, rkey: list.rkey, sge: this.#queues.own.sge(0, TARGET_BYTES) };
  }

  /** @internal Takes a credit, as the peer has a receive for it. */
  postMapping(index: number, entry: Mapping): boolean {
    if (this.#peer === undefined || !this.#isStarted || !this.#canSendData || this.#sequence === this.#creditLimit)
      return false;
    const { list, isBigEndian } = this.#peer;
    writeMapping(this.#mappingEntry, 0, entry, isBigEndian);
    this.#dataInFlight++;
    this.#sequence = (this.#sequence + 1) & SEQUENCE_MASK;
    const addr = list.addr + BigInt(list.length * TARGET_BYTES + index * MAPPING_BYTES);
    const sge = this.#queues.own.sge(MAPPING_AT, MAPPING_BYTES);
    this.#post(Request.MAPPING, MessageKind.IOMAP, index, { addr, rkey: list.rkey, sge });
    return true;
  }

  /** @internal The peer needs neither a receive nor a credit for that. */
  postMapped({ addr: remoteAddr, rkey }: PeerMemory, data: Uint8Array): number {
    const length = this.#canSendData ? Math.min(this.#sent.room, MAX_MESSAGE, data.length) : 0;
    if (length === 0) return 0;
    const sgList = this.#sent.take(data.subarray(0, length));
    this.#queues.post({ opcode: 'RDMA_WRITE', wrId: Request.MAPPED, sgList, remoteAddr, rkey });
    this.#dataInFlight++;
    return length;
  }

  #sendWaiting(): void {
    while (this.#waiting.length > 0 && this.#controlInFlight < MAX_CONTROL && !this.#queues.isStopped) {
      this.#controlInFlight++;
      this.#post(Request.CONTROL, MessageKind.CONTROL, this.#waiting.shift() as Control);
    }
  }

  #onCompletion(wc: Wc): void {
    if (wc.opcode === WcOpcode.RECV_RDMA_WITH_IMM || wc.opcode === WcOpcode.RECV) this.#onMessage(wc);
    else this.#onSent(wc.wrId);
  }

  #onSent(request: Request): void {
    if (request === Request.DATA || request === Request.MAPPED) {
      this.#sent.release();
      this.#dataInFlight--;
      if (request === Request.MAPPED) this.#iomap.onWriteSent();
      this.#iomap.sendWrites();
    } else if (request === Request.MAPPING) {
      this.#dataInFlight--;
      this.#iomap.onMappingSent();
    } else {
      this.#controlInFlight--;
      if (request === Request.CREDITS) this.#isEntryInFlight = false;
      this.#sendWaiting();
      this.#giveCredits();
    }
    this.#listener.onWritable();
  }

  #onMessage({ opcode, immData, byteLen }: Wc): void {
    if (opcode === WcOpcode.RECV) throw broken(`it sent a message of ${byteLen} bytes by SEND`);
    this.#queues.postReceive(EMPTY_RECEIVE);
    const kind = messageKind(immData);
    const value = messageValue(immData);
    if (kind === MessageKind.DATA) this.#onData(value);
    else if (kind === MessageKind.CREDITS) this.#onCredits(value & SEQUENCE_MASK, byteLen > 0);
    else if (kind === MessageKind.IOMAP) this.#onMapping(value, byteLen);
    else if (kind === MessageKind.CONTROL && value in Control) this.#onControl(value);
    else throw broken(`it sent a message of kind ${kind}, value ${value}`);
  }

  #onData(bytes: number): void {
    if (this.#isPeerEnded) throw broken(`it sent ${bytes} bytes after its end`);
    const { open } = this.#received;
    if (bytes > open) throw broken(`it sent ${bytes} bytes where it may write ${open}`);
    if (this.#received.messagesUnread === CREDITS)
      throw broken(`it sent more than ${CREDITS} messages without credits`);
    this.#received.add(bytes);
    this.#listener.onReadable();
  }

  /** The entry is whole now, which it need not be before, and no other takes its place before we have filled it. */
  #onCredits(limit: number, hasEntry: boolean): void {
    this.#creditLimit = limit;
    this.#iomap.sendMappings();
    if (hasEntry) {
      if (this.#targets.length === TARGETS) throw broken(`it gave more than ${TARGETS} parts of its buffer at once`);
      const target = readTarget(this.#list, this.#ownIndex * TARGET_BYTES);
      if (target.length === 0) throw broken('it gave 0 bytes of its buffer');
      this.#targets.push(target);
      this.#ownIndex = (this.#ownIndex + 1) % TARGETS;
    }
    this.#listener.onWritable();
  }

  /** Counts as a message that was read: the peer has taken a credit for it. */
  #onMapping(index: number, bytes: number): void {
    this.#iomap.onMapping(index, bytes);
    this.#giveCredits();
  }

  #onControl(control: Control): void {
    this.#isPeerEnded = true;
    if (control === Control.DISCONNECT) this.#isPeerGone = true;
    this.#listener.onReadable();
  }
}

function viewOf(buffer: Buffer, bytes: number): DataView {
  return new DataView(buffer.buffer, buffer.byteOffset, bytes);
}

/** Bytes of the target list and of the table that follows it. */
const listBytes = (mappings: number) => TARGETS * TARGET_BYTES + mappings * MAPPING_BYTES;

/**
 * Rsockets, as of librdmacm. They use neither READs nor atomics.
 * @param iomapSize entries of the table in which the peer maps memory
 */
export const rsocketProtocol = (iomapSize: number): Protocol => ({
  connParam: { responderResources: 0, initiatorDepth: 0, flowControl: true },
  bufferBytes: { usual: { bytes: 262_144, maxBytes: 2 ** 20 }, min: 4096, max: 2 ** 28, unit: 2 },
  hasHalfClose: true,
  open: (device, sizes, listener) => RsocketTransport.open(device, sizes, iomapSize, listener),
});
