/**
 * A protocol of byte streams, as sockets see it: a transport for each connection, which speaks the protocol on one
 * queue pair. The socket connects it with rdma_cm and with the streams of Node.js, which the transport does not know.
 */
import type { ConnParam, Device, Pd, Qp, QpOptions } from '../index.js';
import type { ByteChannel } from '../transport/duplexsides.js';

/** Size of a buffer of a transport. */
export interface BufferSize {
  /** Bytes at first. */
  readonly bytes: number;
  /** Bytes that it may have when the connection moves much data. */
  readonly maxBytes: number;
}

/** Sizes of the buffers of a transport. */
export interface BufferSizes {
  /** The memory that the peer writes to. */
  readonly receive: BufferSize;
  /** The memory of what is written and not acknowledged yet. */
  readonly send: BufferSize;
}

/** The socket, as its transport sees it. */
export interface TransportListener {
  /** There are bytes to read, or the peer writes no more. */
  onReadable(): void;
  /** More can be written, or all is acknowledged. */
  onWritable(): void;
  /** The queue pair has failed, or the peer does not keep to the protocol. Called once. */
  onFailure(error: Error): void;
}

/** One connection. */
export interface Transport extends ByteChannel {
  /**
   * Reads the next bytes into memory, as many as it has room for, or fewer. Only with `hasData`.
   * @returns their number
   */
  readInto(memory: Uint8Array): number;
  /** Protection domain for the queue pair. */
  readonly pd: Pd;
  /** Options for the queue pair. */
  readonly qpOptions: Omit<QpOptions, 'type'>;
  /** Private data for the peer. */
  readonly privateData: Uint8Array;
  /** Posts the receives of a queue pair in INIT. @throws VerbsError ENOMEM */
  use(qp: Qp): Promise<void>;
  /** The peer's private data has come. @throws VerbsError EOPNOTSUPP when the peer speaks another protocol */
  onPeerData(privateData: Uint8Array): void;
  /** The connection is established. */
  start(): void;
  /** Whether the peer has said that it reads no more either. */
  readonly isPeerGone: boolean;
  /** Whether the peer's adapter has acknowledged all that was written. */
  readonly isIdle: boolean;
  /**
   * Tells the peer that we write no more, after what was written before.
   * @param isGone whether we read no more either
   */
  end(isGone: boolean): void;
  /**
   * The peer has disconnected: takes what has completed, and delivers no more after that.
   * @param hasExited whether its process has ended: data that it had not sent is lost, as with TCP
   * @returns whether nothing else was lost, as far as the protocol shows that
   */
  disconnected(hasExited: boolean): boolean;
  /** Delivers no more. */
  stop(): void;
  /** Frees everything. The queue pair has been closed from ERR, so all of its work requests have completed. */
  close(): Promise<void>;
}

/** Most bytes that `read` of a transport returns, so that an event `data` has no more. */
export const CHUNK_BYTES = 65_536;

export interface Protocol {
  /** Parameters of REQ and REP. */
  readonly connParam: ConnParam;
  /** Sizes of each buffer without an option, and the limits of the option; it must be a multiple of `unit`. */
  readonly bufferBytes: {
    readonly usual: BufferSize;
    readonly min: number;
    readonly max: number;
    readonly unit: number;
  };
  /** Returns the bytes that a connection takes of the device's memory at first, about. */
  connectionBytes(sizes: BufferSizes): number;
  /** Whether an end can say that it writes no more and go on reading. Otherwise it disconnects. */
  readonly hasHalfClose: boolean;
  /** @throws VerbsError ENOMEM; nothing is left allocated then */
  open(device: Device, sizes: BufferSizes, listener: TransportListener): Promise<Transport>;
}
