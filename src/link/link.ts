/**
 * The contract of a link. A link moves whole Ethernet frames between the rings in a card's memory and a network: an
 * interface of the host (`packet`, `udp`, `xdp`) or other cards of the process (`memory`). `fault` and `pcap` wrap
 * another link.
 *
 * Words:
 * - frame: an Ethernet frame without frame check sequence.
 * - ring, descriptor, slot: a ring of descriptors in the card's memory; each descriptor names a slot that holds a
 *   frame.
 * - GSO burst: consecutive packets of one queue pair that the link may send as one super-packet.
 * - super-packet: one received descriptor that stands for several packets (GRO).
 * - mover: the part of a link that moves frames (`FrameMover`). It may run in another thread than the rest.
 * - transfer, adopt: one thread transfers a link's mover, the card's thread adopts it (transfer.ts).
 *
 * Invariants:
 * - A link knows frames and IP addresses. It knows nothing of queue pairs, except for the numbers of flow steering, and
 *   imports nothing of the device.
 * - The card moves the producer of the transmit ring and the consumer of the receive ring; the link moves the other
 *   two. After `attach` only the thread that takes the device's turns writes the rings: it alone calls `send` and
 *   `receive`.
 * - `send` and `receive` never block and never throw for what happens on the network. They count it instead.
 * - All other methods belong to the thread that opened the link. After `transfer`, both threads share only plain data:
 *   the card's memory, file descriptors, and the SharedArrayBuffers of the transfer.
 */
import { type IcmpErrorCode, VerbsError } from '../errors.js';
import type { FrameMover, Frames } from './frames.js';
import type { LinkTransfer } from './transfer.js';

/** Sizes of a card that is not made yet, for its link. */
export interface CardRoom {
  /** As `Frames.slotBytes`. */
  readonly slotBytes: number;
  /** Bytes of the card's memory. */
  readonly memoryBytes: number;
}

/** Features of a link. They may change while the link is open; see `Link.watchInterface`. */
export interface LinkFeatures {
  /** Largest frame in bytes, with Ethernet header, without frame check sequence. */
  readonly maxFrame: number;
  /**
   * Received IPv4 headers are as the sender wrote them. If false, the identification of received frames is 0 and their
   * `options` carry RX_IP_ID_UNKNOWN.
   */
  readonly ipHeaderVisible: boolean;
  /** UDP source port of every sent frame, whatever the card wrote; 0 = as the card wrote it. */
  readonly sourcePort: number;
  /**
   * IPv4 identification of sent frames: `as written` by the card, or `zero`. With `zero` the link sends identification
   * 0 and DF, and the card must write the same, because the ICRC covers both.
   */
  readonly ipIdentification: 'as written' | 'zero';
  /** Limits of a GSO burst: packets, and bytes of UDP payload. Without it the card marks no bursts. */
  readonly gso?: { readonly packets: number; readonly bytes: number };
  /**
   * The link delivers packets to the queue pairs whose numbers, in the bits of `mask`, are `value`; other queue pairs
   * may be those of other cards. It always delivers packets to queue pair 1 and to multicast groups. Without it the
   * link delivers all packets.
   */
  readonly flowSteering?: { readonly mask: number; readonly value: number };
  /**
   * The link computes most of a large packet's ICRC. The ICRC span is the last bytes before the ICRC: the largest power
   * of two from 256 to 4096 that fits into the bytes after the BTH. The card does smaller packets alone.
   *
   * Transmit: `options >>> TX_ICRC_SHIFT` is the span in bytes, 0 = none. The ICRC field holds the CRC register before
   * the span; the link continues the CRC from there and writes the ICRC. With TX_FETCH_SPAN the bytes of the span
   * are elsewhere in the card's memory, and their place in the frame begins with their address (u64, little-endian).
   * The link copies them into the frame before `send` returns, even if the frame stays in the ring.
   *
   * Receive: the link XORs the CRC of the span, with an initial register of 0 and not complemented, into the ICRC
   * field, and sets RX_ICRC_FOLDED in the descriptor's options.
   */
  readonly icrcOffload?: boolean;
  /** Bytes that a receive slot must have for super-packets. Without it the link delivers none. */
  readonly coalescedBytes?: number;
}

/** A link's counters by name: `tx_frames`, `rx_dropped` and so on, and gauges such as `rx_buffer_bytes`. */
export interface LinkCounters {
  readonly [name: string]: number;
}

/** The local interface of a link: what the card must know to write frames for it. */
export interface LinkInterface {
  /** Name of the interface, `eth0` for instance. */
  readonly name: string;
  /** Index of the interface (if_nametoindex(3)). */
  readonly index: number;
  /** MTU of the interface in bytes of IP packet. */
  readonly mtu: number;
  /** MAC address, 6 bytes. */
  readonly mac: Uint8Array;
  /** Local IP addresses, as text. */
  readonly addresses: readonly string[];
  /** Whether the interface is up. */
  readonly up: boolean;
}

/** Names that are unique among all cards that may share an address: on an interface, in all processes of this user. */
export interface HostNames {
  /** Binds a name until the returned function is called or the process ends. Returns undefined if the name is bound. */
  bind(name: string): (() => void) | undefined;
  /** Returns whether any card, of this process or another one, has bound the name. */
  isBound(name: string): boolean;
}

/**
 * The port of addresses that several programs of the host share: each receives the packets to its own queue pairs
 * (`LinkFeatures.flowSteering`), and of the messages to queue pair 1 those that are for it.
 */
export interface SharedPort {
  /** First byte of the communication ids that the card assigns: answers to them reach it. 1 to 255. */
  readonly slot: number;
  /**
   * Called when the port is lost, with the reason: the link is closed then, because its sockets may receive what is for
   * another program.
   */
  onLost: (reason: string) => void;
  /**
   * Called when somebody who may control the programs of the host connects to this one, with the file descriptor of a
   * stream that the receiver owns (`NativeAddon.closeFd`).
   */
  onControl: (fd: number) => void;
  /**
   * The card handles messages to queue pair 1 from now on, among them those that are for none of the programs, which it
   * refuses.
   * @throws VerbsError
   */
  handleMads(): Promise<void>;
  /**
   * Requests of the CM for a service on an address reach the card from now on.
   * @returns ends that
   * @throws VerbsError EADDRINUSE if another program listens there
   */
  listen(serviceId: bigint, address: string): Promise<() => void>;
}

/**
 * Binds the first of `count` numbered names that is free, from number `start` on.
 * @returns the number, and what releases the name; undefined if all are bound
 */
export function bindFree(
  names: HostNames,
  count: number,
  start: number,
  nameOf: (number: number) => string,
): { readonly number: number; release(): void } | undefined {
  for (let i = 0; i < count; i++) {
    const number = (start + i) % count;
    const release = names.bind(nameOf(number));
    if (release !== undefined) return { number, release };
  }
  return undefined;
}

/** An ICMP error that a frame has met. */
export interface IcmpError {
  /** ECONNREFUSED for "port unreachable", the others where the host is not reached. */
  readonly code: IcmpErrorCode;
  /** IP address that the frame was sent to. */
  readonly destination: string;
}

/** A socket that sends single frames and learns of the ICMP errors that they meet. */
export interface ErrorSocket {
  /** UDP source port of its frames: the ICRC covers it. */
  readonly port: number;
  /** Sends the payload of a frame. @returns false if the kernel refuses it */
  send(frame: Uint8Array): boolean;
  /** Closes the socket. A second call does nothing. */
  close(): void;
}

/** Moves Ethernet frames between a card and a network. See the head of this file for the invariants. */
export interface Link extends FrameMover {
  /** Kind of the link: `packet`, `udp`, `xdp` or `memory`. A wrapper has the kind of the link inside it. */
  readonly kind: string;
  /** Description of the link, for people to read. Complete after `attach`. */
  readonly notes?: readonly string[];
  /** Features of the link. */
  readonly features: LinkFeatures;
  /** Says why the capture of the frames is not whole; undefined when it is, or when there is none. */
  readonly captureError?: VerbsError | undefined;
  /** The local interface. */
  readonly interface: LinkInterface;
  /** Names that are unique among the cards of the interface. A link without them shares its addresses with no other. */
  readonly names?: HostNames | undefined;
  /** The port of its addresses, if other programs share it. */
  readonly sharedPort?: SharedPort | undefined;
  /**
   * Prepares what takes long, while the card is made. `openDevice` calls it once, before `attach`, but not for a link
   * inside a wrapper.
   */
  prepare?(room: CardRoom): Promise<void>;
  /**
   * Gives the link the card's memory and rings. Called once, before any other method that moves frames or waits.
   * @throws VerbsError if the kernel refuses what the link needs
   */
  attach(frames: Frames): void;
  /**
   * Lets another thread move the frames: `adoptLink` there makes a mover from the result. Call it after `attach`. This
   * thread then no longer sends, receives or waits, and may call everything else at any time. Links without this method
   * work in one thread only.
   * @throws VerbsError EOPNOTSUPP
   */
  transfer?(): LinkTransfer;
  /** Applies what the adopting thread has reported. Called after the `notify` that `adoptLink` was given. */
  onTransferNotice?(): void;
  /**
   * Calls `onReadable` once: when there may be something to receive, or at the deadline, whichever is first. A second
   * wait replaces the first.
   * @param deadline nanoseconds on the clock of `performance.now()`; 0 = none
   * @param keepAlive whether this wait keeps the process running
   */
  wait(deadline: number, keepAlive: boolean, onReadable: () => void): void;
  /** Ends the wait without a callback. */
  cancelWait(): void;
  /** Returns the counts since the link was opened. */
  counters(): LinkCounters;
  /**
   * Resolves the link-layer destination of a peer: its MAC address, or that of the next hop. Uses the kernel's routes
   * and neighbours, and starts neighbour discovery if the neighbour is not known yet.
   * @throws VerbsError EHOSTUNREACH with the reason
   */
  resolve(destination: string, source: string): Promise<Resolved>;
  /**
   * Calls back after `interface` or `features` has changed: the interface went up or down, or its MTU or addresses
   * changed. Calls back at once if that has happened since the link was opened. A second call replaces the first. For
   * a link without this method neither ever changes.
   */
  watchInterface?(onChange: () => void): void;
  /**
   * Calls back when the kernel notifies of a change of routes, or of the MAC address of a neighbour that `resolve` has
   * returned. A second call replaces the first. For a link without this method, `resolve` always returns the same.
   */
  watchPaths?(onChange: () => void): void;
  /**
   * Joins a multicast group: frames to the group are received too, including those that this link sends. Call it once
   * for each group. A link without this method has no multicast.
   * @param group an IP address
   * @throws VerbsError with the kernel's reason
   */
  joinGroup?(group: string): void;
  /**
   * Returns the UDP source port of packets to one of the programs that share the peer's address: another one for each
   * of them, because GRO joins packets of one source port, and gives them as a whole to one program. A link without
   * this method leaves the port to the card, and so does one that returns 0.
   * @param path the local address that the packets come from, and the MAC address that they go to
   * @param program number of the program (`SharedPort.slot`), 0 for one that shares its address with none; `any` for
   * packets that may be for different ones: they must not be GSO bursts
   */
  sourcePortTo?(path: SourcePath, program: number | 'any'): number;
  /** Leaves a multicast group. Does nothing if the link has not joined. */
  leaveGroup?(group: string): void;
  /**
   * Keeps a frame that is sent when the process or the thread ends without closing the link. A link without this method
   * sends nothing then.
   * @param source address that the frame comes from
   * @returns drops the frame; undefined if the link cannot send it
   */
  keepLastFrame?(frame: Uint8Array, source: string): (() => void) | undefined;
  /**
   * Opens a socket whose frames may be answered by ICMP errors: only the kernel sees these, and it tells the socket
   * that has sent the frame. The frames have identification 0 over IPv4 and leave by the kernel's routes. A link
   * without this method never learns of ICMP errors.
   * @param source local address that the frames come from
   * @param onError called for each error, until the socket is closed
   * @returns undefined if the kernel refuses the socket
   */
  openErrorSocket?(source: string, onError: (error: IcmpError) => void): ErrorSocket | undefined;
  /** Closes the link and its sockets. A second call does nothing. */
  close(): void;
}

/** Joins a multicast group. @throws VerbsError EOPNOTSUPP if the link has no multicast, else as `Link.joinGroup` */
export function joinGroup(link: Link, group: string): void {
  if (!link.joinGroup)
    throw new VerbsError('EOPNOTSUPP', `the ${link.kind} link has no multicast: it cannot join ${group}`);
  link.joinGroup(group);
}

/** The part of a path that decides the UDP source port of its packets. */
export interface SourcePath {
  /** Local address that they come from. */
  readonly source: string;
  /** As `Resolved.destMac`. */
  readonly destMac: Uint8Array;
}

/** The path to a peer. */
export interface Resolved {
  /**
   * Destination MAC address of frames to the peer, 6 bytes. Zero where the link does not need it, and for addresses of
   * this host, which the kernel reaches without an interface.
   */
  readonly destMac: Uint8Array;
  /** 802.1Q tag control information, if the route leaves by a VLAN on the link's interface. */
  readonly vlanTci?: number;
  /** Hop limit (TTL) of the route, if the kernel has one set. */
  readonly hopLimit?: number;
  /** Path MTU of the route in bytes of IP packet, if it is smaller than the interface's MTU. */
  readonly pathMtu?: number;
}
