/** Work requests: what a program posts. Names as in ibverbs, in camel case. */
import type { AccessFlags } from './access.js';
import type { FastMr } from './fastmr.js';
import type { Mr } from './mr.js';
import type { Mw } from './mw.js';
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

interface Flush {
  /** Bytes from `remoteAddr` on that are meant; those of the whole region with `selectivity: 'mr'`, which looks at neither. */
  readonly length?: number;
  /** That all can see the data. Persistence is not offered. Default `global`. */
  readonly placement?: 'global';
  /** Default `range`. */
  readonly selectivity?: 'range' | 'mr';
}

interface Bind {
  readonly mw: Mw;
  /** Region with the right `mwBind`, of the same domain. */
  readonly mr: Mr | FastMr;
  /** Where in the region the window begins, and its size; by default all from `offset` on. Bytes. */
  readonly offset?: number;
  readonly length?: number;
  /** What the peer may do: remote rights, and `zeroBased` with type 2. */
  readonly access: AccessFlags;
  /** The window's key with another tag (its lowest 8 bits). Default: `incRkey(mw.rkey)`. */
  readonly rkey?: number;
}

interface Register {
  /** A region of `pd.allocMr` that has no memory now. */
  readonly mr: FastMr;
  /** Memory of a region of this device. */
  readonly buffer: Uint8Array | Mr;
  /** As in `pd.regMr`. */
  readonly access?: AccessFlags;
  readonly iova?: number | bigint;
  /** The region's key with another tag (its lowest 8 bits). Default: `incRkey(mr.rkey)`. */
  readonly rkey?: number;
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

/**
 * What is posted to a send queue. RC has all operations; UC has SEND and RDMA WRITE, with and without immediate, and those that
 * stay in the device; UD has SEND and SEND_WITH_IMM alone, as keys mean nothing to its peers. Any other is refused: EOPNOTSUPP.
 */
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
    /** Eight bytes that are written at once: nobody sees half of them. `remoteAddr` is a multiple of 8. */
    | ({ readonly opcode: 'ATOMIC_WRITE' } & Gather & Remote)
    /** Completes when everything that was written before it can be seen by all. Needs the right `flushGlobal`. */
    | ({ readonly opcode: 'FLUSH' } & Flush & Remote)
    /** Closes the key of a fast region or of a window of type 2. */
    | ({ readonly opcode: 'LOCAL_INV' } & Invalidate)
    /** Opens a memory window. Stays in the device, in its turn behind all earlier requests. */
    | ({ readonly opcode: 'BIND_MW' } & Bind)
    /** Gives memory to a fast region. Stays in the device, in its turn behind all earlier requests. */
    | ({ readonly opcode: 'REG_MR' } & Register)
  );

export type SendOpcode = SendWr['opcode'];

/** What `qp.bindMw` takes beside the window: the fields of BIND_MW. */
export type BindMw = SendCommon & Omit<Bind, 'mw'>;

export interface RecvWr {
  /** Comes back in the completion; an integer below 2^53 in size. Default 0. */
  readonly wrId?: number;
  /** Where the message goes, in order; nothing = room for zero bytes. */
  readonly sgList?: Sge | readonly Sge[];
}
