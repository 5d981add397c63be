/** Opcodes of the BTH for the second encoder: code, name, and the headers that follow (IBTA 9.2, table 38). */
export type HeaderName = 'deth' | 'feth' | 'reth' | 'atomiceth' | 'aeth' | 'immdt' | 'ieth' | 'atomicack';

export interface OpcodeRow {
  /** Class and operation, as in "RC SEND_ONLY". */
  readonly name: string;
  /** In the order of the wire. */
  readonly headers: readonly HeaderName[];
}

export const HEADER_BYTES: Record<HeaderName, number> = {
  deth: 8,
  feth: 4,
  reth: 16,
  atomiceth: 28,
  aeth: 4,
  immdt: 4,
  ieth: 4,
  atomicack: 8,
};

/** Operations of the RC class. Those up to RDMA_WRITE_ONLY_WITH_IMM exist in UC as well, at code + UC. */
export enum Op {
  /** First packet of a SEND. */
  SEND_FIRST = 0x00,
  /** Packet in the middle of a SEND. */
  SEND_MIDDLE = 0x01,
  /** Last packet of a SEND. */
  SEND_LAST = 0x02,
  /** Last packet of a SEND with immediate data. */
  SEND_LAST_WITH_IMM = 0x03,
  /** SEND of one packet. */
  SEND_ONLY = 0x04,
  /** SEND of one packet, with immediate data. */
  SEND_ONLY_WITH_IMM = 0x05,
  /** First packet of a WRITE. */
  RDMA_WRITE_FIRST = 0x06,
  /** Packet in the middle of a WRITE. */
  RDMA_WRITE_MIDDLE = 0x07,
  /** Last packet of a WRITE. */
  RDMA_WRITE_LAST = 0x08,
  /** Last packet of a WRITE with immediate data. */
  RDMA_WRITE_LAST_WITH_IMM = 0x09,
  /** WRITE of one packet. */
  RDMA_WRITE_ONLY = 0x0a,
  /** WRITE of one packet, with immediate data. */
  RDMA_WRITE_ONLY_WITH_IMM = 0x0b,
  /** Request of a READ. */
  RDMA_READ_REQUEST = 0x0c,
  /** First response to a READ. */
  RDMA_READ_RESPONSE_FIRST = 0x0d,
  /** Response in the middle of those to a READ. */
  RDMA_READ_RESPONSE_MIDDLE = 0x0e,
  /** Last response to a READ. */
  RDMA_READ_RESPONSE_LAST = 0x0f,
  /** The one response to a READ. */
  RDMA_READ_RESPONSE_ONLY = 0x10,
  /** ACK, NAK or RNR NAK. */
  ACKNOWLEDGE = 0x11,
  /** Response to an atomic operation. */
  ATOMIC_ACKNOWLEDGE = 0x12,
  /** Atomic compare and swap. */
  COMPARE_SWAP = 0x13,
  /** Atomic fetch and add. */
  FETCH_ADD = 0x14,
  /** Last packet of a SEND that invalidates a key. */
  SEND_LAST_WITH_INVALIDATE = 0x16,
  /** SEND of one packet that invalidates a key. */
  SEND_ONLY_WITH_INVALIDATE = 0x17,
  /** FLUSH of memory that was written. */
  FLUSH = 0x1c,
  /** WRITE of 8 bytes as a whole. */
  ATOMIC_WRITE = 0x1d,
}

export const UC = 0x20;
export const UD_SEND_ONLY = 0x64;
export const UD_SEND_ONLY_WITH_IMM = 0x65;
/** Congestion notification packet. */
export const CNP = 0x81;

const RC_HEADERS: Partial<Record<Op, readonly HeaderName[]>> = {
  [Op.SEND_LAST_WITH_IMM]: ['immdt'],
  [Op.SEND_ONLY_WITH_IMM]: ['immdt'],
  [Op.RDMA_WRITE_FIRST]: ['reth'],
  [Op.RDMA_WRITE_LAST_WITH_IMM]: ['immdt'],
  [Op.RDMA_WRITE_ONLY]: ['reth'],
  [Op.RDMA_WRITE_ONLY_WITH_IMM]: ['reth', 'immdt'],
  [Op.RDMA_READ_REQUEST]: ['reth'],
  [Op.RDMA_READ_RESPONSE_FIRST]: ['aeth'],
  [Op.RDMA_READ_RESPONSE_LAST]: ['aeth'],
  [Op.RDMA_READ_RESPONSE_ONLY]: ['aeth'],
  [Op.ACKNOWLEDGE]: ['aeth'],
  [Op.ATOMIC_ACKNOWLEDGE]: ['aeth', 'atomicack'],
  [Op.COMPARE_SWAP]: ['atomiceth'],
  [Op.FETCH_ADD]: ['atomiceth'],
  [Op.SEND_LAST_WITH_INVALIDATE]: ['ieth'],
  [Op.SEND_ONLY_WITH_INVALIDATE]: ['ieth'],
  [Op.FLUSH]: ['feth', 'reth'],
  [Op.ATOMIC_WRITE]: ['reth'],
};

function build(): Map<number, OpcodeRow> {
  const rows = new Map<number, OpcodeRow>();
  for (const [name, code] of Object.entries(Op)) {
    if (typeof code !== 'number') continue;
    const headers = RC_HEADERS[code] ?? [];
    rows.set(code, { name: `RC ${name}`, headers });
    if (code <= Op.RDMA_WRITE_ONLY_WITH_IMM) rows.set(code + UC, { name: `UC ${name}`, headers });
  }
  rows.set(UD_SEND_ONLY, { name: 'UD SEND_ONLY', headers: ['deth'] });
  rows.set(UD_SEND_ONLY_WITH_IMM, { name: 'UD SEND_ONLY_WITH_IMM', headers: ['deth', 'immdt'] });
  rows.set(CNP, { name: 'CNP', headers: [] });
  return rows;
}

export const OPCODES: ReadonlyMap<number, OpcodeRow> = build();
