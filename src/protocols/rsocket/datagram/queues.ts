/** The queue pair of a datagram socket, with the buffers that messages leave from and arrive in. */
import { Scope } from '../../../base/scope.js';
import { callProgram } from '../../../base/uncaught.js';
import { type AsyncEvent, type Device, GRH_BYTES, type Qp, readGrh, VerbsError, type Wc } from '../../../index.js';
import { Queues } from '../../../transport/queues.js';
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

/** The socket, as its queue pair sees it. */
export interface QueuesListener {
  /** @param from IP address of the sender @param bytes a message with its header, valid during the call */
  onMessage(from: string, bytes: Buffer): void;
  /** The queue pair or the device has failed. Called once. */
  onFailure(error: Error): void;
}

export class DatagramQueues {
  /** The queue pairs of peers. */
  readonly peers: Peers;
  readonly #device: Device;
  readonly #queues: Queues;
  readonly #qp: Qp;
  readonly #listener: QueuesListener;
  /** Send buffers that are free, and what is in those that are not. */
  readonly #free = Array.from({ length: SENDS }, (_, slot) => slot);
  readonly #inFlight: (Sending | undefined)[] = [];
  readonly #waiting: Sending[] = [];
  #waitingBytes = 0;

  private constructor(device: Device, queues: Queues, qp: Qp, listener: QueuesListener) {
    this.peers = new Peers(queues.pd);
    this.#device = device;
    this.#queues = queues;
    this.#qp = qp;
    queues.use(qp);
    this.#listener = listener;
    for (let slot = 0; slot < queues.shared.length / RECEIVE_BYTES; slot++) this.#postReceive(slot);
    queues.deliver((wc) => this.#onCompletion(wc));
    device.on('event', this.#onEvent);
  }

  /** @param receives receive buffers @throws VerbsError ENOMEM; nothing is left allocated then */
  static open(device: Device, receives: number, listener: QueuesListener): Promise<DatagramQueues> {
    const bytes = { sharedBytes: receives * RECEIVE_BYTES, ownBytes: SENDS * MESSAGE_BYTES };
    const sizes = { cqe: receives + SENDS, ...bytes, isRemote: false };
    return Scope.open(async (scope) => {
      const queues = scope.add(await Queues.open(device, sizes, (error) => listener.onFailure(error)));
      const { pd, cq: sendCq } = queues;
      const depths = { maxSendWr: SENDS, maxRecvWr: receives, maxSendSge: 1, maxRecvSge: 1 };
      const qp = scope.add(await pd.createQp({ type: 'UD', sendCq, ...depths }));
      await qp.activate({ qkey: QKEY });
      return new DatagramQueues(device, queues, qp, listener);
    });
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
    this.#queues.stop();
    this.#device.off('event', this.#onEvent);
    await this.#qp.close();
    this.peers.close();
    await this.#queues.close();
    for (const sending of [...this.#inFlight, ...this.#waiting]) callProgram(() => sending?.done(), undefined);
  }

  readonly #onEvent = (event: AsyncEvent): void => {
    if (event.type === 'DEVICE_FATAL') this.#queues.fail(new VerbsError('EIO', event.reason));
  };

  #post(sending: Sending): void {
    const { to, header, message, done } = sending;
    const slot = this.#free.pop() as number;
    const at = slot * MESSAGE_BYTES;
    const { own } = this.#queues;
    own.buffer.set(header, at);
    own.buffer.set(message, at + header.length);
    try {
      const sgList = own.sge(at, header.length + message.length);
      const { ah, qpNum: remoteQpn } = to;
      this.#qp.postSend({ opcode: 'SEND', wrId: slot, signaled: true, sgList, ah, remoteQpn, remoteQkey: QKEY });
      this.#inFlight[slot] = sending;
    } catch (error) {
      this.#free.push(slot);
      process.nextTick(done, error);
    }
  }

  #onCompletion({ opcodeName, wrId, byteLen }: Wc): void {
    if (opcodeName === 'RECV') this.#onReceived(wrId, byteLen);
    else this.#onSent(wrId);
  }

  #onReceived(slot: number, byteLen: number): void {
    const at = slot * RECEIVE_BYTES;
    const bytes = this.#queues.shared.buffer.subarray(at, at + byteLen);
    try {
      this.#listener.onMessage(readGrh(bytes).source, bytes.subarray(GRH_BYTES));
    } finally {
      this.#postReceive(slot);
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
    callProgram(() => sending?.done(), undefined);
  }

  #postReceive(slot: number): void {
    const { shared } = this.#queues;
    this.#queues.postReceive({ wrId: slot, sgList: shared.sge(slot * RECEIVE_BYTES, RECEIVE_BYTES) });
  }
}
