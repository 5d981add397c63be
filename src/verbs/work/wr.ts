/** Work requests, with the names of ibverbs in camel case. */
import type { AccessFlags } from '../access.js';
import type { AddressHandle } from '../objects/ah.js';
import type { FastMr } from '../objects/fastmr.js';
import type { MemorySource } from '../objects/memorysource.js';
import type { Mr } from '../objects/mr.js';
import type { Mw } from '../objects/mw.js';

/** Scatter/gather element: a part of registered memory (ibv_sge). `mr.sge()` creates it. */
export interface Sge {
  /** Address for the card (`mr.addr` + offset), below 2^53. */
  readonly addr: number;
  /** Length in bytes. */
  readonly length: number;
  /** Local key of the region, 32 bits. */
  readonly lkey: number;
}

/** Fields of every send work request. */
export interface SendCommon {
  /** Returned in the completion: an integer of magnitude below 2^53. Default 0. */
  readonly wrId?: number;
  /** Generates a completion; implied on a queue pair with `sqSigAll`. Default false. */
  readonly signaled?: boolean;
  /** Waits until all earlier RDMA READs and atomics of the queue pair are complete (fence). Default false. */
  readonly fence?: boolean;
}

/** Local memory that a work request sends. */
export interface Gather {
  /**
   * Local memory to send, in order. Default: zero bytes. A Uint8Array is sent inline: its bytes, at most the queue
   * pair's `maxInlineData`, are copied by the call and need no registration.
   */
  readonly sgList?: Sge | readonly Sge[] | Uint8Array;
  /** Copies the bytes of `sgList` during the call, so that they may be changed afterwards. Default false. */
  readonly inline?: boolean;
}

/** Local memory that receives the response of a READ or atomic. */
export interface Scatter {
  /** Local memory for the response, in order. Default: zero bytes. */
  readonly sgList?: Sge | readonly Sge[];
}

/** Remote memory that a one-sided work request accesses. */
export interface Remote {
  /** Remote address of the first byte: the peer's `remote.addr` plus an offset, 64 bits. */
  readonly remoteAddr: number | bigint;
  /** Remote key: the peer's `remote.rkey`. */
  readonly rkey: number;
}

/** Solicited events. */
export interface Solicited {
  /** Makes the peer's completion a solicited event, see `cq.arm`. Default false. */
  readonly solicited?: boolean;
}

/** Immediate data. */
export interface Immediate {
  /** Immediate data, a 32-bit number in host byte order; sent in network byte order. */
  readonly immData: number;
}

/** The memory that an RDMA FLUSH covers (IBTA A19). */
export interface Flush {
  /**
   * Bytes to flush from `remoteAddr` on. With `selectivity: 'mr'`, both are ignored and the whole region is flushed.
   */
  readonly length?: number;
  /** Global visibility (IBTA A19); persistence is not supported. Default `global`. */
  readonly placement?: 'global';
  /** Flushes a range, or the whole region. Default `range`. */
  readonly selectivity?: 'range' | 'mr';
}

/** Binding of a memory window (`ibv_bind_mw`). */
export interface Bind {
  /** The window to bind, of the queue pair's domain. */
  readonly mw: Mw;
  /** Region with the right `mwBind`, of the queue pair's domain. */
  readonly mr: Mr | FastMr;
  /** Start of the window in bytes from the start of the region. Default 0. */
  readonly offset?: number;
  /** Length of the window in bytes. Default: up to the end of the region. */
  readonly length?: number;
  /** Rights of the window: remote rights, and `zeroBased` for type 2. */
  readonly access: AccessFlags;
  /** New remote key: the window's key with another tag (lowest 8 bits). Default: the tag plus 1, as by ibv_inc_rkey. */
  readonly rkey?: number;
}

/** Fast registration of a memory region (IB_WR_REG_MR of Linux kernel verbs). */
export interface Register {
  /** Fast region of `pd.allocMr`, not registered at present. */
  readonly mr: FastMr;
  /** Memory to register, as in `pd.regMr`: of the program, or of a region. */
  readonly buffer: MemorySource | Mr;
  /** Access rights, as in `pd.regMr`. Default: `['localWrite']`. */
  readonly access?: AccessFlags;
  /** Remote address of the first byte, 64 bits. Default: `mr.addr`. */
  readonly iova?: number | bigint;
  /** New remote key: the region's key with another tag (lowest 8 bits). Default: the tag plus 1, as by ibv_inc_rkey. */
  readonly rkey?: number;
}

/** Key that a work request invalidates. */
export interface Invalidate {
  /** Remote key to invalidate: one of the peer's for SEND_WITH_INV, one of this device's for LOCAL_INV. */
  readonly invalidateRkey: number;
}

/** Destination of a UD datagram. */
export interface Datagram {
  /** UD only, required: address handle of the peer or of a multicast group. */
  readonly ah?: AddressHandle;
  /** UD only, required: the peer's queue pair number; 0xffffff for a multicast group. */
  readonly remoteQpn?: number;
  /**
   * UD only, required: the peer's Q_Key. With bit 31 set, the Q_Key of our queue pair is sent instead (IBTA 10.2.5).
   */
  readonly remoteQkey?: number;
  /** @internal Queue pair 1 only, required: index of the P_Key to send (ib_ud_wr.pkey_index of Linux). */
  readonly pkeyIndex?: number;
}

/**
 * A send work request (ibv_send_wr); `opcode` tells the operation. RC supports all operations. UC supports SEND and
 * RDMA WRITE, with and without immediate, and the local operations LOCAL_INV, BIND_MW and REG_MR. UD supports SEND and
 * SEND_WITH_IMM. Other operations are refused with EOPNOTSUPP.
 * - `ATOMIC_CMP_AND_SWP`: if the 64-bit integer at `remoteAddr` equals `compareAdd`, it becomes `swap`. The original
 *   value is written to `sgList`, in host byte order.
 * - `ATOMIC_FETCH_AND_ADD`: adds `compareAdd`, which may be negative, to the 64-bit integer at `remoteAddr`, modulo
 *   2^64. The original value is written to `sgList`, in host byte order.
 * - `ATOMIC_WRITE`: writes eight bytes atomically; `remoteAddr` must be a multiple of 8.
 * - `FLUSH`: completes when all earlier writes to the range are visible to the peer. Needs the right `flushGlobal`.
 * - `LOCAL_INV`: invalidates the key of a fast region or of a type 2 window.
 * - `BIND_MW`: binds a memory window. Executed in the device, in order.
 * - `REG_MR`: registers memory for a fast region. Executed in the device, in order.
 */
export type SendWr = SendCommon &
  (
    | ({ readonly opcode: 'SEND' } & Gather & Solicited & Datagram)
    | ({ readonly opcode: 'SEND_WITH_IMM' } & Gather & Solicited & Immediate & Datagram)
    | ({ readonly opcode: 'SEND_WITH_INV' } & Gather & Solicited & Invalidate)
    | ({ readonly opcode: 'RDMA_WRITE' } & Gather & Remote)
    | ({ readonly opcode: 'RDMA_WRITE_WITH_IMM' } & Gather & Remote & Solicited & Immediate)
    | ({ readonly opcode: 'RDMA_READ' } & Scatter & Remote)
    | ({
        readonly opcode: 'ATOMIC_CMP_AND_SWP';
        /** Value to compare with, 64 bits. */
        readonly compareAdd: bigint;
        /** New value if equal, 64 bits. */
        readonly swap: bigint;
      } & Scatter &
        Remote)
    | ({
        readonly opcode: 'ATOMIC_FETCH_AND_ADD';
        /** Value to add, 64 bits; may be negative. */
        readonly compareAdd: bigint;
      } & Scatter &
        Remote)
    | ({ readonly opcode: 'ATOMIC_WRITE' } & Gather & Remote)
    | ({ readonly opcode: 'FLUSH' } & Flush & Remote)
    | ({ readonly opcode: 'LOCAL_INV' } & Invalidate)
    | ({ readonly opcode: 'BIND_MW' } & Bind)
    | ({ readonly opcode: 'REG_MR' } & Register)
  );

/** Operation of a send work request. */
export type SendOpcode = SendWr['opcode'];

/** Arguments of `qp.bindMw`: the fields of BIND_MW except the window. */
export type BindMw = SendCommon & Omit<Bind, 'mw'>;

/** A receive work request (ibv_recv_wr). */
export interface RecvWr {
  /** Returned in the completion: an integer of magnitude below 2^53. Default 0. */
  readonly wrId?: number;
  /**
   * Memory for the message, in order. For datagrams the first 40 bytes receive the GRH. Default: room for zero bytes.
   */
  readonly sgList?: Sge | readonly Sge[];
}
