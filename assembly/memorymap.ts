// Addresses of the fixed structures in the card's memory. Objects are allocated from the pool (host/pool), memory for
// the application's data from the arena (host/arena).

/** Single records, a few cache lines apart. Nothing lies below 1024, so that pointer 0 is never valid. */
export const RANDOM: usize = 1280;
export const RNIC: usize = 1536;
export const PACKET: usize = 2048;
/** The GSO burst that is being built (qp/gso). */
export const GSO_BURST: usize = 2240;
/** The packet of the reorder buffer that is being executed (qp/reorder). */
export const BUFFERED_PACKET: usize = 2816;
export const COUNTERS: usize = 3072;
export const SCRATCH: usize = 4096;
/** Count and GIDs (host/gid). */
export const GIDS: usize = 9216;
/** Parameters of congestion control (qp/congestion). */
export const CONGESTION: usize = 10496;
/** 40 bytes in which the GRH of a datagram is assembled (qp/ud). */
export const DATAGRAM_PAD: usize = 10752;
/** 16 bytes for the group GID of a multicast datagram (qp/recv). */
export const MGID_PAD: usize = 10816;
/** The two operands of an atomic operation, u64 each (host/place). */
export const PLACE_PAD: usize = 10832;
/** Count and P_Keys (host/pkey). */
export const PKEYS: usize = 10880;
/** 4096 bits, one for each VLAN (host/vlan). */
export const VLANS: usize = 12288;
/** 256 rows of 4 bytes (wire/opcode). */
export const OPCODE_TABLE: usize = 8192;
/** 16 tables of 256 u32 (wire/crc). */
export const CRC_TABLE: usize = 16384;
/** 18 words (wire/icrc). */
export const INVERSE_POWERS: usize = 32768;
/** Two tables of 256 u32 (wire/icrc). */
export const ID_TERMS: usize = 33024;
/** Records and free lists of the pool and the arena (host/blocks), 872 bytes each, up to CRC_SCRATCH. */
export const POOL: usize = 35072;
export const ARENA: usize = 35968;
/** Scratch memory of the CRC folding (wire/crc), up to SHIFT_TABLES. */
export const CRC_SCRATCH: usize = 36864;
/** Four tables of 256 u32 for each number of bytes that a link may take over from the ICRC (wire/icrc). */
export const SHIFT_TABLES: usize = 43008;
/** Numbers of queue pairs that were destroyed lately, and their count (qp/qpn). */
export const RETIRED_QPNS: usize = 65536;
/** The table of the arena; behind it, the pool. */
export const POOL_START: usize = 86016;
