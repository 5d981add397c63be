// The ring through which posting threads tell the card which queue pairs have new work requests. One thread of the
// application produces, the card consumes. Each queue pair is in it at most once (qp/doorbell), so it never overflows.
import { allocate } from './pool';

const HEADER_BYTES: usize = 192;

@unmanaged
@final
export class Doorbells {
  private mask: u32;

  /** Creates a ring for `maxQp` queue pairs; null when memory is short. */
  static create(maxQp: u32): Doorbells {
    let entries: u32 = 1;
    while (entries < maxQp) entries <<= 1;
    let ring = changetype<Doorbells>(allocate(<u64>entries * 4 + HEADER_BYTES));
    if (changetype<usize>(ring) != 0) ring.mask = entries - 1;
    return ring;
  }

  private get ptr(): usize {
    return changetype<usize>(this);
  }
  private get producer(): u32 {
    return atomic.load<u32>(this.ptr, 64);
  }
  private set producer(value: u32) {
    atomic.store<u32>(this.ptr, value, 64);
  }
  private get consumer(): u32 {
    return atomic.load<u32>(this.ptr, 128);
  }
  private set consumer(value: u32) {
    atomic.store<u32>(this.ptr, value, 128);
  }
  private entry(n: u32): usize {
    return this.ptr + HEADER_BYTES + ((<usize>(n & this.mask)) << 2);
  }

  get isEmpty(): bool {
    return this.producer == this.consumer;
  }

  put(handle: usize): void {
    let producer = this.producer;
    store<u32>(this.entry(producer), <u32>handle);
    this.producer = producer + 1;
  }

  /** Takes the oldest entry; 0 when the ring is empty. */
  take(): usize {
    let consumer = this.consumer;
    if (consumer == this.producer) return 0;
    let handle = load<u32>(this.entry(consumer));
    this.consumer = consumer + 1;
    return handle;
  }
}
