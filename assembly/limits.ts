// Sizes and limits of the card.

/** Largest path MTU (payload bytes of one packet). */
export const MAX_MTU: u32 = 4096;
/** Largest frame. Beside the payload: Ethernet 14, VLAN 4, IPv6 40, UDP 8, BTH 12, RETH 16, ImmDt 4, pad 3, ICRC 4. */
export const MAX_FRAME: u32 = MAX_MTU + 105;
/** Largest message (IBTA 9.7.7: 2^31 bytes). */
export const MAX_MESSAGE: u32 = 0x80000000;
export const MAX_SGE: u32 = 32;
export const MAX_INLINE: u32 = 1024;
export const MAX_WR: u32 = 32768;
export const MAX_CQE: u32 = 1 << 22;
/** READ and atomic requests that a queue pair may have outstanding, in either direction. */
export const MAX_RD_ATOMIC: u32 = 128;
/** Size of the memory at `scratch()`, through which the caller passes variable data. */
export const SCRATCH_BYTES: u32 = 4096;
/**
 * Shortest ACK timeout in nanoseconds, that of the code 12: most pauses of a program or a machine are shorter. Adapters
 * have such a limit, too.
 */
export const MIN_ACK_TIMEOUT: u32 = 4096 << 12;
/**
 * Largest in-flight window: the most packets that a peer can prove to take. They are several super-packets on the wire
 * while as many are being built and processed.
 */
export const MAX_WINDOW: u32 = 768;
/** SENDs and WRITEs ahead of a gap that the responder keeps until it is filled. */
export const REORDER_WINDOW: u32 = 64;
/** A retry_cnt without limit. The specification's 3 bits have none; rxe takes 7 as such. */
export const RETRY_INFINITE: u32 = 255;
/** Decisions that the trace of decisions may keep. */
export const MAX_DECISIONS: u32 = 65536;
