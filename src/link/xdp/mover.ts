/** The mover of the xdp link. It is made from plain data, so it can run in any thread that shares the card's memory. */
import { native } from '../../native.js';
import type { FrameMover, Frames } from '../frames.js';
import { frameLayout, RingView } from '../ring.js';
import { type LocalPlan, XdpLocal } from './local.js';
import { CHUNK_BYTES, XdpReceiver } from './receiver.js';
import { ConsumerRing, ProducerRing, type RingPlan } from './rings.js';
import { XdpShared } from './shared.js';
import { BUFFER_BYTES, XdpTransmitter } from './transmitter.js';

/** Parameters of an `XdpMover`. Plain data. Offsets are from the start of the card's memory, except `firstChunk`. */
export interface XdpPlan {
  /** The card's rings. */
  readonly frames: Pick<Frames, 'tx' | 'rx' | 'slotBytes' | 'icrcOffload'>;
  /** Offset of the UMEM. It starts with `buffers` transmit buffers; the receive chunks of all queues follow. */
  readonly umem: number;
  /** Number of transmit buffers. */
  readonly buffers: number;
  /** Offset of the first receive chunk in the UMEM. */
  readonly firstChunk: number;
  readonly chunksPerQueue: number;
  /** The queues. Only the first one sends. */
  readonly queues: readonly QueuePlan[];
  /** The interface's MAC address. */
  readonly mac: Uint8Array;
  /** Whether `receive` makes the kernel poll the interface (SO_BUSY_POLL). */
  readonly busyPolls: boolean;
  /** Memory of the `XdpShared`. */
  readonly shared: SharedArrayBuffer;
  /** Of a link that shares its addresses with other programs. */
  readonly local?: LocalPlan;
}

/** The socket of a queue and its rings. Only the queue that sends has a transmit ring. */
export interface QueuePlan {
  /** File descriptor of the AF_XDP socket. */
  readonly fd: number;
  readonly rx: RingPlan;
  readonly fill: RingPlan;
  readonly tx?: RingPlan;
  readonly completion: RingPlan;
}

/**
 * Puts transmit buffers into the card's ring, and receive chunks into the fill rings. Call it once, before any mover.
 */
export function fillRings(memory: Uint8Array, { frames, umem, firstChunk, chunksPerQueue, queues }: XdpPlan): void {
  const tx = new RingView(memory, frames.tx);
  for (let n = 0; n <= frames.tx.mask; n++) tx.setAddr(n, umem + n * BUFFER_BYTES);
  for (const [i, queue] of queues.entries()) {
    const fill = new ProducerRing(memory, queue.fill);
    for (let n = 0; n < chunksPerQueue; n++) fill.push(firstChunk + (i * chunksPerQueue + n) * CHUNK_BYTES);
    fill.publish();
  }
}

/** Moves frames between the card's rings and the rings of AF_XDP sockets. */
export class XdpMover implements FrameMover {
  readonly #receiver: XdpReceiver;
  readonly #transmitter: XdpTransmitter;
  readonly #queues: readonly { readonly fd: number; readonly rx: ConsumerRing; readonly fill: ProducerRing }[];
  readonly #busyPolls: boolean;
  readonly #local: XdpLocal | undefined;
  readonly #wakeRx = native().xskWakeRx;

  constructor(memory: Uint8Array, plan: XdpPlan) {
    const shared = new XdpShared(plan.shared);
    const [first] = plan.queues as [QueuePlan];
    this.#busyPolls = plan.busyPolls;
    this.#queues = plan.queues.map(({ fd, rx, fill }) => ({
      fd,
      rx: new ConsumerRing(memory, rx),
      fill: new ProducerRing(memory, fill),
    }));
    const icrc = plan.frames.icrcOffload
      ? new (native().RingIcrc)(memory, frameLayout({ memory, ...plan.frames }))
      : undefined;
    this.#receiver = new XdpReceiver(memory, plan, this.#queues, shared, icrc);
    const sending = {
      tx: new ProducerRing(memory, first.tx as RingPlan),
      completion: new ConsumerRing(memory, first.completion),
      wake: () => native().xskWakeTx(first.fd),
    };
    this.#local = plan.local && new XdpLocal(memory, plan.local);
    this.#transmitter = new XdpTransmitter(memory, plan, sending, this.#receiver, shared, icrc, this.#local);
  }

  send(now: number): number {
    return this.#transmitter.send(now);
  }

  receive(now: number): number {
    this.#transmitter.wake(now);
    let moved = this.#receiver.receive();
    if (this.#local) moved += this.#local.receive(moved > 0, this.#deliver);
    for (const { fd, fill, rx } of this.#queues)
      if (fill.needsWakeup || (this.#busyPolls && rx.filled === 0)) this.#wakeRx(fd);
    return moved;
  }

  nextDeadline(): number {
    return this.#transmitter.retryAt;
  }

  readonly #deliver = (from: number, length: number, options: number): void =>
    this.#receiver.deliverCopy(from, length, options);
}
