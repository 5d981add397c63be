/** The frames between a card and its link: rings of descriptors in the card's memory, and what moves them (link.ts). */

/**
 * A ring of descriptors in the card's memory. Layout and meaning of a descriptor are those of the kernel's `struct
 * xdp_desc` (`addr` u64, `len` u32, `options` u32). All members except `mask` are byte offsets from the start of the
 * memory. The two cursors are free-running u32: `producer - consumer` descriptors are filled, and descriptor n lies at
 * `descriptors + (n & mask) * 16`. One side only produces, the other only consumes.
 */
export interface Ring {
  /** Offset of the producer's cursor. */
  readonly producer: number;
  /** Offset of the consumer's cursor. */
  readonly consumer: number;
  /** Offset of the first descriptor. */
  readonly descriptors: number;
  /** Number of descriptors, a power of two, minus 1. */
  readonly mask: number;
}

/** The part of a card that a link works on. */
export interface Frames {
  /** The card's memory as bytes. It is shared and never moves. */
  readonly memory: Uint8Array;
  /**
   * The transmit ring: the card produces, the link consumes. The link skips a descriptor with `len` 0.
   *
   * Slots: `addr` of descriptor n points at a free slot when the card may fill it. In `attach` and in `send` a link may
   * set `addr` to another free slot, in memory that it got from `allocate`.
   *
   * GSO bursts, if the link's features include `gso`: the `options` of every frame of a burst except the first carry
   * TX_CONTINUES_BURST. Such a frame has the headers of the frame before it, except for IP length, IPv4 identification
   * and UDP length. Identifications count up from 0. All frames of a burst have the same length; only the last may be
   * shorter. The producer moves past a whole burst at once.
   */
  readonly tx: Ring;
  /**
   * The receive ring: the link produces, the card consumes. `addr` of descriptor n already points at a free slot of
   * `slotBytes`. The link writes the frame there, sets `len` and `options`, then moves the producer. A slot is free
   * again when the consumer has passed it. Instead, a link may set `addr` to memory that it got from `allocate`; this
   * memory is the link's again when the consumer has passed it.
   *
   * A super-packet is one descriptor: the headers of its first packet, then the UDP payloads of all its packets.
   * `options >>> RX_SEGMENT_SHIFT` is the size of each payload in bytes; the last payload may be shorter. The card
   * ignores the lengths in the IP and UDP headers and the IP checksum. Packet k had the identification of the first
   * packet plus k, or the same identification.
   */
  readonly rx: Ring;
  /** Bytes of a receive slot. If this is less than `LinkFeatures.coalescedBytes`, the link delivers single packets. */
  readonly slotBytes: number;
  /** The card uses the ICRC offload that the link's features offer (`LinkFeatures.icrcOffload`). */
  readonly icrcOffload?: boolean;
  /**
   * Allocates bytes of the card's memory and returns their offset. The memory is never freed. Links use it for rings
   * and packet buffers of their own.
   * @throws RangeError if the card has not enough memory left
   */
  readonly allocate?: (bytes: number) => number;
}

// Option bits of descriptors. The card defines them, but a link may not import the card: test/link/options.test.ts
// compares these values with those of the card and of the addon.

/** Transmit option: the frame continues the GSO burst of the frame before it (see `Frames.tx`). */
export const TX_CONTINUES_BURST = 0x10000;
/** Transmit option: the link copies the ICRC span into the frame (see `LinkFeatures.icrcOffload`). */
export const TX_FETCH_SPAN = 0x8000;
/** Transmit option: lowest bit of the length of the ICRC span in bytes (see `LinkFeatures.icrcOffload`). */
export const TX_ICRC_SHIFT = 17;
/** Receive option: the CRC of the ICRC span is folded into the ICRC (see `LinkFeatures.icrcOffload`). */
export const RX_ICRC_FOLDED = 0x8000;
/** Receive option: the link cannot see the IPv4 identification. */
export const RX_IP_ID_UNKNOWN = 0x10000;
/** Receive option: lowest bit of the payload size of a super-packet's packets (see `Frames.rx`). */
export const RX_SEGMENT_SHIFT = 17;

/** Moves frames between a card's rings and the network. */
export interface FrameMover {
  /**
   * Sends frames from the transmit ring. Frames that cannot leave now stay in the ring. Never blocks, and never throws
   * for what happens on the network: the counters show it.
   * @param now the device's clock (ns)
   * @returns the number of descriptors consumed
   */
  send(now: number): number;
  /**
   * Moves frames that have arrived into the receive ring, as many as fit. Never blocks.
   * @param now the device's clock (ns)
   * @returns the number of descriptors produced
   */
  receive(now: number): number;
  /**
   * Frames arrive in the card's memory at any time, without `receive`. `receive` then only notes their arrival, gives
   * back what the card has passed, and costs no system call for it. Call it before each turn in which the card consumes
   * frames: a slot that the card has passed may hold another frame already. An idle turn before a sleep calls it too.
   */
  readonly pushesFrames?: boolean;
  /**
   * Returns when `send` and `receive` must be called although nothing arrives (ns of the device's clock); 0 = never.
   */
  nextDeadline(): number;
}
