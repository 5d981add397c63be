/**
 * What a link is: it carries whole Ethernet frames between the rings in a card's memory and somewhere else.
 * It knows frames and IP addresses; it knows nothing of queue pairs.
 */
import { VerbsError } from '../errors.js';
import type { Loan } from './loan.js';

/**
 * A ring of descriptors in the card's memory, layout and meaning as the kernel's `struct xdp_desc`
 * (`addr` u64, `len` u32, `options` u32). All members but `mask` are byte offsets from the start of the memory.
 * The two cursors are free-running u32: `producer - consumer` descriptors are filled, descriptor n lies at
 * `descriptors + (n & mask) * 16`. One side only produces, the other only consumes.
 */
export interface Ring {
  readonly producer: number;
  readonly consumer: number;
  readonly descriptors: number;
  readonly mask: number;
}

/** The part of a card that a link works on. */
export interface Frames {
  /** The card's memory as bytes. It is shared and never moves. */
  readonly memory: Uint8Array;
  /** The card produces, the link consumes. A descriptor with `len` 0 is skipped. Where the link's features offer runs,
   * `options` may carry TX_CONTINUES_RUN: this frame has the headers of the one before it but for IP length, identification
   * and UDP length, its identification is one more, and it is not longer; all of a run but its last are of one length. The
   * first of a run has the identification 0. The producer moves past all of a run at once. Descriptor n's `addr` points at a
   * free slot when the card may fill it; in `attach` and in `send` a link may put another free slot there, of memory of its
   * own (of `allocate`). */
  readonly tx: Ring;
  /** The link produces, the card consumes. Descriptor n's `addr` already points at a free slot of `slotBytes`:
   * the link writes the frame there, sets `len` and `options`, then moves the producer. A slot is free again when the
   * consumer has passed it. A link may set `addr` to memory of its own (of `allocate`) instead, and has it back then.
   * A coalesced super-packet is one descriptor: the headers of its first packet, then the UDP payloads of all, one behind
   * the other; `options` >>> RX_SEGMENT_SHIFT are the bytes of each of them, of which the last may have fewer. The lengths in
   * its IP and UDP header are not looked at, nor is the IP checksum; segment k had the first one's identification plus k,
   * or the same. */
  readonly rx: Ring;
  /** Bytes of a receive slot: at least what the features ask for, or the link has to deliver single packets. */
  readonly slotBytes: number;
  /** The card wants what the features offer under this name. */
  readonly icrcOffload?: boolean;
  /** Takes bytes of the card's memory for good and returns their offset: for links that put rings of their own between
   * the card and another link. */
  readonly allocate?: (bytes: number) => number;
}

export interface LinkFeatures {
  /** Largest frame in bytes, Ethernet header included, frame check sequence excluded. */
  readonly maxFrame: number;
  /** Received IPv4 headers are the sender's own. Otherwise the identification is 0 in the ring and the descriptor's
   * options carry RX_IP_ID_UNKNOWN. */
  readonly ipHeaderVisible: boolean;
  /** UDP source port that every frame leaves with whatever the card wrote; 0 = as the card wrote it. */
  readonly sourcePort: number;
  /** Frames leave with the IPv4 header as the card wrote it, but for these: `zero` = the link sends identification 0
   * and DF, which is what the card must have written too. */
  readonly ipIdentification: 'as written' | 'zero';
  /** What the link sends in one go when the card marks a run of packets: so many packets and bytes of UDP payload at the
   * most. Without it the card marks none. */
  readonly runs?: { readonly packets: number; readonly bytes: number };
  /** The link takes most of a large packet's ICRC off the card: that of the last bytes before it, the largest power of two from
   * 256 to 4096 that fits into those behind the BTH; packets with fewer are the card's alone. Of a frame to be sent, `options`
   * >>> TX_ICRC_SHIFT are those bytes, 0 = none, and in the place of the ICRC stands the CRC's register before them: the
   * link goes on from there and completes it. Of received packets it XORs the CRC of those bytes, beginning with a register
   * of 0 and not complemented, into the ICRC, and the descriptor's options carry RX_ICRC_FOLDED. */
  readonly icrcOffload?: boolean;
  /** Bytes that a receive slot must have for coalesced super-packets. Without it the link delivers none. */
  readonly coalescedBytes?: number;
}

/** Transmit option: see `Frames.tx`. Same value as the card's TxOption.CONTINUES_RUN. */
export const TX_CONTINUES_RUN = 0x10000;
/** Transmit option: see `LinkFeatures.icrcOffload`. Same value as the card's TX_ICRC_SHIFT. */
export const TX_ICRC_SHIFT = 17;
/** Receive option: see `LinkFeatures.icrcOffload`. Same value as the card's RxOption.ICRC_FOLDED. */
export const RX_ICRC_FOLDED = 0x8000;
/** Receive option: the link could not see the IPv4 identification. Same value as the card's RxOption.IP_ID_UNKNOWN. */
export const RX_IP_ID_UNKNOWN = 0x10000;
/** Receive option: see `Frames.rx`. Same value as the card's RX_SEGMENT_SHIFT. */
export const RX_SEGMENT_SHIFT = 17;

export interface LinkCounters {
  readonly [name: string]: number;
}

/** The link's end of a local interface: what the card must know to write frames for it. */
export interface LinkInterface {
  readonly name: string;
  readonly index: number;
  /** MTU of the interface in bytes (IP packet size). */
  readonly mtu: number;
  readonly mac: Uint8Array;
  /** Local IP addresses, as text. */
  readonly addresses: readonly string[];
  /** The link is up. */
  readonly up: boolean;
}

/** What moves frames between a card's rings and somewhere else. */
export interface FrameMover {
  /**
   * Moves frames off the transmit ring; what cannot go now stays there. Never blocks, never throws for what the network
   * does (counted instead).
   * @param now nanoseconds of the device's clock
   * @returns how many descriptors were consumed
   */
  send(now: number): number;
  /** Moves frames that have arrived into the receive ring, as many as fit. Never blocks. @returns how many */
  receive(now: number): number;
  /** Frames come into the receive ring without `receive`, which then only takes note of them and costs no system call. It is to
   * be called before the card takes any: their slots may hold other frames afterwards. */
  readonly arrivesByItself?: boolean;
  /** When the link wants `send`/`receive` to be called next although nothing arrives (a delayed frame); 0 = never. */
  nextDeadline(): number;
}

/** Names of which all cards that may have the same addresses have each only once. */
export interface Names {
  /** Holds a name until the answer is called, or the process ends; undefined = it is held. */
  hold(name: string): (() => void) | undefined;
  /** By whomever. */
  isHeld(name: string): boolean;
}

export interface Link extends FrameMover {
  readonly kind: string;
  /** What people should know of it beside the frames; complete once it is attached. */
  readonly notes?: readonly string[];
  readonly features: LinkFeatures;
  readonly interface: LinkInterface;
  /** Of all cards of the network. A link without them shares its addresses with nobody. */
  readonly names?: Names | undefined;
  /** Called once, before anything else. @throws VerbsError when the kernel does not give what it needs */
  attach(frames: Frames): void;
  /**
   * After `attach`: lets another thread move the frames, with what `borrow` makes of the answer there. This thread does
   * everything else from then on, at any time: it neither sends nor receives nor waits. Links without it work in one
   * thread only.
   * @throws VerbsError EOPNOTSUPP
   */
  lend?(): Loan;
  /** To be called when the other thread says that there is something new. */
  onLoanNews?(): void;
  /**
   * Calls `onReadable` once when there may be something to receive, or at `deadline` (ns of the device's clock, 0 = none),
   * whichever is first; a second call replaces the first.
   * The clock of a wait is `performance.now()`, in nanoseconds.
   * @param keepAlive whether this wait keeps the process running
   */
  wait(deadline: number, keepAlive: boolean, onReadable: () => void): void;
  /** Ends the wait without a call. */
  cancelWait(): void;
  counters(): LinkCounters;
  /**
   * The link-layer destination for a peer: its MAC, or the next hop's (route and neighbour look-up of the kernel;
   * resolves if it is not known yet).
   * @throws VerbsError EHOSTUNREACH with the reason
   */
  resolve(destination: string, source: string): Promise<Resolved>;
  /**
   * Calls back after `interface` and `features` have changed: the interface went down or up, has another MTU, or lost or
   * got an address. A second call replaces the first. A link without it stands on what never changes.
   */
  watchInterface?(onChange: () => void): void;
  /**
   * From now on frames for a multicast group arrive too, also those that this link sends itself. Only once for a group.
   * A link without it has no multicast.
   * @param group an IP address
   * @throws VerbsError
   */
  joinGroup?(group: string): void;
  /** Ends it. Nothing happens when the link has not joined. */
  leaveGroup?(group: string): void;
  close(): void;
}

/** @throws VerbsError EOPNOTSUPP when the link has no multicast, and what it throws itself */
export function joinGroup(link: Link, group: string): void {
  if (!link.joinGroup) throw new VerbsError('EOPNOTSUPP', `the ${link.kind} link has no multicast, so not ${group}`);
  link.joinGroup(group);
}

export interface Resolved {
  readonly destMac: Uint8Array;
  /** 802.1Q tag control information, when the interface is a VLAN of the one the link sends on. */
  readonly vlanTci?: number;
  readonly hopLimit?: number;
  /** Path MTU of the route in bytes of IP packet, when the kernel knows a smaller one than the interface's. */
  readonly pathMtu?: number;
}
