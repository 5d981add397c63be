/** Arguments and results of a rig (rig.ts). */
/** Attributes of a connection between a rig's queue pair and its peer. */
export interface ConnectOptions {
  readonly destQpn: number;
  /** First PSN that we send, and first PSN that we expect. */
  readonly sqPsn: number;
  readonly rqPsn: number;
  readonly mtu?: number;
  readonly localIp?: readonly number[];
  readonly remoteIp?: readonly number[];
  readonly localMac?: readonly number[];
  readonly remoteMac?: readonly number[];
  readonly sourcePort?: number;
  /** Tag control information; absent = untagged. */
  readonly vlan?: number;
  readonly trafficClass?: number;
  readonly flowLabel?: number;
  readonly hopLimit?: number;
  readonly access?: number;
  readonly timeout?: number;
  readonly retryCnt?: number;
  readonly rnrRetry?: number;
  readonly minRnrTimer?: number;
  readonly maxRdAtomic?: number;
  readonly maxDestRdAtomic?: number;
  /** Q_Key of a UD queue pair. */
  readonly qkey?: number;
  /** The final state; default RTS. */
  readonly until?: 'INIT' | 'RTR' | 'RTS';
}

export interface QpSizes {
  /** Default RC. */
  readonly type?: 'RC' | 'UC' | 'UD' | 'GSI';
  /** Handles of a shared receive queue and of a completion queue. By default the queue pair has its own. */
  readonly srq?: number;
  readonly cq?: number;
  readonly sendWr?: number;
  readonly recvWr?: number;
  readonly sge?: number;
  readonly inline?: number;
  readonly signalAll?: boolean;
  /** End-to-end flow control by credits. */
  readonly flowControl?: boolean;
  /** Adaptive retransmission. Default: on. */
  readonly adaptive?: boolean;
  readonly cqe?: number;
  readonly recvCqe?: number; // entries of a separate completion queue for receives
}

/** A piece of a region's memory. */
export interface Piece {
  readonly ptr: number;
  readonly length: number;
  readonly lkey: number;
}

export interface Region {
  readonly mr: number;
  readonly ptr: number;
  readonly length: number;
  readonly lkey: number;
  readonly rkey: number;
  readonly iova: bigint;
  readonly bytes: Uint8Array;
  piece(offset: number, length: number): Piece;
}

export interface Completion {
  readonly wrId: number;
  readonly status: string;
  readonly opcode: string;
  readonly byteLen: number;
  readonly flags: number;
  readonly imm: number;
  readonly invalidatedRkey: number;
  readonly syndrome: number;
  readonly psn: number;
  readonly qpn: number;
  /** Queue pair number of the peer. */
  readonly srcQpn: number;
}

export interface SendRequest {
  readonly wrId?: number;
  /** A name of the enum WrOpcode. */
  readonly opcode: string;
  readonly pieces?: readonly Piece[];
  readonly inline?: Uint8Array;
  readonly remote?: { va: bigint | number; rkey: number };
  readonly compareAdd?: bigint;
  readonly swap?: bigint;
  /** The immediate as the four bytes on the wire, read little-endian, or the key to invalidate. */
  readonly imm?: number;
  /** BIND_MW: the window's key with its new tag, the region's local key, and range and rights of the window. */
  readonly bind?: { rkey: number; lkey: number; va: bigint; length: number; access: number };
  /** REG_MR: the region's key with its new tag, the memory, its address on the wire, and the rights. */
  readonly register?: { rkey: number; ptr: number; length: number; access: number; iova: bigint };
  /** FLUSH: FlushPlacement | FlushSelectivity << 4. */
  readonly flush?: { length: number; what: number };
  /** Destination of a datagram: address handle, queue pair, Q_Key. */
  readonly to?: { ah: number; qpn: number; qkey: number };
  readonly signaled?: boolean;
  readonly solicited?: boolean;
  readonly fence?: boolean;
}
