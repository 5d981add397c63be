/** The queue pair of a datagram socket, with the buffers that messages leave from and arrive in. */
import {
  type AsyncEvent,
  CompletionPump,
  type Cq,
  type Device,
  GRH_BYTES,
  type Mr,
  type Pd,
  type Qp,
  readGrh,
  throwIfFailed,
  VerbsError,
  type Wc,
} from '../../../index.js';
import { type Destination, Peers } from './peers.js';
import { MESSAGE_BYTES, QKEY } from './wire.js';

/** Bytes of a receive buffer. */
const RECEIVE_BYTES = GRH_BYTES + MESSAGE_BYTES;
/** Messages in flight. */
const SENDS = 64;

/** Called when the message has left, or cannot leave. */
export type Done = (error?: Error) => void;

interface Sending {
  readonly to: Destination;
  readonly header: Uint8Array;
  readonly message: Uint8Array;
  readonly done: Done;
}

/** What the queue pair tells the socket. */
export interface QueuesListener {
  /** @param from IP address of the sender @param bytes a message with its header, valid during the call */
  onMessage(from: string, bytes: Buffer): void;
  /** The queue pair or the device has failed. Called once. */
  onFailure(error: Error): void;
}

export class DatagramQueues {
  /** The queue pairs of peers. */
  readonly peers: Peers;
  readonly #pd: Pd;
  readonly #qp: Qp;
  readonly #cq: Cq;
  readonly #received: Mr;
  readonly #sent: Mr;
  readonly #listener: QueuesListener;
  /** Send buffers that are free, and what is in those that are not. */
  readonly #free = Array.from({ length: SENDS }, (_, slot) => slot);
  readonly #inFlight: (Sending | undefined)[] = [];
  readonly #waiting: Sending[] = [];
  #waitingBytes = 0;
  #isStopped = false;

  private constructor(qp: Qp, received: Mr, sent: Mr, listener: QueuesListener) {
    this.peers = new Peers(qp.pd);
    this.#pd = qp.pd;
    this.#qp = qp;
    this.#cq = qp.recvCq;
    this.#received = received;
    this.#sent = sent;
    this.#listener = listener;
    for (let slot = 0; slot < received.length / RECEIVE_BYTES; slot++) this.#postReceive(slot);
    new CompletionPump(this.#cq, (wc) => this.#take(wc));
    qp.device.on('event', this.#onEvent);
  }

  /** @param receives messages that may arrive at once @throws VerbsError ENOMEM; nothing is left allocated then */
  static async open(device: Device, receives: number, listener: QueuesListener): Promise<DatagramQueues> {
    const opened: { close(): Promise<void> }[] = [];
    const keep = <T extends { close(): Promise<void> }>(resource: T): T => {
      opened.unshift(resource);
      return resource;
    };
    try {
      const pd = keep(await device.allocPd());
      const cq = keep(await device.createCq({ cqe: receives + SENDS }));
      const received = keep(await pd.regMr(receives * RECEIVE_BYTES));
      const sent = keep(await pd.regMr(SENDS * MESSAGE_BYTES));
      const sizes = { maxSendWr: SENDS, maxRecvWr: receives, maxSendSge: 1, maxRecvSge: 1 };
      const qp = keep(await pd.createQp({ type: 'UD', sendCq: cq, ...sizes }));
      await qp.activate({ qkey: QKEY });
      return new DatagramQueues(qp, received, sent, listener);
    } catch (error) {
      for (const resource of opened) await resource.close();
      throw error;
    }
  }

  /** Queue pair number. */
  get qpNum(): number {
    return this.#qp.qpNum;
  }

  /** Messages that wait for a buffer, and their bytes. */
  get waiting(): { readonly count: number; readonly bytes: number } {
    return { count: this.#waiting.length, bytes: this.#waitingBytes };
  }

  /** Sends a message, which must not change before `done` is called. */
  send(to: Destination, header: Uint8Array, message: Uint8Array, done: Done): void {
    const sending = { to, header, message, done };
    if (this.#free.length > 0) {
      this.#post(sending);
      return;
    }
    this.#waiting.push(sending);
    this.#waitingBytes += message.length;
  }

  /** Frees everything. Messages in flight may be lost. */
  async close(): Promise<void> {
    this.#isStopped = true;
    this.#qp.device.off('event', this.#onEvent);
    await this.#qp.close();
    this.peers.close();
    for (const resource of [this.#sent, this.#received, this.#cq, this.#pd]) await resource.close();
    for (const sending of [...this.#inFlight, ...this.#waiting]) sending?.done();
  }

  readonly #onEvent = (event: AsyncEvent): void => {
    if (event.type === 'DEVICE_FATAL') this.#fail(new VerbsError('EIO', event.reason));
  };

  #post(sending: Sending): void {
    const { to, header, message, done } = sending;
    const slot = this.#free.pop() as number;
    const at = slot * MESSAGE_BYTES;
    this.#sent.buffer.set(header, at);
    this.#sent.buffer.set(message, at + header.length);
    try {
      const sgList = this.#sent.slice(at, header.length + message.length);
      const { ah, qpNum: remoteQpn } = to;
      this.#qp.postSend({ opcode: 'SEND', wrId: slot, signaled: true, sgList, ah, remoteQpn, remoteQkey: QKEY });
      this.#inFlight[slot] = sending;
    } catch (error) {
      this.#free.push(slot);
      process.nextTick(done, error);
    }
  }

  #take(wc: Wc): void {
    if (this.#isStopped) return;
    try {
      throwIfFailed(wc);
    } catch (error) {
      this.#fail(error as Error);
      return;
    }
    if (wc.opcodeName === 'RECV') this.#onReceived(wc.wrId, wc.byteLen);
    else this.#onSent(wc.wrId);
  }

  #onReceived(slot: number, byteLen: number): void {
    const at = slot * RECEIVE_BYTES;
    const bytes = this.#received.buffer.subarray(at, at + byteLen);
    try {
      this.#listener.onMessage(readGrh(bytes).source, bytes.subarray(GRH_BYTES));
    } finally {
      if (!this.#isStopped) this.#postReceive(slot);
    }
  }

  #onSent(slot: number): void {
    const sending = this.#inFlight[slot];
    this.#inFlight[slot] = undefined;
    this.#free.push(slot);
    const next = this.#waiting.shift();
    if (next !== undefined) {
      this.#waitingBytes -= next.message.length;
      this.#post(next);
    }
    sending?.done();
  }

  #postReceive(slot: number): void {
    this.#qp.postRecv({ wrId: slot, sgList: this.#received.slice(slot * RECEIVE_BYTES, RECEIVE_BYTES) });
  }

  #fail(error: Error): void {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#listener.onFailure(error);
  }
}
