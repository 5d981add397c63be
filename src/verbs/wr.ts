/** Work requests: what a program posts. Names as in ibverbs, in camel case. */
import type { Ah } from './udah.js';

/** A piece of registered memory. `mr.slice()` makes them. */
export interface Sge {
  /** Address in the card's memory (`mr.addr` + offset). */
  readonly addr: number;
  /** Bytes. */
  readonly length: number;
  readonly lkey: number;
}

interface SendCommon {
  /** Comes back in the completion; an integer below 2^53 in size. Default 0. */
  readonly wrId?: number;
  /** Asks for a completion; needless on a queue pair with `sqSigAll`. */
  readonly signaled?: boolean;
  /** Waits until all earlier RDMA READs and atomics of the queue pair are done. */
  readonly fence?: boolean;
}

interface Gather {
  /**
   * Local memory, in order; nothing = zero bytes. A Uint8Array is sent inline: its bytes are copied by the call and need
   * no registered memory, up to the queue pair's `maxInlineData`.
   */
  readonly sgList?: Sge | readonly Sge[] | Uint8Array;
  /** Copies the bytes of `sgList` by the call, so that they may be changed at once. SEND and RDMA WRITE only. */
  readonly inline?: boolean;
}

interface Scatter {
  /** Where the answer goes, in order. */
  readonly sgList?: Sge | readonly Sge[];
}

interface Remote {
  /** Address of the first byte as the peer registered it (`remote.addr`). */
  readonly remoteAddr: number | bigint;
  readonly rkey: number;
}

interface Solicited {
  /** The peer's completion wakes a queue that is armed for solicited completions only. */
  readonly solicited?: boolean;
}

interface Immediate {
  /** 32 bits as a number; they travel in network byte order. */
  readonly immData: number;
}

interface Invalidate {
  /** Key to invalidate: the peer's for SEND_WITH_INV, one of our own for LOCAL_INV. */
  readonly invalidateRkey: number;
}

interface Datagram {
  /** Of a UD queue pair, which needs all three: the way to the peer, or to a group. */
  readonly ah?: Ah;
  /** The peer's queue pair number; 0xffffff for a group. */
  readonly remoteQpn?: number;
  /** The peer's Q_Key. With bit 31 it stands for the Q_Key of our own queue pair. */
  readonly remoteQkey?: number;
}

export type SendWr = SendCommon &
  (
    | ({ readonly opcode: 'SEND' } & Gather & Solicited & Datagram)
    | ({ readonly opcode: 'SEND_WITH_IMM' } & Gather & Solicited & Immediate & Datagram)
    | ({ readonly opcode: 'SEND_WITH_INV' } & Gather & Solicited & Invalidate)
    | ({ readonly opcode: 'RDMA_WRITE' } & Gather & Remote)
    | ({ readonly opcode: 'RDMA_WRITE_WITH_IMM' } & Gather & Remote & Solicited & Immediate)
    | ({ readonly opcode: 'RDMA_READ' } & Scatter & Remote)
    /** If the 8 bytes at `remoteAddr` equal `compareAdd` they become `swap`; the old value comes to `sgList`, host order. */
    | ({ readonly opcode: 'ATOMIC_CMP_AND_SWP'; readonly compareAdd: bigint; readonly swap: bigint } & Scatter & Remote)
    /** Adds `compareAdd` (may be negative) to the 8 bytes at `remoteAddr`, modulo 2^64; the old value comes to `sgList`. */
    | ({ readonly opcode: 'ATOMIC_FETCH_AND_ADD'; readonly compareAdd: bigint } & Scatter & Remote)
    | ({ readonly opcode: 'LOCAL_INV' } & Invalidate)
  );

export type SendOpcode = SendWr['opcode'];

export interface RecvWr {
  /** Comes back in the completion; an integer below 2^53 in size. Default 0. */
  readonly wrId?: number;
  /** Where the message goes, in order; nothing = room for zero bytes. */
  readonly sgList?: Sge | readonly Sge[];
}
