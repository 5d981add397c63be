/**
 * The AF_XDP sockets of the xdp link, one for each queue of an interface. They share one UMEM in the card's memory:
 * first the transmit buffers, then the receive chunks. The rings of each socket are separate allocations.
 */
import { performance } from '../../base/timers.js';
import { invalidType, VerbsError } from '../../errors.js';
import { type NativeXskSocket, native, XskRing } from '../../native.js';
import { errnoName } from '../errno.js';
import type { Frames } from '../frames.js';
import type { QueuePlan } from './mover.js';
import { CHUNK_BYTES } from './receiver.js';
import { ADDRESS_WORDS, DESCRIPTOR_WORDS, type RingPlan } from './rings.js';
import { BUFFER_BYTES } from './transmitter.js';

/** The UMEM: memory that the kernel and the card share for frames. */
export interface Umem {
  /** Offset in the card's memory. */
  readonly offset: number;
  readonly bytes: number;
  /** Number of transmit buffers. */
  readonly buffers: number;
  /** Number of receive chunks of all queues. */
  readonly chunks: number;
  /** Offset of the first receive chunk in the UMEM. */
  readonly firstChunk: number;
}

/** A bound socket and its queue. */
export interface XdpQueue extends QueuePlan {
  readonly queue: number;
  readonly socket: NativeXskSocket;
}

/** Options for binding a socket. */
export interface BindOptions {
  /** Frames may have several buffers (XDP_USE_SG). */
  readonly multiBuffer: boolean;
  /** true = zero-copy mode or fail, false = copy mode, undefined = zero-copy mode if the driver offers it. */
  readonly zeroCopy: boolean | undefined;
  /** Time of a busy poll in µs; undefined = off. */
  readonly busyPoll: number | undefined;
}

const BIND = { SHARED_UMEM: 1, COPY: 2, ZERO_COPY: 4, NEED_WAKEUP: 8, USE_SG: 16 } as const;
const PAGE_BYTES = 4096;
/** Receive chunks: as many as fit into a 16th of the card's memory, within these limits. */
const MAX_CHUNKS = 4096;
const MIN_CHUNKS = 256;
const MEMORY_DIVISOR = 16;
/** Frames that one busy poll receives at most. */
const BUSY_POLL_BUDGET = 64;
/** Frames that one system call sends in copy mode at most. */
const TX_BUDGET = 256;
/**
 * Time to wait for the queue of a closed socket: a worker of the kernel releases it about 20 ms after close, and on a
 * busy machine more than 200 ms after it.
 */
const RELEASE_TIMEOUT_MS = 1000;
const RELEASE_POLL_MS = 2;

/**
 * Allocates the UMEM in the card's memory.
 * @throws TypeError without `Frames.allocate`; RangeError if the card has not enough memory left
 */
export function allocateUmem({ memory, tx, allocate }: Frames): Umem {
  if (!allocate) throw invalidType('the xdp link needs Frames.allocate for its packet buffers');
  const slots = tx.mask + 1;
  // 1.5 times the card's slots: the rest is for frames that the kernel is sending.
  const buffers = slots + Math.max(slots >> 1, 1);
  const wanted = memory.length / MEMORY_DIVISOR / CHUNK_BYTES;
  const chunks = 2 ** Math.floor(Math.log2(Math.min(Math.max(wanted, MIN_CHUNKS), MAX_CHUNKS)));
  const firstChunk = buffers * BUFFER_BYTES;
  const bytes = firstChunk + chunks * CHUNK_BYTES;
  return { offset: allocatePages(allocate, bytes), bytes, buffers, chunks, firstChunk };
}

/**
 * Opens a socket and binds it to a queue.
 * @param first the socket that registered the UMEM; undefined = the new socket registers it
 * @returns undefined if the interface has no such queue
 * @throws VerbsError EBUSY, EPERM, ENOMEM, EOPNOTSUPP
 */
export function openQueue(
  frames: Frames,
  umem: Umem,
  { name, index }: { readonly name: string; readonly index: number },
  queue: number,
  first: XdpQueue | undefined,
  options: BindOptions,
): XdpQueue | undefined {
  const socket = new (native().XskSocket)();
  try {
    const fd = socket.open(frames.memory);
    if (fd < 0) throw socketError(fd);
    if (!first) {
      const result = socket.registerUmem(umem.offset, umem.bytes, CHUNK_BYTES);
      if (result < 0) throw umemError(result, umem.bytes);
    }
    const rings = mapRings(frames, umem, socket, !first);
    if (options.busyPoll !== undefined) {
      const result = socket.busyPoll(options.busyPoll, BUSY_POLL_BUDGET);
      if (result < 0) throw new VerbsError('EOPNOTSUPP', `the kernel refuses busy polling (${errnoName(result)})`);
    }
    const flags = first ? BIND.SHARED_UMEM : flagsOf(options);
    const result = bindWithRetries(socket, index, queue, flags, first?.fd ?? 0);
    // With a shared UMEM only a queue that does not exist gives EINVAL.
    if (result < 0 && first && errnoName(result) === 'EINVAL') {
      socket.close();
      return undefined;
    }
    if (result < 0) throw bindError(result, name, queue, options);
    // Older kernels without this option send 32 frames at a time.
    if (rings.tx) socket.txBudget(TX_BUDGET);
    return { queue, fd, socket, ...rings };
  } catch (error) {
    socket.close();
    throw error;
  }
}

function mapRings(frames: Frames, umem: Umem, socket: NativeXskSocket, sends: boolean) {
  const map = (kind: number, count: number, entryWords: number): RingPlan => {
    const bytes = roundToPages(count * entryWords * 4) + PAGE_BYTES;
    const at = allocatePages(frames.allocate as (bytes: number) => number, bytes);
    const offsets = socket.mapRing(kind, count, at, bytes);
    if (typeof offsets !== 'number') return { offsets, count, entryWords };
    throw new VerbsError(
      'ENOMEM',
      `a ring of ${count} entries cannot be mapped into the card's memory (${errnoName(offsets)})`,
    );
  };
  // A frame has at most two entries.
  const sent = sends ? powerOfTwo(2 * umem.buffers) : 1;
  return {
    fill: map(XskRing.FILL, umem.chunks, ADDRESS_WORDS),
    completion: map(XskRing.COMPLETION, sent, ADDRESS_WORDS),
    rx: map(XskRing.RX, umem.chunks, DESCRIPTOR_WORDS),
    ...(sends && { tx: map(XskRing.TX, sent, DESCRIPTOR_WORDS) }),
  };
}

function flagsOf({ multiBuffer, zeroCopy }: BindOptions): number {
  const copy = zeroCopy === undefined ? 0 : zeroCopy ? BIND.ZERO_COPY : BIND.COPY;
  return BIND.NEED_WAKEUP | copy | (multiBuffer ? BIND.USE_SG : 0);
}

function bindWithRetries(
  socket: NativeXskSocket,
  index: number,
  queue: number,
  flags: number,
  sharedFd: number,
): number {
  const end = performance.now() + RELEASE_TIMEOUT_MS;
  for (;;) {
    const result = socket.bind(index, queue, flags, sharedFd);
    if (result === 0 || errnoName(result) !== 'EBUSY' || performance.now() >= end) return result;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RELEASE_POLL_MS);
  }
}

function socketError(result: number): VerbsError {
  const name = errnoName(result);
  if (name === 'EPERM') return new VerbsError('EPERM', 'an AF_XDP socket needs the capability CAP_NET_RAW');
  return new VerbsError('EOPNOTSUPP', `this kernel has no AF_XDP sockets (${name})`);
}

function umemError(result: number, bytes: number): VerbsError {
  const name = errnoName(result);
  if (name !== 'ENOBUFS') return new VerbsError('EIO', `the kernel refuses the card's memory as UMEM (${name})`);
  return new VerbsError(
    'ENOMEM',
    `${bytes} bytes of the card's memory cannot be locked: raise the limit (ulimit -l), or give the process CAP_IPC_LOCK`,
  );
}

function bindError(result: number, name: string, queue: number, options: BindOptions): VerbsError {
  const errno = errnoName(result);
  const where = `queue ${queue} of ${name}`;
  if (errno === 'EBUSY')
    return new VerbsError(
      'EBUSY',
      `${where} is taken by another AF_XDP socket: a queue serves one card. Give each card its own queues (xdp.queues), ` +
        'or use the packet link, which any number of cards can share',
    );
  if (errno === 'EINVAL')
    return new VerbsError(
      'EOPNOTSUPP',
      `the kernel refuses an AF_XDP socket on ${where} (EINVAL): there is no such queue` +
        (options.multiBuffer ? ', or the kernel is older than Linux 6.6, which frames longer than 3.8 KB need' : ''),
    );
  if (errno === 'ENOTSUP' && options.zeroCopy)
    return new VerbsError('EOPNOTSUPP', `the driver of ${name} has no zero-copy mode for ${where}`);
  return new VerbsError('EOPNOTSUPP', `the kernel refuses an AF_XDP socket on ${where} (${errno})`);
}

function allocatePages(allocate: (bytes: number) => number, bytes: number): number {
  return roundToPages(allocate(bytes + PAGE_BYTES));
}

function roundToPages(bytes: number): number {
  return Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES;
}

function powerOfTwo(least: number): number {
  return 2 ** Math.ceil(Math.log2(least));
}
