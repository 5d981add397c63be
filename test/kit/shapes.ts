/** What a rig takes and gives (rig.ts). */
/** The default parameters of a connection between a rig's queue pair and its peer. */
export interface ConnectOptions {
  readonly destQpn: number;
  /** First PSN that we send / that we expect. */
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
  /** Of datagrams. */
  readonly qkey?: number;
  /** Stop at this state instead of RTS. */
  readonly until?: 'INIT' | 'RTR' | 'RTS';
}

export interface QpSizes {
  /** Default RC. */
  readonly type?: 'RC' | 'UC' | 'UD' | 'GSI';
  /** Handle of a shared receive queue, and of a completion queue; default: its own. */
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
  readonly recvCqe?: number; // a completion queue for receives alone
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
  /** Of the peer. */
  readonly srcQpn: number;
}

export interface SendRequest {
  readonly wrId?: number;
  /** Name of the enum WrOpcode. */
  readonly opcode: string;
  readonly pieces?: readonly Piece[];
  readonly inline?: Uint8Array;
  readonly remote?: { va: bigint | number; rkey: number };
  readonly compareAdd?: bigint;
  readonly swap?: bigint;
  /** Immediate as the four bytes on the wire read little endian, or the key to invalidate. */
  readonly imm?: number;
  /** BIND_MW: the window's key with its new tag, the region's local key, and what of it under which rights. */
  readonly bind?: { rkey: number; lkey: number; va: bigint; length: number; access: number };
  /** REG_MR: the region's key with its new tag, the memory, where the wire finds it, and the rights. */
  readonly register?: { rkey: number; ptr: number; length: number; access: number; iova: bigint };
  /** FLUSH: FlushPlacement | FlushSelectivity << 4. */
  readonly flush?: { length: number; what: number };
  /** Where a datagram goes: address handle, queue pair, Q_Key. */
  readonly to?: { ah: number; qpn: number; qkey: number };
  readonly signaled?: boolean;
  readonly solicited?: boolean;
  readonly fence?: boolean;
}
