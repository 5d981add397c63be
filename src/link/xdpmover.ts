/** Both directions of the xdp link, in whatever thread moves its frames: made from plain data, as the memory is shared. */
import { native } from '../native.js';
import type { FrameMover, Frames } from './link.js';
import { RingView } from './ring.js';
import { CHUNK_BYTES, XdpReceiver } from './xdpreceiver.js';
import { InRing, OutRing, type RingPlan } from './xdprings.js';
import { XdpShared } from './xdpshared.js';
import { BUFFER_BYTES, XdpTransmitter } from './xdptransmitter.js';

/** What a mover is made from. Offsets are those of the card's memory, but for `firstChunk`. */
export interface XdpPlan {
  readonly frames: Pick<Frames, 'tx' | 'rx' | 'slotBytes'>;
  /** The UMEM: first buffers to send from, then, from `firstChunk` on, chunks to receive into, `perQueue` of each queue. */
  readonly umem: number;
  readonly buffers: number;
  readonly firstChunk: number;
  readonly perQueue: number;
  /** The first one sends. */
  readonly queues: readonly QueuePlan[];
  readonly mac: Uint8Array;
  /** Each look at the receive rings lets the kernel look at the interface. */
  readonly pollsBusily: boolean;
  readonly shared: SharedArrayBuffer;
}

export interface QueuePlan {
  /** File descriptor of the AF_XDP socket. */
  readonly fd: number;
  readonly rx: RingPlan;
  readonly fill: RingPlan;
  readonly tx?: RingPlan;
  readonly completion: RingPlan;
}

/** Gives the card buffers to write frames into, and the kernel chunks to receive into: once, before all else. */
export function prepare(memory: Uint8Array, { frames, umem, firstChunk, perQueue, queues }: XdpPlan): void {
  const tx = new RingView(memory, frames.tx);
  for (let n = 0; n <= frames.tx.mask; n++) tx.place(n, umem + n * BUFFER_BYTES);
  for (const [i, queue] of queues.entries()) {
    const fill = new OutRing(memory, queue.fill);
    for (let n = 0; n < perQueue; n++) fill.push(firstChunk + (i * perQueue + n) * CHUNK_BYTES);
    fill.publish();
  }
}

export class XdpMover implements FrameMover {
  readonly #receiver: XdpReceiver;
  readonly #transmitter: XdpTransmitter;
  readonly #queues: readonly { readonly fd: number; readonly rx: InRing; readonly fill: OutRing }[];
  readonly #pollsBusily: boolean;
  readonly #wakeRx = native().xskWakeRx;

  constructor(memory: Uint8Array, plan: XdpPlan) {
    const shared = new XdpShared(plan.shared);
    const [first] = plan.queues as [QueuePlan];
    this.#pollsBusily = plan.pollsBusily;
    this.#queues = plan.queues.map(({ fd, rx, fill }) => ({
      fd,
      rx: new InRing(memory, rx),
      fill: new OutRing(memory, fill),
    }));
    this.#receiver = new XdpReceiver(memory, plan, this.#queues, shared);
    const sending = {
      tx: new OutRing(memory, first.tx as RingPlan),
      completion: new InRing(memory, first.completion),
      wake: () => native().xskWakeTx(first.fd),
    };
    this.#transmitter = new XdpTransmitter(memory, plan, sending, this.#receiver, shared);
  }

  send(now: number): number {
    return this.#transmitter.send(now);
  }

  receive(now: number): number {
    this.#transmitter.wake(now);
    const moved = this.#receiver.receive();
    for (const { fd, fill, rx } of this.#queues)
      if (fill.needsWakeup || (this.#pollsBusily && rx.filled === 0)) this.#wakeRx(fd);
    return moved;
  }

  nextDeadline(): number {
    return this.#transmitter.retryAt;
  }
}
