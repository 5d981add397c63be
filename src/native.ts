/**
 * Everything that the native addon offers, declared in one place, and the addon's loading.
 *
 * The addon judges nothing: its functions answer with a count or with a negative errno, and arguments are taken as
 * given. Whoever calls it checks arguments first and words the error afterwards.
 */
import { createRequire } from 'node:module';
import { VerbsError } from './errors.js';

/** What the packet socket and the UDP sockets have in common: they move frames between a card's rings and a network. */
export interface NativeFrameSocket {
  /**
   * @param memory the card's memory; referenced until `close`
   * @param layout of the tx ring: producer, consumer, descriptors (byte offsets), mask; the same of the rx ring; bytes
   * of a slot; 1 when it shall do its part of the ICRC of what it receives, else 0: ten numbers
   */
  attach(memory: Uint8Array, layout: Uint32Array): void;
  /** @returns descriptors taken off the transmit ring; `~` of that when the kernel refuses runs from now on */
  send(): number;
  /** @returns descriptors put into the receive ring */
  receive(): number;
  /**
   * Lets another thread move the frames, while this one goes on to manage the socket. Ends with `close`.
   * @returns the number for `Borrowed`, always the same
   */
  lend(): number;
  counters(): Record<string, number>;
  close(): void;
}

/** A socket that another thread has lent; nothing moves any more when that has closed it. */
export type NativeBorrowed = Pick<NativeFrameSocket, 'send' | 'receive'>;

export interface NativePacketSocket extends NativeFrameSocket {
  /** @param mac frames to this address come back through the receive ring @returns 0 or -errno */
  open(ifindex: number, mac: Uint8Array, bufferBytes: number): number;
  /** Keeps the kernel from answering datagrams to an address and port. @returns 0 or -errno */
  holdPort(address: Uint8Array, port: number, scopeId: number): number;
  /** Nothing happens when it is not held. */
  releasePort(address: Uint8Array): void;
  /** @param address 4 or 16 bytes @param mac the group's @returns 0 or -errno */
  joinGroup(address: Uint8Array, mac: Uint8Array, ifindex: number): number;
  leaveGroup(address: Uint8Array, mac: Uint8Array, ifindex: number): void;
  fd(): number;
}

export interface NativeUdpSockets extends NativeFrameSocket {
  /** Binds one more socket. @param address 4 or 16 bytes @param ifindex where groups are sent to @returns 0 or -errno */
  add(address: Uint8Array, port: number, scopeId: number, bufferBytes: number, ifindex: number): number;
  /** Closes the socket of an address. */
  remove(address: Uint8Array): void;
  /** Joins a group with a socket of its own. @returns the file descriptor or -errno */
  addGroup(group: Uint8Array, port: number, scopeId: number, bufferBytes: number, ifindex: number): number;
  removeGroup(group: Uint8Array): void;
  /** Whether the kernel segments what is sent, and coalesces what has come; asked before `attach`. */
  segments(): boolean;
  fds(): number[];
}

/** The four rings of an AF_XDP socket, as `mapRing` names them. */
export const XskRing = { RX: 0, TX: 1, FILL: 2, COMPLETION: 3 } as const;

/** An AF_XDP socket, step by step: open, registerUmem on the first of several, mapRing for each ring, bind. */
export interface NativeXskSocket {
  /** @param memory the card's, page-aligned; referenced until `close` @returns the file descriptor, or -errno */
  open(memory: Uint8Array): number;
  /** All offsets in the memory are multiples of the page's size. @returns 0 or -errno */
  registerUmem(offset: number, bytes: number, chunkBytes: number): number;
  /**
   * Lays a ring of the kernel's over `room` bytes of the memory, until `close`.
   * @param kind of XskRing
   * @returns where its producer, consumer, flags and first entry are in the memory, or -errno
   */
  mapRing(kind: number, entries: number, offset: number, room: number): Uint32Array | number;
  /** @param sharedFd the socket whose UMEM is shared, when the flags say so @returns 0 or -errno */
  bind(ifindex: number, queue: number, flags: number, sharedFd: number): number;
  /** @param budget frames at once @returns 0 or -errno */
  busyPoll(microseconds: number, budget: number): number;
  /** How many frames one `xskWakeTx` may send in copy mode. @returns 0 or -errno */
  txBudget(frames: number): number;
  isZeroCopy(): boolean;
  /** What the kernel has counted since the socket was opened (struct xdp_statistics). */
  statistics(): Record<'rxDropped' | 'rxRingFull' | 'rxFillEmpty' | 'rxInvalid' | 'txInvalid', number>;
  /** Leaves zeroed memory where the rings were. */
  close(): void;
}

/** Calls back once, in the event loop, when a file descriptor is readable or the time is over. */
export interface NativeWaiter {
  /** Once, first. @returns 0 or -errno */
  open(fds: number[]): number;
  /** One more to watch, until it is closed. @returns 0 or -errno */
  add(fd: number): number;
  /** A file descriptor that is readable when one of them is; after `open`. */
  fd(): number;
  /** Begins a wait, or changes the one that runs. @param nanoseconds from now; negative = no limit */
  start(nanoseconds: number, keepAlive: boolean): void;
  stop(): void;
  close(): void;
}

/** File descriptors that functions here answer with end by `closeFd`, or with the thread that they were opened in. */
export interface NativeAddon {
  /** How sockets can do their part of the ICRC on this processor, the way that they take first; none = they cannot. */
  crcMethods(): string[];
  /** CRC-32 as a register without complements. @param bytes a multiple of 256 @returns the register after them */
  crc(method: string, register: number, bytes: Uint8Array): number;
  readonly PacketSocket: new () => NativePacketSocket;
  readonly UdpSockets: new () => NativeUdpSockets;
  readonly XskSocket: new () => NativeXskSocket;
  /** Makes the kernel look at an AF_XDP socket's transmit ring, from any thread. @returns 0 or -errno */
  xskWakeTx(fd: number): number;
  /** Makes it look at the fill ring, and poll the interface when that is polled busily. @returns 0 or -errno */
  xskWakeRx(fd: number): number;
  /** Joins a multicast group. @returns a file descriptor with whose end the membership ends, or -errno */
  holdGroup(address: Uint8Array, ifindex: number): number;
  readonly Waiter: new (onReady: () => void) => NativeWaiter;
  /** @param id what `lend` has answered in any thread of this process */
  readonly Borrowed: new (
    id: number,
  ) => NativeBorrowed;
  /** Makes another's file descriptor one that ends like ours. @returns the same */
  keepFd(fd: number): number;
  /** @returns a further file descriptor for the same, or -errno */
  copyFd(fd: number): number;
  /** Nothing happens when it is none of this thread's, or was closed here already. */
  closeFd(fd: number): void;
  /** @returns a file descriptor, readable from `wakerWake` until it is emptied, or -errno */
  wakerOpen(): number;
  wakerWake(waker: number): void;
  wakerEmpty(waker: number): void;
  /** Blocks the thread until it is woken, which empties the waker; until `fd` is readable; or until the time is over. */
  wakerSleep(waker: number, fd: number, nanoseconds: number): void;
  /** @param name up to 107 bytes @returns a file descriptor that holds it, EADDRINUSE or another -errno */
  nameHold(name: string): number;
  nameIsHeld(name: string): boolean;
  /** Sends one netlink request. @param protocol of netlink(7) @returns all messages of the answer, or -errno */
  netlinkExchange(protocol: number, request: Uint8Array): Uint8Array | number;
  /** @returns a file descriptor, readable when interfaces or addresses change, or -errno */
  netlinkListen(): number;
  /** Forgets what has come. */
  netlinkDrain(fd: number): void;
}

const PATH = '../build/native/wasm_roce.node';
let loaded: NativeAddon | undefined;

/** Loads the addon at the first call. @throws VerbsError EOPNOTSUPP when it was not built or does not fit */
export function native(): NativeAddon {
  if (loaded) return loaded;
  try {
    loaded = createRequire(import.meta.url)(PATH) as NativeAddon;
    return loaded;
  } catch (cause) {
    throw new VerbsError(
      'EOPNOTSUPP',
      `the native addon does not load (${(cause as Error).message.split('\n')[0]}); ` +
        'build it with `npx cmake-js compile -d native -O build/native`, or use the memory link, which needs none',
      { cause },
    );
  }
}
