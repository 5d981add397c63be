/**
 * The AF_XDP sockets of the xdp link, one for each queue of an interface, all on one piece of the card's memory (the UMEM):
 * first the buffers to send from, then the chunks to receive into. Each socket's rings lie in pieces of their own.
 */
import { VerbsError } from '../errors.js';
import { type NativeXskSocket, native, XskRing } from '../native.js';
import { errnoName } from './errno.js';
import type { Frames } from './link.js';
import type { QueuePlan } from './xdpmover.js';
import { CHUNK_BYTES } from './xdpreceiver.js';
import { ADDRESS_WORDS, DESCRIPTOR_WORDS, type RingPlan } from './xdprings.js';
import { BUFFER_BYTES } from './xdptransmitter.js';

/** Where everything lies, fixed when the link is attached. */
export interface XdpMemory {
  /** Offset of the UMEM in the memory, and its bytes. */
  readonly umem: number;
  readonly bytes: number;
  /** Buffers to send from, at its start. */
  readonly buffers: number;
  /** Chunks to receive into, all queues together, behind them. */
  readonly chunks: number;
  readonly firstChunk: number;
}

export interface XdpQueue extends QueuePlan {
  readonly queue: number;
  readonly socket: NativeXskSocket;
}

export interface BindOptions {
  /** Frames may have several pieces (XDP_USE_SG). */
  readonly inPieces: boolean;
  /** true = or not at all, false = never, undefined = where the driver offers it. */
  readonly zeroCopy: boolean | undefined;
  /** Microseconds. */
  readonly busyPoll: number | undefined;
}

const BIND = { SHARED_UMEM: 1, COPY: 2, ZERO_COPY: 4, NEED_WAKEUP: 8, USE_SG: 16 } as const;
const PAGE_BYTES = 4096;
/** Chunks for frames that wait to be received, if the card has so much memory that this is a 32nd of it at most. */
const MOST_CHUNKS = 2048;
const LEAST_CHUNKS = 256;
const SHARE_OF_MEMORY = 32;
/** Frames that one busy poll takes from the interface. */
const BUSY_POLL_BUDGET = 64;
/** Frames that one call sends in copy mode. */
const TX_BUDGET = 256;
/** The kernel lets go of a closed socket's queue in its own time: some 20 ms (ms). */
const RELEASE_TIMEOUT = 200;
const RELEASE_POLL = 2;

/** Takes what the sockets need of the card's memory. @throws TypeError, RangeError when the card does not lend it */
export function layOut({ memory, tx, allocate }: Frames): XdpMemory {
  if (!allocate) throw new TypeError('the xdp link needs Frames.allocate, for packet buffers of its own');
  const slots = tx.mask + 1;
  // Half as many again as the card can fill at once, for those that are on their way.
  const buffers = slots + Math.max(slots >> 1, 1);
  const wanted = memory.length / SHARE_OF_MEMORY / CHUNK_BYTES;
  const chunks = 2 ** Math.floor(Math.log2(Math.min(Math.max(wanted, LEAST_CHUNKS), MOST_CHUNKS)));
  const firstChunk = buffers * BUFFER_BYTES;
  const bytes = firstChunk + chunks * CHUNK_BYTES;
  return { umem: allocatePages(allocate, bytes), bytes, buffers, chunks, firstChunk };
}

/**
 * Opens and binds a socket on a queue.
 * @param first the socket that has the UMEM; undefined = this one
 * @returns undefined when the interface has no such queue
 * @throws VerbsError EBUSY, EPERM, ENOMEM, EOPNOTSUPP
 */
export function openQueue(
  frames: Frames,
  place: XdpMemory,
  { name, index }: { readonly name: string; readonly index: number },
  queue: number,
  first: XdpQueue | undefined,
  options: BindOptions,
): XdpQueue | undefined {
  const socket = new (native().XskSocket)();
  try {
    const fd = socket.open(frames.memory);
    if (fd < 0) throw socketRefusal(fd);
    if (!first) {
      const refused = socket.registerUmem(place.umem, place.bytes, CHUNK_BYTES);
      if (refused < 0) throw umemRefusal(refused, place.bytes);
    }
    const rings = mapRings(frames, place, socket, !first);
    if (options.busyPoll !== undefined) {
      const refused = socket.busyPoll(options.busyPoll, BUSY_POLL_BUDGET);
      if (refused < 0) throw new VerbsError('EOPNOTSUPP', `the kernel does not poll busily (${errnoName(refused)})`);
    }
    const flags = first ? BIND.SHARED_UMEM : flagsOf(options);
    const refused = bindPatiently(socket, index, queue, flags, first?.fd ?? 0);
    // A shared UMEM leaves the queue as the only thing that can be wrong.
    if (refused < 0 && first && errnoName(refused) === 'EINVAL') {
      socket.close();
      return undefined;
    }
    if (refused < 0) throw bindRefusal(refused, name, queue, options);
    // Kernels that know no such limit send 32 frames at a time.
    if (rings.tx) socket.txBudget(TX_BUDGET);
    return { queue, fd, socket, ...rings };
  } catch (error) {
    socket.close();
    throw error;
  }
}

function mapRings(frames: Frames, place: XdpMemory, socket: NativeXskSocket, sends: boolean) {
  const map = (kind: number, count: number, entryWords: number): RingPlan => {
    const bytes = pages(count * entryWords * 4) + PAGE_BYTES;
    const at = allocatePages(frames.allocate as (bytes: number) => number, bytes);
    const places = socket.mapRing(kind, count, at, bytes);
    if (typeof places !== 'number') return { places, count, entryWords };
    throw new VerbsError(
      'ENOMEM',
      `a ring of ${count} entries cannot be laid over the card's memory (${errnoName(places)})`,
    );
  };
  // A frame has two entries at the most.
  const sent = sends ? powerOfTwo(2 * place.buffers) : 1;
  return {
    fill: map(XskRing.FILL, place.chunks, ADDRESS_WORDS),
    completion: map(XskRing.COMPLETION, sent, ADDRESS_WORDS),
    rx: map(XskRing.RX, place.chunks, DESCRIPTOR_WORDS),
    ...(sends && { tx: map(XskRing.TX, sent, DESCRIPTOR_WORDS) }),
  };
}

function flagsOf({ inPieces, zeroCopy }: BindOptions): number {
  const copy = zeroCopy === undefined ? 0 : zeroCopy ? BIND.ZERO_COPY : BIND.COPY;
  return BIND.NEED_WAKEUP | copy | (inPieces ? BIND.USE_SG : 0);
}

function bindPatiently(socket: NativeXskSocket, index: number, queue: number, flags: number, sharedFd: number): number {
  const end = performance.now() + RELEASE_TIMEOUT;
  for (;;) {
    const refused = socket.bind(index, queue, flags, sharedFd);
    if (refused === 0 || errnoName(refused) !== 'EBUSY' || performance.now() >= end) return refused;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RELEASE_POLL);
  }
}

function socketRefusal(refused: number): VerbsError {
  const name = errnoName(refused);
  if (name === 'EPERM') return new VerbsError('EPERM', 'an AF_XDP socket needs the capability CAP_NET_RAW');
  return new VerbsError('EOPNOTSUPP', `this kernel has no AF_XDP sockets (${name})`);
}

function umemRefusal(refused: number, bytes: number): VerbsError {
  const name = errnoName(refused);
  if (name !== 'ENOBUFS') return new VerbsError('EIO', `the kernel does not take the card's memory (${name})`);
  return new VerbsError(
    'ENOMEM',
    `${bytes} bytes of the card's memory cannot be locked: raise the limit (ulimit -l), or give the process CAP_IPC_LOCK`,
  );
}

function bindRefusal(refused: number, name: string, queue: number, options: BindOptions): VerbsError {
  const errno = errnoName(refused);
  const where = `queue ${queue} of ${name}`;
  if (errno === 'EBUSY')
    return new VerbsError(
      'EBUSY',
      `${where} is taken by another AF_XDP socket: a queue serves one card. Give each card queues of its own (xdp.queues), ` +
        'or take the packet link, of which an interface has as many as you like',
    );
  if (errno === 'EINVAL')
    return new VerbsError(
      'EOPNOTSUPP',
      `an AF_XDP socket on ${where} is refused (EINVAL): there is no such queue` +
        (options.inPieces ? ', or the kernel is older than Linux 6.6, which frames beyond 3.8 KB need' : ''),
    );
  if (errno === 'ENOTSUP' && options.zeroCopy)
    return new VerbsError('EOPNOTSUPP', `the driver of ${name} has no zero copy for ${where}`);
  return new VerbsError('EOPNOTSUPP', `an AF_XDP socket on ${where} is refused (${errno})`);
}

function allocatePages(allocate: (bytes: number) => number, bytes: number): number {
  return pages(allocate(bytes + PAGE_BYTES));
}

function pages(bytes: number): number {
  return Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES;
}

function powerOfTwo(least: number): number {
  return 2 ** Math.ceil(Math.log2(least));
}
