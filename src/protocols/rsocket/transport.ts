/**
 * The protocol of rsockets on one queue pair: a stream of bytes in both directions, by RDMA WRITE with immediate into
 * the memory of the reader.
 *
 * Two things limit a writer: the pieces of the peer's memory that it may write, and credits, one for each message, so
 * that the peer's receives last. The reader gives another piece when one is filled, and credits when half are used.
 */
import { Scope } from '../../base/scope.js';
import { type Device, type Mr, type Pd, type Qp, type QpOptions, type Sge, type Wc, WcOpcode } from '../../index.js';
import {
  type BufferSizes,
  CHUNK_BYTES,
  type Protocol,
  type Transport,
  type TransportListener,
} from '../../sockets/protocol.js';
import { Completions } from '../../transport/completions.js';
import type { PeerMemory } from '../../transport/peermemory.js';
import type { ChunkQueue } from '../../transport/pools/chunkqueue.js';
import { PooledQueues } from '../../transport/pools/pooledqueues.js';
import { ReceivePools } from '../../transport/pools/receivepool.js';
import type { SendBuffer } from '../../transport/pools/sendpool.js';
import { SendWindow } from '../../transport/pools/sendwindow.js';
import { GrantedMemory } from './grantedmemory.js';
import { Iomap, type IomapTransport } from './iomap.js';
import { ReceiveBuffer } from './receivebuffer.js';
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

/** Messages with data that the peer may send before we give further credits. */
const CREDITS = 384;
/** Messages with data of ours in flight. Data that is written meanwhile leaves in fewer, longer messages. */
const MAX_DATA = 60;
/** Messages of ours without data in flight. The stock implementation has as many. */
const MAX_CONTROL = 4;
/** Messages that a peer may have in flight: those with data, and more others than the stock implementation has. */
const RECEIVES = CREDITS + 16;
/** The most bytes of one message: the stock implementation writes no more. */
const MAX_MESSAGE = 65_536;
/** Sequence numbers have 16 bits. */
const SEQUENCE_MASK = 0xffff;

/** Bytes of the receive buffer, and of what is sent and not acknowledged, when the connection moves much data. */
const BUSY_BYTES = 2 ** 20;
/** Bytes that a connection takes of the device's memory beside its receive buffer: its queue pair and completions. */
const QUEUE_BYTES = 16_384;

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

/** An entry of one of the peer's lists, until it is posted. */
const entry = Buffer.alloc(MAPPING_BYTES);
const entryView = new DataView(entry.buffer, entry.byteOffset, MAPPING_BYTES);

/** The receives of all connections of a device: the bytes of their messages go elsewhere. */
const receivesByDevice = new WeakMap<Device, ReceivePools>();

/** The parts of a connection on its device. */
interface Resources {
  readonly scope: Scope;
  readonly pd: Pd;
  /** The target list, the table of the peer's mapped memory, and the first pieces of the receive buffer. */
  readonly shared: Mr;
  readonly queues: PooledQueues;
}

export class RsocketTransport implements Transport, IomapTransport {
  readonly #resources: Resources;
  readonly #completions: Completions;
  /** Our target list, which the peer writes. */
  readonly #list: DataView;
  readonly #iomap: Iomap;
  readonly #memory: GrantedMemory;
  readonly #received: ReceiveBuffer;
  readonly #sent: SendWindow;
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
  /** Control messages that wait for their turn. */
  readonly #waiting: Control[] = [];
  #isPeerEnded = false;
  #isPeerGone = false;

  private constructor(resources: Resources, iomapSize: number, sizes: BufferSizes, listener: TransportListener) {
    const { shared, queues } = resources;
    this.#resources = resources;
    this.#listener = listener;
    this.#completions = new Completions(
      (wc) => this.#onCompletion(wc),
      (error) => listener.onFailure(error),
    );
    const { buffer } = shared;
    this.#list = new DataView(buffer.buffer, buffer.byteOffset, TARGETS * TARGET_BYTES);
    const piecesAt = listBytes(iomapSize);
    this.#iomap = new Iomap(this, buffer.subarray(TARGETS * TARGET_BYTES, piecesAt));
    this.#memory = new GrantedMemory(shared, piecesAt, sizes.receive);
    this.#received = new ReceiveBuffer(this.#memory);
    this.#sent = new SendWindow(queues.sendPool, sizes.send.maxBytes, () => this.#onRoom());
  }

  /** @throws VerbsError ENOMEM; nothing is left allocated then */
  static open(
    device: Device,
    sizes: BufferSizes,
    iomapSize: number,
    listener: TransportListener,
  ): Promise<RsocketTransport> {
    return Scope.open(async (scope) => {
      const pd = scope.add(await device.allocPd());
      const pools = receivesByDevice.get(device) ?? new ReceivePools(device, { isKept: true });
      receivesByDevice.set(device, pools);
      const queues = scope.add(await PooledQueues.join(device, pools, 0, RECEIVES));
      const bytes = listBytes(iomapSize) + sizes.receive.bytes;
      const shared = scope.add(await pd.regMr(bytes, { access: ['localWrite', 'remoteWrite'] }));
      return new RsocketTransport({ scope, pd, shared, queues }, iomapSize, sizes, listener);
    });
  }

  /** Protection domain for the queue pair. */
  get pd(): Pd {
    return this.#resources.pd;
  }

  /** Options for the queue pair. */
  get qpOptions(): Omit<QpOptions, 'type'> {
    return {
      ...this.#resources.queues.qpOptions,
      maxSendWr: MAX_DATA + MAX_CONTROL,
      maxSendSge: 1,
      maxInlineData: MAPPING_BYTES,
    };
  }

  /** Private data for the peer. */
  get privateData(): Uint8Array {
    const { iova, rkey } = this.#resources.shared;
    return encodeConnectData({
      isBigEndian: false,
      credits: CREDITS,
      list: { addr: BigInt(iova), rkey, length: TARGETS },
      buffer: this.#received.first,
      mappings: this.#iomap.size,
    });
  }

  async use(qp: Qp): Promise<void> {
    const { queues } = this.#resources;
    this.#completions.use(qp);
    await queues.attach(qp, this.#completions.take, (wc) => this.#onReceived(wc));
    queues.receives.addBuffers();
  }

  /** The peer's private data is known: its first piece can be written as soon as the connection is established. */
  onPeerData(privateData: Uint8Array): void {
    const peer = decodeConnectData(privateData);
    this.#peer = peer;
    this.#targets.push(peer.buffer);
    this.#creditLimit = peer.credits;
  }

  /** The connection is established: the peer gets a second piece. */
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

  readInto(memory: Uint8Array): number {
    const bytes = this.#received.readInto(memory);
    this.#giveCredits();
    return bytes;
  }

  write(unsent: ChunkQueue): void {
    this.#iomap.sendMappings();
    while (unsent.bytes > 0) {
      const room = this.#room();
      if (room === 0) break;
      const buffer = this.#memoryFor(Math.min(room, unsent.bytes));
      if (buffer === undefined) break;
      this.#postData(buffer, unsent.take(Math.min(room, buffer.bytes.length)));
    }
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
    this.#completions.stop();
    this.#iomap.end();
  }

  /**
   * Both ends say that they write no more before they disconnect: something was lost otherwise. The end of a process
   * says it, too.
   */
  disconnected(hasExited: boolean): boolean {
    this.#resources.queues.drain();
    this.stop();
    const isComplete = (this.#isPeerEnded || hasExited) && (this.#dataInFlight === 0 || this.#isPeerGone);
    if (hasExited) this.#isPeerEnded = this.#isPeerGone = true;
    return isComplete;
  }

  async close(): Promise<void> {
    this.stop();
    this.#resources.queues.drain();
    this.#sent.close();
    await this.#iomap.close();
    await this.#memory.close();
    await this.#resources.scope.close();
  }

  /** Bytes that one message can have now; 0 when the peer or our buffer has no room. */
  #room(): number {
    if (!this.#canSendData || this.#sequence === this.#creditLimit) return 0;
    return Math.min(this.#targets[0]?.length ?? 0, this.#sent.room, MAX_MESSAGE);
  }

  /** As `SendWindow.take`. That there is none for this connection alone is its failure, whoever calls. */
  #memoryFor(bytes: number): SendBuffer | undefined {
    let buffer: SendBuffer | undefined;
    this.#completions.attempt(() => {
      buffer = this.#sent.take(bytes);
    });
    return buffer;
  }

  get #canSendData(): boolean {
    return !this.#completions.isStopped && this.#dataInFlight < MAX_DATA;
  }

  /** More can be sent. */
  #onRoom(): void {
    this.#iomap.sendWrites();
    this.#listener.onWritable();
  }

  #postData(buffer: SendBuffer, data: Uint8Array): void {
    const { addr, rkey, length } = this.#targets[0] as PeerMemory;
    this.#post(Request.DATA, MessageKind.DATA, data.length, { addr, rkey, from: this.#sent.fill(buffer, data) });
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
    data?: { readonly addr: bigint; readonly rkey: number; readonly from: Sge | Uint8Array },
  ): void {
    this.#completions.post({
      opcode: 'RDMA_WRITE_WITH_IMM',
      wrId: request,
      immData: immediate(kind, value),
      sgList: data?.from ?? [],
      remoteAddr: data?.addr ?? 0,
      rkey: data?.rkey ?? 0,
    });
  }

  /** Gives the peer credits when half of them are used, and a piece of the receive buffer when it has but one. */
  #giveCredits(): void {
    if (this.#peer === undefined || !this.#isStarted || this.#completions.isStopped || this.#isPeerEnded) return;
    // one is left to CONTROL, so that an end does not wait for credits
    if (this.#controlInFlight >= MAX_CONTROL - 1) return;
    const read = this.#received.messagesRead + this.#iomap.taken;
    const piece = this.#received.canGrant ? this.#received.grant() : undefined;
    if (piece === undefined && read - this.#creditsGivenAt < CREDITS / 2) return;
    this.#creditsGivenAt = read;
    this.#controlInFlight++;
    const limit = (read + CREDITS) & SEQUENCE_MASK;
    const data = piece === undefined ? undefined : this.#targetEntry(this.#peer, piece);
    this.#post(Request.CREDITS, MessageKind.CREDITS, limit, data);
  }

  /** Returns what writes a piece into the next entry of the peer's list. */
  #targetEntry({ list, isBigEndian }: ConnectData, piece: PeerMemory) {
    writeTarget(entryView, 0, piece, isBigEndian);
    const addr = list.addr + BigInt(this.#peerIndex * TARGET_BYTES);
    this.#peerIndex = (this.#peerIndex + 1) % list.length;
    return { addr, rkey: list.rkey, from: entry.subarray(0, TARGET_BYTES) };
  }

  /** @internal Takes a credit, as the peer has a receive for it. */
  postMapping(index: number, mapping: Mapping): boolean {
    if (this.#peer === undefined || !this.#isStarted || !this.#canSendData || this.#sequence === this.#creditLimit)
      return false;
    const { list, isBigEndian } = this.#peer;
    writeMapping(entryView, 0, mapping, isBigEndian);
    this.#dataInFlight++;
    this.#sequence = (this.#sequence + 1) & SEQUENCE_MASK;
    const addr = list.addr + BigInt(list.length * TARGET_BYTES + index * MAPPING_BYTES);
    this.#post(Request.MAPPING, MessageKind.IOMAP, index, { addr, rkey: list.rkey, from: entry });
    return true;
  }

  /** @internal The peer needs neither a receive nor a credit for that. */
  postMapped({ addr: remoteAddr, rkey }: PeerMemory, data: Uint8Array): number {
    const room = this.#canSendData ? Math.min(this.#sent.room, MAX_MESSAGE, data.length) : 0;
    const buffer = room > 0 ? this.#memoryFor(room) : undefined;
    if (buffer === undefined) return 0;
    const length = Math.min(room, buffer.bytes.length);
    const sgList = this.#sent.fill(buffer, data.subarray(0, length));
    this.#completions.post({ opcode: 'RDMA_WRITE', wrId: Request.MAPPED, sgList, remoteAddr, rkey });
    this.#dataInFlight++;
    return length;
  }

  #sendWaiting(): void {
    while (this.#waiting.length > 0 && this.#controlInFlight < MAX_CONTROL && !this.#completions.isStopped) {
      this.#controlInFlight++;
      this.#post(Request.CONTROL, MessageKind.CONTROL, this.#waiting.shift() as Control);
    }
  }

  #onCompletion(wc: Wc): void {
    if (wc.opcode === WcOpcode.RECV_RDMA_WITH_IMM || wc.opcode === WcOpcode.RECV) this.#onMessage(wc);
    else this.#onSent(wc.wrId);
  }

  /** The receive is posted again before the peer can hear of the message. */
  #onReceived(wc: Wc): void {
    try {
      this.#resources.queues.receives.discard(wc);
    } catch (error) {
      this.#completions.fail(error as Error);
    }
    this.#completions.take(wc);
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
      this.#sendWaiting();
      this.#giveCredits();
    }
    this.#listener.onWritable();
  }

  #onMessage({ opcode, immData, byteLen }: Wc): void {
    if (opcode === WcOpcode.RECV) throw broken(`it sent a message of ${byteLen} bytes by SEND`);
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
    this.#giveCredits();
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

/** Bytes of the target list and of the table that follows it. */
const listBytes = (mappings: number) => TARGETS * TARGET_BYTES + mappings * MAPPING_BYTES;

/** Bytes of the first two pieces of the receive buffer: with the target list, two pages. */
const FIRST_BYTES = 2 * 4096 - listBytes(0);

/**
 * Rsockets, as of librdmacm. They use neither READs nor atomics.
 * @param iomapSize entries of the table in which the peer maps memory
 */
export const rsocketProtocol = (iomapSize: number): Protocol => ({
  connParam: { responderResources: 0, initiatorDepth: 0, flowControl: true },
  bufferBytes: { usual: { bytes: FIRST_BYTES, maxBytes: BUSY_BYTES }, min: 4096, max: 2 ** 28, unit: 2 },
  connectionBytes: ({ receive }) => receive.bytes + QUEUE_BYTES,
  hasHalfClose: true,
  open: (device, sizes, listener) => RsocketTransport.open(device, sizes, iomapSize, listener),
});
