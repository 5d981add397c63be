/**
 * The protocol of Valkey Over RDMA on one queue pair: each end announces a buffer, which the other one fills from start
 * to end by RDMA WRITE with immediate, whose 32 bits are the number of bytes. When a buffer was filled and read, its
 * owner announces it again. The stream in it is RESP, which this end does not look at.
 *
 * Source: the documentation of Valkey, "RDMA experimental support".
 */
import { clearInterval, setInterval } from '../../base/timers.js';
import { type Device, type Pd, type Qp, type QpOptions, type Wc, WcOpcode } from '../../index.js';
import {
  type BufferSizes,
  CHUNK_BYTES,
  type Protocol,
  type Transport,
  type TransportListener,
} from '../../sockets/protocol.js';
import type { PeerMemory } from '../../transport/peermemory.js';
import type { ChunkQueue } from '../../transport/pools/chunkqueue.js';
import { Queues } from './queues.js';
import { ReceiveBuffer } from './receivebuffer.js';
import { SendRing } from './sendring.js';
import { UnansweredLimit } from './unansweredlimit.js';
import { broken, decodeMessage, encodeMessage, MESSAGE_BYTES, type Message, Opcode } from './wire.js';

/** Messages that the peer may send before we have taken them; Valkey has as many receives. */
const RECEIVES = 1024;
/** Our own WRITEs in flight, and messages. */
const MAX_DATA = 256;
const MAX_MESSAGES = 16;
/** Messages of ours that may wait when the peer asks: one that asks on takes no answers. */
const MAX_WAITING = 64;
/** Most bytes of one WRITE. */
const MAX_WRITE = 65_536;
/** Time between keep-alives of a server (ms), as in Valkey. */
const KEEPALIVE_MS = 3000;
/** RNR retries without end (IBTA: RNR retry count 7). */
const FOR_EVER = 7;

/** The `wrId` of our work requests; receives have the number of their slot. */
enum Request {
  DATA,
  MESSAGE,
}

class ValkeyTransport implements Transport {
  readonly #isServer: boolean;
  readonly #queues: Queues;
  readonly #listener: TransportListener;
  readonly #received: ReceiveBuffer;
  readonly #sent: SendRing;
  /** Present while the peer permits no RNR retry. */
  #limit: UnansweredLimit | undefined;
  #qp: Qp | undefined;
  /** The peer's buffer, and the bytes of it that we have written. */
  #target: PeerMemory | undefined;
  #offset = 0;
  #dataInFlight = 0;
  /** Slots of messages that are not in flight, and messages that wait for one. */
  readonly #freeSlots = Array.from({ length: MAX_MESSAGES }, (_, slot) => slot);
  readonly #slotsInFlight: number[] = [];
  readonly #waiting: Message[] = [];
  #keepaliveTimer: NodeJS.Timeout | undefined;
  #isPeerGone = false;

  private constructor(isServer: boolean, queues: Queues, listener: TransportListener) {
    this.#isServer = isServer;
    this.#queues = queues;
    this.#listener = listener;
    this.#received = new ReceiveBuffer(queues.shared);
    this.#sent = new SendRing(queues.own, MESSAGES_BYTES);
    queues.deliver((wc) => this.#onCompletion(wc));
  }

  static async open(
    isServer: boolean,
    device: Device,
    { receive, send }: BufferSizes,
    listener: TransportListener,
  ): Promise<ValkeyTransport> {
    const sizes = {
      cqe: RECEIVES + MAX_DATA + MAX_MESSAGES,
      sharedBytes: receive.bytes,
      ownBytes: MESSAGES_BYTES + send.bytes,
    };
    const queues = await Queues.open(device, sizes, (error) => listener.onFailure(error));
    return new ValkeyTransport(isServer, queues, listener);
  }

  get pd(): Pd {
    return this.#queues.pd;
  }

  get qpOptions(): Omit<QpOptions, 'type'> {
    return {
      sendCq: this.#queues.cq,
      maxSendWr: MAX_DATA + MAX_MESSAGES,
      maxRecvWr: RECEIVES,
      maxSendSge: 1,
      maxRecvSge: 1,
      maxInlineData: 0,
    };
  }

  get privateData(): Uint8Array {
    return new Uint8Array(0);
  }

  async use(qp: Qp): Promise<void> {
    this.#qp = qp;
    this.#queues.completions.use(qp);
    for (let slot = 0; slot < RECEIVES; slot++) this.#postReceive(slot);
  }

  /** The protocol has no private data: nothing shows that the peer speaks it. */
  onPeerData(): void {}

  start(): void {
    if (this.#qp !== undefined && this.#qp.query().rnrRetry < FOR_EVER)
      this.#limit = new UnansweredLimit(() => this.#listener.onWritable());
    this.#register();
    if (!this.#isServer) return;
    this.#keepaliveTimer = setInterval(() => this.#say({ opcode: Opcode.KEEPALIVE }), KEEPALIVE_MS).unref();
  }

  get hasData(): boolean {
    return this.#received.filled > 0;
  }

  get isPeerEnded(): boolean {
    return this.#isPeerGone;
  }

  get isPeerGone(): boolean {
    return this.#isPeerGone;
  }

  get isIdle(): boolean {
    return this.#dataInFlight === 0 && this.#slotsInFlight.length === 0 && this.#waiting.length === 0;
  }

  read(): Buffer {
    const data = this.#received.read(CHUNK_BYTES);
    if (this.#received.isUsedUp) this.#register();
    return data;
  }

  readInto(memory: Uint8Array): number {
    const bytes = this.#received.readInto(memory);
    if (this.#received.isUsedUp) this.#register();
    return bytes;
  }

  write(unsent: ChunkQueue): void {
    while (unsent.bytes > 0) {
      const room = this.#room();
      if (room === 0) return;
      this.#postData(unsent.take(room));
    }
  }

  /** An end is a disconnect. */
  end(): void {}

  /** The peer says its end in no other way, so it has written all. */
  disconnected(): boolean {
    this.#queues.drain();
    this.stop();
    this.#isPeerGone = true;
    return true;
  }

  stop(): void {
    clearInterval(this.#keepaliveTimer);
    this.#limit?.stop();
    this.#queues.completions.stop();
  }

  close(): Promise<void> {
    this.stop();
    return this.#queues.close();
  }

  /** Bytes that one WRITE can have now; 0 when the peer or our buffer has no room. */
  #room(): number {
    if (this.#target === undefined || this.#queues.completions.isStopped || this.#dataInFlight >= MAX_DATA) return 0;
    const bytes = Math.min(this.#target.length - this.#offset, this.#sent.room, MAX_WRITE);
    return bytes > 0 && this.#limit?.canSend() !== false ? bytes : 0;
  }

  #postData(data: Uint8Array): void {
    const { addr, rkey } = this.#target as PeerMemory;
    this.#queues.completions.post({
      opcode: 'RDMA_WRITE_WITH_IMM',
      wrId: Request.DATA,
      immData: data.length,
      sgList: this.#sent.take(data),
      remoteAddr: addr + BigInt(this.#offset),
      rkey,
    });
    this.#offset += data.length;
    this.#dataInFlight++;
    this.#limit?.sent();
  }

  /** Announces our buffer from its start. */
  #register(): void {
    const { iova, rkey, length } = this.#queues.shared;
    this.#received.reset();
    this.#say({ opcode: Opcode.REGISTER_XFER_MEMORY, memory: { addr: BigInt(iova), length, rkey } });
  }

  #say(message: Message): void {
    if (this.#queues.completions.isStopped) return;
    // keep-alives and announcements that have not left say as much as further ones
    if (message.opcode === Opcode.KEEPALIVE && this.#freeSlots.length === 0) return;
    if (message.opcode === Opcode.REGISTER_XFER_MEMORY && this.#waiting.some(({ opcode }) => opcode === message.opcode))
      return;
    this.#waiting.push(message);
    this.#sendWaiting();
  }

  #sendWaiting(): void {
    while (this.#waiting.length > 0 && this.#freeSlots.length > 0) {
      const slot = this.#freeSlots.shift() as number;
      this.#queues.own.buffer.set(encodeMessage(this.#waiting.shift() as Message), slot * MESSAGE_BYTES);
      this.#slotsInFlight.push(slot);
      const sgList = this.#queues.own.sge(slot * MESSAGE_BYTES, MESSAGE_BYTES);
      this.#queues.completions.post({ opcode: 'SEND', wrId: Request.MESSAGE, sgList });
      this.#limit?.sent();
    }
  }

  #postReceive(slot: number): void {
    const sgList = this.#queues.own.sge((MAX_MESSAGES + slot) * MESSAGE_BYTES, MESSAGE_BYTES);
    this.#queues.completions.postReceive({ wrId: slot, sgList });
  }

  #onCompletion({ opcode, wrId, immData, byteLen }: Wc): void {
    if (opcode === WcOpcode.RECV_RDMA_WITH_IMM || opcode === WcOpcode.RECV) {
      this.#limit?.heard();
      if (opcode === WcOpcode.RECV) this.#onMessage(wrId, byteLen);
      else this.#onData(immData);
      this.#postReceive(wrId);
      return;
    }
    if (wrId === Request.DATA) {
      this.#sent.release();
      this.#dataInFlight--;
    } else {
      this.#freeSlots.push(this.#slotsInFlight.shift() as number);
      this.#sendWaiting();
    }
    this.#listener.onWritable();
  }

  #onData(bytes: number): void {
    const { open } = this.#received;
    if (bytes > open) throw broken(`it sent ${bytes} bytes where it may write ${open}`);
    this.#received.add(bytes);
    this.#listener.onReadable();
  }

  #onMessage(slot: number, bytes: number): void {
    const at = (MAX_MESSAGES + slot) * MESSAGE_BYTES;
    const message = decodeMessage(this.#queues.own.buffer.subarray(at, at + bytes));
    if (message.opcode === Opcode.REGISTER_XFER_MEMORY) this.#onRegister(message.memory);
    else if (message.opcode === Opcode.GET_SERVER_FEATURE) {
      if (!this.#isServer) throw broken('the server asked for the features of a server');
      if (this.#waiting.length >= MAX_WAITING) throw broken('it asks, and takes no answers');
      // there are none yet
      this.#say({ ...message, features: 0n });
    } else if (message.opcode === Opcode.SET_CLIENT_FEATURE && !this.#isServer)
      throw broken('the server set the features of a client');
  }

  #onRegister(memory: PeerMemory): void {
    if (memory.length === 0) throw broken('its buffer has 0 bytes');
    if (this.#target !== undefined && this.#offset < this.#target.length)
      throw broken(`it gave its buffer again when ${this.#target.length - this.#offset} bytes of it were left`);
    this.#target = memory;
    this.#offset = 0;
    this.#listener.onWritable();
  }
}

/** Bytes of the messages that leave, and of those that come. */
const MESSAGES_BYTES = (MAX_MESSAGES + RECEIVES) * MESSAGE_BYTES;

/** Bytes that a connection takes of the device's memory beside its buffers, about. */
const QUEUE_BYTES = 262_144;

const BUFFER = { bytes: 2 ** 20, maxBytes: 2 ** 20 };

const SHARED = {
  // as Valkey does, for servers that reject others
  connParam: { responderResources: 1, initiatorDepth: 1, rnrRetry: FOR_EVER },
  bufferBytes: { usual: BUFFER, min: 65_536, max: 2 ** 24, unit: 1 },
  connectionBytes: ({ receive, send }: BufferSizes) => receive.bytes + send.bytes + QUEUE_BYTES,
  hasHalfClose: false,
} as const;

/** Valkey Over RDMA at the end that connects. */
export const VALKEY_CLIENT: Protocol = {
  ...SHARED,
  open: (...args) => ValkeyTransport.open(false, ...args),
};

/** Valkey Over RDMA at the end that listens. */
export const VALKEY_SERVER: Protocol = {
  ...SHARED,
  open: (...args) => ValkeyTransport.open(true, ...args),
};
