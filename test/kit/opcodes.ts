/** Opcodes of the BTH, as the second encoder knows them: code, name, and which headers follow (IBTA 9.2, table 38). */
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

/** Operations of the reliable connected class; those up to RDMA_WRITE_ONLY_WITH_IMM exist in UC as well, at code + UC. */
export enum Op {
  SEND_FIRST = 0x00,
  SEND_MIDDLE = 0x01,
  SEND_LAST = 0x02,
  SEND_LAST_WITH_IMM = 0x03,
  SEND_ONLY = 0x04,
  SEND_ONLY_WITH_IMM = 0x05,
  RDMA_WRITE_FIRST = 0x06,
  RDMA_WRITE_MIDDLE = 0x07,
  RDMA_WRITE_LAST = 0x08,
  RDMA_WRITE_LAST_WITH_IMM = 0x09,
  RDMA_WRITE_ONLY = 0x0a,
  RDMA_WRITE_ONLY_WITH_IMM = 0x0b,
  RDMA_READ_REQUEST = 0x0c,
  RDMA_READ_RESPONSE_FIRST = 0x0d,
  RDMA_READ_RESPONSE_MIDDLE = 0x0e,
  RDMA_READ_RESPONSE_LAST = 0x0f,
  RDMA_READ_RESPONSE_ONLY = 0x10,
  ACKNOWLEDGE = 0x11,
  ATOMIC_ACKNOWLEDGE = 0x12,
  COMPARE_SWAP = 0x13,
  FETCH_ADD = 0x14,
  SEND_LAST_WITH_INVALIDATE = 0x16,
  SEND_ONLY_WITH_INVALIDATE = 0x17,
  FLUSH = 0x1c,
  ATOMIC_WRITE = 0x1d,
}

export const UC = 0x20;
export const UD_SEND_ONLY = 0x64;
export const UD_SEND_ONLY_WITH_IMM = 0x65;
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
