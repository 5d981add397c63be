// A descriptor ring between the card and a link: descriptors are the kernel's struct xdp_desc, cursors are free-running
// and on cache lines of their own. One side only produces, the other only consumes. The layout is exported as
// RingOffset.
import { RingOffset } from '../layout';
import { allocate, allocateAligned } from './pool';

@unmanaged
@final
export class Ring {
  /** Creates a ring with `slots` slots (a power of two) of its own. A link may exchange those of free descriptors. */
  static create(slots: u32, slotBytes: u32): Ring {
    let frames = allocateAligned(<u64>slots * slotBytes, 4096);
    let ring = changetype<Ring>(allocate(<u64>slots * 16 + RingOffset.DESCRIPTORS));
    if (frames == 0 || changetype<usize>(ring) == 0) return changetype<Ring>(0);
    store<u32>(changetype<usize>(ring), slots - 1, RingOffset.MASK);
    for (let i: u32 = 0; i < slots; i++) store<u64>(ring.descriptor(i), <u64>frames + <u64>i * slotBytes);
    return ring;
  }

  private get ptr(): usize {
    return changetype<usize>(this);
  }
  get mask(): u32 {
    return load<u32>(this.ptr, RingOffset.MASK);
  }
  get producer(): u32 {
    return atomic.load<u32>(this.ptr);
  }
  set producer(value: u32) {
    atomic.store<u32>(this.ptr, value);
  }
  get consumer(): u32 {
    return atomic.load<u32>(this.ptr, RingOffset.CONSUMER);
  }
  set consumer(value: u32) {
    atomic.store<u32>(this.ptr, value, RingOffset.CONSUMER);
  }
  get filled(): u32 {
    return this.producer - this.consumer;
  }
  get free(): u32 {
    return this.mask + 1 - this.filled;
  }

  descriptor(n: u32): usize {
    return this.ptr + RingOffset.DESCRIPTORS + ((<usize>(n & this.mask)) << 4);
  }
  frame(n: u32): usize {
    return <usize>load<u64>(this.descriptor(n));
  }
  bytes(n: u32): u32 {
    return load<u32>(this.descriptor(n), 8);
  }
  options(n: u32): u32 {
    return load<u32>(this.descriptor(n), 12);
  }
  describe(n: u32, bytes: u32, options: u32): void {
    store<u64>(this.descriptor(n), ((<u64>options) << 32) | bytes, 8);
  }
}
