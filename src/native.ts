/**
 * Loads the native addon (`native/`) and declares its interface.
 *
 * The addon validates no arguments. Its functions return a count, a file descriptor or a negative errno; callers check
 * the arguments first and turn an errno into an error. IP addresses are 4 or 16 bytes and MAC addresses 6 bytes, both
 * in network byte order. Ports, interface indexes and scope ids are plain numbers.
 *
 * Each thread loads its own instance of the addon. An object belongs to the thread that created it; `transfer` and
 * `AdoptedSocket` let a second thread move the frames of a socket. Functions that take a file descriptor without owning
 * it (`xskWakeTx`, `eventfdSignal` and so on) work in any thread of the process.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { VerbsError } from './errors.js';
import { packageFile } from './packagefile.js';

/** Moves frames between the rings in a card's memory and the network: the common part of packet and UDP sockets. */
export interface NativeFrameSocket {
  /**
   * Sets the memory and the rings that `send` and `receive` use. Call it once, before `transfer`.
   * @param memory the card's memory; referenced until `close`
   * @param layout ten numbers: producer, consumer and descriptors (byte offsets in `memory`) and mask of the transmit
   * ring, the same four of the receive ring, bytes of a receive slot, and 1 if the socket folds the ICRC of received
   * packets (`LinkFeatures.icrcOffload`), else 0
   */
  attach(memory: Uint8Array, layout: Uint32Array): void;
  /**
   * Sends frames from the transmit ring until the ring is empty or the kernel is busy. Never blocks.
   * @returns the number of descriptors consumed; its bitwise complement (`~`) if the kernel has just refused a GSO
   * burst, after which the socket sends every frame by itself
   */
  send(): number;
  /**
   * Receives one batch of frames (up to 64 messages of each socket) into the receive ring. Never blocks.
   * @returns the number of descriptors produced
   */
  receive(): number;
  /**
   * Lets another thread move the frames; this thread still manages the socket. Ends with `close`.
   * @returns the id for `AdoptedSocket`, the same for each call
   */
  transfer(): number;
  /** Returns the counts since the socket was opened, named as the link's counters. */
  counters(): Record<string, number>;
  /** Closes the socket, ends the transfer and releases the memory. */
  close(): void;
}

/** A socket that another thread has transferred. The methods return 0 after that thread has closed the socket. */
export interface NativeAdoptedSocket extends Pick<NativeFrameSocket, 'send' | 'receive'> {
  /**
   * As `receive`, for sockets beside an interface, at which it looks after a wait and while the caller polls, and
   * otherwise every millisecond.
   * @param hasOthers whether the interface has brought frames in this turn
   */
  receiveLocal(hasOthers: boolean): number;
}

/** Parameters of a NativeCardThread. All memory is shared, and referenced as long as the object exists. */
export interface NativeCardPlan {
  /** The card's memory. */
  readonly memory: Uint8Array;
  /** As of `NativeFrameSocket.attach`. */
  readonly layout: Uint32Array;
  /** The words of the TurnLock. */
  readonly words: Int32Array;
  /** The number that `transfer` of the socket has returned. */
  readonly socket: number;
  /** A file descriptor that is readable when the socket has frames. */
  readonly socketFd: number;
  /** Its word is set to 1 when the kernel has refused a GSO burst. */
  readonly gsoRefused: Int32Array;
  /** The eventfds that wake the card's thread, and the application's. */
  readonly workerEventfd: number;
  readonly appEventfd: number;
  /** Maximum time to poll for work before a sleep (ns). */
  readonly spinNs: number;
  /** Value of process.hrtime when the device's clock is 0 (ns). */
  readonly clockOrigin: bigint;
}

/** A thread without JavaScript that takes the turns of the card as C, on a packet or UDP socket. */
export interface NativeCardThread {
  /** Starts the thread. @returns 0 or -errno */
  start(): number;
  /** Makes the thread take its last turns and stop, and waits for that. Does nothing if it does not run. */
  join(): void;
}

/** A packet socket (packet(7)) on one interface that receives RoCEv2 frames only. */
export interface NativePacketSocket extends NativeFrameSocket {
  /**
   * Opens the socket and binds it to an interface.
   * @param mac the interface's; sent frames with this destination loop back into the receive ring
   * @param bufferBytes size of the socket's receive buffer and of its send buffer
   * @returns 0 or -errno
   */
  open(ifindex: number, mac: Uint8Array, bufferBytes: number): number;
  /**
   * From now on the socket receives, of the packets without UDP checksum, only those to queue pairs whose numbers, in
   * the bits of `mask`, are `value`, to queue pair 1, and to the queue pair number of multicast.
   * @returns 0 or -errno
   */
  steer(mask: number, value: number): number;
  /**
   * Shares the addresses with other programs: from now on the socket receives only packets to the queue pairs of the
   * slot (bits 16 to 23 of their numbers), and of the messages to queue pair 1 answers to the slot. Frames to the MAC
   * address zero leave by `local`, and what `local` receives goes to the same receive ring. `local` is attached to the
   * same memory, never moves frames by itself, and is closed after this socket.
   * @param slot 0: the interface is the loopback interface, and all frames are moved by `local`
   * @returns 0 or -errno
   */
  share(local: NativeUdpSockets, slot: number): number;
  /**
   * Makes a ring that the kernel writes single frames into. The socket receives nothing until `mapRing`.
   * @param bytes of the ring, a multiple of 64 KiB
   * @param frameBytes bytes of a frame and of what the kernel puts in front of it, a multiple of 16
   * @returns 0 or -errno; -EOPNOTSUPP before Linux 6.2
   */
  makeRing(bytes: number, frameBytes: number): Promise<number>;
  /**
   * Maps the ring into the memory that `attach` was given, whose slots hold super-packets. The sizes are those that the
   * ring was made with.
   * @param offset a multiple of 64 KiB
   * @returns 0 or -errno
   */
  mapRing(offset: number, bytes: number, frameBytes: number): number;
  /**
   * Binds a UDP port, so that the kernel does not answer its datagrams with ICMP "port unreachable".
   * @param scopeId interface index of a link-local address, else 0
   * @param isShared whether other sockets of this user that share it may bind the port, too
   * @returns 0 or -errno
   */
  bindPort(address: Uint8Array, port: number, scopeId: number, isShared: boolean): number;
  /** Closes the port that `bindPort` bound for an address. Does nothing if there is none. */
  unbindPort(address: Uint8Array): void;
  /** Joins a multicast group, also by the group's MAC address. @param mac the group's @returns 0 or -errno */
  joinGroup(address: Uint8Array, mac: Uint8Array, ifindex: number): number;
  /** Leaves a multicast group. Does nothing if the socket has not joined. @param mac the group's */
  leaveGroup(address: Uint8Array, mac: Uint8Array, ifindex: number): void;
  /** Returns the file descriptor of the socket, or -1. */
  fd(): number;
}

/** UDP sockets: one for each local address and one for each multicast group. */
export interface NativeUdpSockets extends NativeFrameSocket {
  /**
   * Opens a socket and binds it to a local address.
   * @param scopeId interface index of a link-local address, else 0
   * @param bufferBytes size of the socket's receive buffer and of its send buffer
   * @param ifindex interface by which datagrams to multicast groups leave
   * @returns 0 or -errno
   */
  add(address: Uint8Array, port: number, scopeId: number, bufferBytes: number, ifindex: number): number;
  /**
   * Uses a duplicate of a UDP socket that is bound to a local address, with the options of one that `add` opens.
   * @returns 0 or -errno
   */
  adopt(fd: number, address: Uint8Array, port: number, scopeId: number, bufferBytes: number, ifindex: number): number;
  /**
   * Opens a socket that sends the frames with its source port.
   * @param port 0: one that is free
   * @param hasChecksum false: its datagrams have no UDP checksum, and must not be GSO bursts
   * @returns the port, or -errno
   */
  addSender(address: Uint8Array, port: number, scopeId: number, bufferBytes: number, hasChecksum: boolean): number;
  /** Closes the socket of a local address. Does nothing if there is none. Senders stay. */
  remove(address: Uint8Array): void;
  /** Opens a socket that receives from a multicast group. @returns its file descriptor, or -errno */
  joinGroup(group: Uint8Array, port: number, scopeId: number, bufferBytes: number, ifindex: number): number;
  /** Closes the socket of a multicast group. Does nothing if there is none. */
  leaveGroup(group: Uint8Array): void;
  /** Returns whether the kernel has UDP_SEGMENT and UDP_GRO. Call it before `attach`, which sets UDP_GRO. */
  supportsGso(): boolean;
  /** Returns the file descriptors of all sockets. */
  fds(): number[];
  /** Returns the file descriptor of the socket with an address of 4 or 16 bytes, or -1. */
  fdOf(address: Uint8Array): number;
}

/** A UDP socket that sends single frames and learns of the ICMP errors that they meet (IP_RECVERR of ip(7)). */
export interface NativeErrorSocket {
  /**
   * Opens the socket and binds it to a local address. It receives no datagrams.
   * @param port 0: one that is free
   * @param scopeId interface index of a link-local address, else 0
   * @returns 0 or -errno
   */
  open(address: Uint8Array, port: number, scopeId: number): number;
  /** Returns the UDP port of the socket. */
  port(): number;
  /** Returns the file descriptor, readable when there is an error; -1 if closed. */
  fd(): number;
  /** Sends the payload of a frame, with identification 0 over IPv4. Never blocks. @returns 0 or -errno */
  send(frame: Uint8Array): number;
  /** Takes the oldest error. @returns -errno and the destination of the frame, or undefined if there is none */
  read(): { readonly errno: number; readonly address: Uint8Array } | undefined;
  /** Closes the socket. */
  close(): void;
}

/** The table of a card's regions outside of its memory, which all threads of the process share. */
export interface NativeRegions {
  /** Returns the card's imports: see `CardImports` of device/regions.ts. */
  imports(): Record<'fetch' | 'place' | 'atomic', (region: number, offset: number, at: number, what: number) => number>;
  /**
   * Adds a region.
   * @param bytes not of a resizable ArrayBuffer: that would end the process
   * @returns its number; 0 if there are too many; -EINVAL if it is the card's own memory; -EOPNOTSUPP if the runtime
   * cannot keep the memory of an ArrayBuffer
   */
  add(bytes: Uint8Array, isWritable: boolean): number;
  setWritable(region: number, isWritable: boolean): void;
  /** The region has other memory from now on. @param bytes of an ArrayBuffer that nobody else has */
  move(region: number, bytes: Uint8Array): void;
  remove(region: number): void;
  /** Copies what is at an offset of a region. @returns false if that is not all in the region */
  read(region: number, offset: number, into: Uint8Array): boolean;
}

/** The four rings of an AF_XDP socket: values of `kind` in `mapRing`. */
export const XskRing = { RX: 0, TX: 1, FILL: 2, COMPLETION: 3 } as const;

/** The link's part of the ICRC (`LinkFeatures.icrcOffload`) of frames that JavaScript moves. */
export interface NativeRingIcrc {
  /** Completes the frames of the transmit ring that lack a part, fetches their shares, and clears their options. */
  complete(): void;
  /** Folds the frames of the receive ring from a cursor on, and sets their option. */
  fold(cursor: number): void;
}

/**
 * An AF_XDP socket whose UMEM and rings lie in the card's memory. Call `open`, `registerUmem` (on the first of the
 * sockets that share the UMEM), `mapRing` for each ring, then `bind`.
 */
export interface NativeXskSocket {
  /** Opens the socket. @param memory the card's, page-aligned; referenced until `close` @returns its fd, or -errno */
  open(memory: Uint8Array): number;
  /** Registers a part of the memory as UMEM. @param offset a multiple of the page size @returns 0 or -errno */
  registerUmem(offset: number, bytes: number, chunkBytes: number): number;
  /**
   * Maps a ring of the kernel over `room` bytes of the memory, until `close`.
   * @param kind a value of `XskRing`
   * @param offset a multiple of the page size
   * @returns byte offsets in the memory of its producer, consumer, flags and first entry, or -errno; -EFAULT if the
   * ring does not fit into `room`
   */
  mapRing(kind: number, entries: number, offset: number, room: number): Uint32Array | number;
  /** Binds to a queue. @param sharedFd the socket that shares its UMEM, if `flags` say so @returns 0 or -errno */
  bind(ifindex: number, queue: number, flags: number, sharedFd: number): number;
  /** Sets SO_PREFER_BUSY_POLL and SO_BUSY_POLL. @param budget frames per poll @returns 0 or -errno */
  busyPoll(microseconds: number, budget: number): number;
  /** Sets how many frames one `xskWakeTx` sends in copy mode (XDP_MAX_TX_SKB_BUDGET). @returns 0 or -errno */
  txBudget(frames: number): number;
  /** Returns whether the bound socket works in zero-copy mode (XDP_OPTIONS_ZEROCOPY). */
  isZeroCopy(): boolean;
  /** Returns the kernel's counts since the socket was opened (`struct xdp_statistics`). */
  statistics(): Record<'rxDropped' | 'rxRingFull' | 'rxFillEmpty' | 'rxInvalid' | 'txInvalid', number>;
  /** Closes the socket and replaces its rings with zeroed memory. */
  close(): void;
}

/** Waits in the event loop until a file descriptor is readable or a timer expires, then calls back once. */
export interface NativePoller {
  /** Creates the epoll instance and adds the file descriptors. Call it once, first. @returns 0 or -errno */
  open(fds: readonly number[]): number;
  /** Adds a file descriptor. It is removed when it is closed. @returns 0 or -errno */
  add(fd: number): number;
  /** Returns the epoll instance: a file descriptor that is readable when one of the others is. -1 if closed. */
  fd(): number;
  /**
   * Starts a wait, or replaces the one that runs.
   * @param nanoseconds from now until the timer expires; negative = no timer
   * @param keepAlive whether this wait keeps the process running
   */
  start(nanoseconds: number, keepAlive: boolean): void;
  /** Ends the wait without a callback. */
  stop(): void;
  /** Ends the wait and closes the epoll instance and its timer. The added file descriptors stay open. */
  close(): void;
}

/** An object or a program of libbpf; null = none. */
export type LibbpfHandle = { readonly brand: 'libbpf' } | null;

/**
 * Functions of libbpf; the names are those of libbpf in short. They return what libbpf returns: 0, an id or a file
 * descriptor, or -errno.
 */
export interface NativeLibbpf {
  /** Returns null if the file cannot be read. `closeObject` closes the object. */
  openObject(path: string): LibbpfHandle;
  loadObject(object: LibbpfHandle): number;
  closeObject(object: LibbpfHandle): void;
  findProgram(object: LibbpfHandle, name: string): LibbpfHandle;
  /** Returns a file descriptor that the object owns. */
  programFd(program: LibbpfHandle): number;
  /** Returns a file descriptor that the object owns. */
  findMapFd(object: LibbpfHandle, name: string): number;
  /**
   * @param flags XDP_FLAGS_DRV_MODE or XDP_FLAGS_SKB_MODE (linux/if_link.h)
   * @returns a file descriptor of the bpf_link
   */
  attachXdp(programFd: number, ifindex: number, flags: number): number;
  updateElement(mapFd: number, key: Uint8Array, value: Uint8Array): number;
  deleteElement(mapFd: number, key: Uint8Array): number;
  /** Returns all keys of a map. */
  keys(mapFd: number, keyBytes: number): Uint8Array[];
  programById(id: number): number;
  mapById(id: number): number;
  linkById(id: number): number;
  /**
   * Returns the id after this one in the kernel's list of links; undefined after the last, or without CAP_SYS_ADMIN.
   */
  nextLinkId(id: number): number | undefined;
  /** Returns tag (the hash of the program's instructions), name and maps (16 at most) of a program. */
  programInfo(fd: number): { readonly tag: string; readonly name: string; readonly mapIds: readonly number[] };
  mapName(fd: number): string;
  /** Returns program and interface of an XDP link; undefined for a link of another type. */
  linkInfo(fd: number): { readonly programId: number; readonly ifindex: number } | undefined;
}

/** A message of a Unix socket. The receiver owns its file descriptors. */
export interface UnixMessage {
  readonly bytes: Uint8Array;
  readonly fds: readonly number[];
}

/**
 * Unix sockets that keep messages apart and carry file descriptors (unix(7)). None of the functions blocks. Names are
 * abstract: they belong to the network namespace, and end with their socket.
 */
export interface NativeUnix {
  /** Opens a listening socket. @returns its file descriptor, or -errno; -EADDRINUSE if the name is taken */
  listen(name: string): number;
  /** Connects to a listening socket. @returns a file descriptor, or -errno; -ECONNREFUSED if nobody has the name */
  connect(name: string): number;
  /** Accepts a connection. @returns its file descriptor, or -errno; -EAGAIN if there is none */
  accept(fd: number): number;
  /** Opens two sockets that are connected by a stream. @returns their file descriptors, or -errno */
  pair(): [number, number] | number;
  /** Opens a socket that receives what it sends itself, in that order. @returns its file descriptor, or -errno */
  queue(): number;
  /** Returns process, user and group of the peer as they were when it connected or listened, or -errno. */
  peer(fd: number): { readonly pid: number; readonly uid: number; readonly gid: number } | number;
  /**
   * Sends a message.
   * @param fds at most 253; the peer receives duplicates
   * @returns 0 or -errno; -EAGAIN if the peer has too many unread ones
   */
  send(fd: number, bytes: Uint8Array, fds: readonly number[]): number;
  /**
   * Takes the oldest message.
   * @param peek the message also stays; its file descriptors are duplicates
   * @returns undefined if the peer has closed; -errno, -EAGAIN if there is no message, -EMSGSIZE for one of more than
   * 64 KiB, which is dropped
   */
  receive(fd: number, peek: boolean): UnixMessage | number | undefined;
}

/** UDP sockets that share one address and port (SO_REUSEPORT): a group. */
export interface NativePorts {
  /**
   * Opens a socket in the group of an address and port, with the options of `NativeUdpSockets.add`. It must be of the
   * same user as the others.
   * @param receives false: it drops every datagram
   * @returns its file descriptor, or -errno
   */
  member(address: Uint8Array, port: number, scopeId: number, bufferBytes: number, receives: boolean): number;
  /**
   * Says whether a socket can be bound to an address and port.
   * @param isMember whether it would be bound beside a group of this user
   * @returns 0, or -errno
   */
  isFree(address: Uint8Array, port: number, scopeId: number, isMember: boolean): number;
  /**
   * Sets the classic BPF program that returns, for the payload of a datagram, the index of the member that receives it.
   * @param program two numbers for each instruction: `code << 16 | jt << 8 | jf`, and `k` (struct sock_filter)
   * @returns 0 or -errno
   */
  steer(fd: number, program: Uint32Array): number;
  /** Refuses later changes of the socket's filter and of the group's program by this socket. @returns 0 or -errno */
  lock(fd: number): number;
  /** Drops what the socket has received. */
  drain(fd: number): void;
}

/**
 * The functions and classes of the addon. The thread that receives a file descriptor from a function here owns it:
 * `closeFd` closes it, or the end of the thread.
 */
export interface NativeAddon {
  /** Returns the CRC methods of this processor, the one that sockets use first. Empty = no ICRC offload. */
  crcMethods(): string[];
  /**
   * Continues a CRC-32 (reflected polynomial 0xEDB88320).
   * @param method one of `crcMethods`
   * @param register the CRC so far, not complemented
   * @param bytes a multiple of 256 bytes
   * @param copy memory to which the method copies the bytes as it reads them. Default: it does not copy
   * @returns the register after them, not complemented
   */
  crc(method: string, register: number, bytes: Uint8Array, copy?: Uint8Array): number;
  readonly PacketSocket: new () => NativePacketSocket;
  readonly UdpSockets: new () => NativeUdpSockets;
  readonly ErrorSocket: new () => NativeErrorSocket;
  /** @param memory all of the card's, of which there is one table */
  readonly Regions: new (
    memory: Uint8Array,
  ) => NativeRegions;
  readonly XskSocket: new () => NativeXskSocket;
  /** @param memory, layout as of `NativeFrameSocket.attach`. There must be CRC methods. */
  readonly RingIcrc: new (
    memory: Uint8Array,
    layout: Uint32Array,
  ) => NativeRingIcrc;
  /** Makes the kernel process the transmit ring of an AF_XDP socket. @returns 0 or -errno */
  xskWakeTx(fd: number): number;
  /** Makes the kernel process the fill ring, and poll the interface if busy polling is set. @returns 0 or -errno */
  xskWakeRx(fd: number): number;
  /** Joins a multicast group until the returned file descriptor is closed. @returns it, or -errno */
  joinGroup(address: Uint8Array, ifindex: number): number;
  readonly Poller: new (onReady: () => void) => NativePoller;
  /** @param id the number that `transfer` returned, in any thread of this process */
  readonly AdoptedSocket: new (
    id: number,
  ) => NativeAdoptedSocket;
  readonly CardThread: new (plan: NativeCardPlan) => NativeCardThread;
  /**
   * Blocks as long as a word has the value, for at most that time. May return earlier.
   * @param words of shared memory
   */
  futexWait(words: Int32Array, index: number, value: number, milliseconds: number): void;
  /** Wakes a thread that waits for a change of the word. */
  futexWake(words: Int32Array, index: number): void;
  /** Duplicates a file descriptor (F_DUPFD_CLOEXEC). @returns the duplicate, or -errno */
  dupFd(fd: number): number;
  /** Closes a file descriptor. Does nothing if this thread does not own it, or has closed it already. */
  closeFd(fd: number): void;
  /** Hands a file descriptor over: this thread does not own it any more, and whoever takes it closes it. */
  releaseFd(fd: number): void;
  /**
   * Creates an eventfd (eventfd(2)).
   * @returns a file descriptor, readable from `eventfdSignal` to `eventfdClear`, or -errno
   */
  eventfdOpen(): number;
  /** Makes an eventfd readable. */
  eventfdSignal(eventfd: number): void;
  /** Resets an eventfd, so that it is not readable. */
  eventfdClear(eventfd: number): void;
  /**
   * Blocks the thread until the eventfd is signalled, `fd` is readable, or the time is over. Clears the eventfd if it
   * was signalled.
   */
  eventfdWait(eventfd: number, fd: number, nanoseconds: number): void;
  /**
   * Locks a byte of a file, which is made if it is missing.
   * @param byte offset of the byte, below 2^63; it need not exist
   * @returns a file descriptor that keeps the lock until it is closed, or -errno; -EAGAIN if another one has the lock
   */
  nameLockTake(path: string, byte: bigint): number;
  /** Returns whether a file descriptor of this process or another one has locked the byte. */
  nameLockIsTaken(path: string, byte: bigint): boolean;
  /**
   * Sends one netlink request and waits for the reply, at most 1 s for each part of it.
   * @param protocol of netlink(7)
   * @returns all messages of the reply, or -errno
   */
  netlinkExchange(protocol: number, request: Uint8Array): Uint8Array | number;
  /** Opens a socket with the kernel's notifications (rtnetlink(7)). @param groups RTMGRP_* @returns fd or -errno */
  netlinkListen(groups: number): number;
  /**
   * Returns the oldest notification, and removes it.
   * @param fd from `netlinkListen`
   * @returns its messages, or -errno: EAGAIN for none, ENOBUFS if some were lost
   */
  netlinkReceive(fd: number): Uint8Array | number;
  /** Opens libbpf, at the first call in the process. @returns its functions, or why it does not load */
  libbpf(): NativeLibbpf | string;
  /**
   * Gives the pages of a memory back to the kernel at once. They read as zero from then on. The first and the last page
   * stay if other bytes lie in them.
   */
  releasePages(bytes: Uint8Array): void;
  /**
   * Sends one datagram to a Unix socket, waiting at most 1 s for room in its queue.
   * @param path of the socket; one that begins with `@` is an abstract name (unix(7))
   * @returns 0 or -errno; -ENAMETOOLONG if the path is empty or longer than 107 bytes
   */
  notify(path: string, text: string): number;
  readonly unix: NativeUnix;
  readonly ports: NativePorts;
  /** Opens a socket that sees the RoCEv2 frames of an interface, received and sent. @returns its fd, or -errno */
  tapOpen(ifindex: number): number;
  /**
   * Takes the oldest frame that a tap has seen. Never blocks.
   * @param frame receives the frame's first bytes
   * @param times receives the kernel's time of the frame (CLOCK_REALTIME, ns; 0 = none), the bytes of the frame, and
   * whether it was sent (1) or received (0)
   * @returns 1, or 0 if there is none
   */
  tapRead(fd: number, frame: Uint8Array, times: BigInt64Array): number;
  /** Reads CLOCK_REALTIME less CLOCK_MONOTONIC, and how far that may be off, in ns. @param result receives both */
  clockOffset(result: BigInt64Array): void;
  /**
   * Keeps a frame that is sent when the process or this thread ends: by exit, by an exception, or by a signal of
   * `lastFrameSignals`. `lastFrameDrop` drops it; closing the socket does, too.
   * @param fd a packet socket, which sends the frame by `ifindex`, or a UDP socket, which sends its payload
   * @param frame at most 384 bytes
   * @returns a number for `lastFrameDrop`, or -errno; -ENOSPC for more than 2^20 frames
   */
  lastFrameKeep(fd: number, frame: Uint8Array, ifindex: number): number;
  /**
   * From now on the signals that end the process, and that the program does not handle now, send the kept frames before
   * they do so.
   */
  lastFrameSignals(): void;
  /** Drops a kept frame. Does nothing for one that was dropped already. */
  lastFrameDrop(id: number): void;
  /** Opens a packet socket that receives nothing, for `lastFrameKeep`. @returns a file descriptor, or -errno */
  lastFrameSocket(): number;
}

/** One file for each processor, for glibc and musl alike. */
const ADDON = packageFile(`prebuilds/linux-${process.arch}/wasm_roce.node`);
const BUILDER = packageFile('native/build.mjs');
let loaded: NativeAddon | undefined;

/**
 * Returns the addon, which the first call loads.
 * @throws VerbsError EOPNOTSUPP if there is no addon for this processor, or it does not load; the message says how to
 * build it
 */
export function native(): NativeAddon {
  if (loaded) return loaded;
  try {
    loaded = createRequire(import.meta.url)(ADDON) as NativeAddon;
    return loaded;
  } catch (cause) {
    throw new VerbsError('EOPNOTSUPP', `${reasonOf(cause as Error)}, or use the memory link, which needs no addon`, {
      cause,
    });
  }
}

/** Returns why the addon does not load, and what helps. */
function reasonOf({ message, code }: NodeJS.ErrnoException): string {
  if (code === 'ERR_DLOPEN_DISABLED')
    return (
      "the native addon does not load: Node's options forbid addons (--no-addons, or the permission model without " +
      '--allow-addons): change them'
    );
  const reason = existsSync(ADDON)
    ? `the native addon does not load (${message.split('\n')[0]})`
    : `the native addon for linux-${process.arch} is missing`;
  return (
    `${reason}: build it with \`node ${BUILDER}\`, which needs CMake, g++, the headers of Linux, ` +
    'and the packages cmake-js and node-addon-api'
  );
}
