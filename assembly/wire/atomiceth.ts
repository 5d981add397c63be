// Atomic headers (IBTA 9.3.4 and 9.3.6). Numbers are big endian on the wire.
//   AtomicETH:    0 virtual address(64) | 8 rkey(32) | 12 swap or add(64) | 20 compare(64)
//   AtomicAckETH: 0 original remote data(64)
import { get32, get64, put32, put64 } from './bytes';

export const ATOMIC_ETH_BYTES: u32 = 28;
export const ATOMIC_ACK_ETH_BYTES: u32 = 8;

@unmanaged
@final
export class AtomicEth {
  static at(ptr: usize): AtomicEth {
    return changetype<AtomicEth>(ptr);
  }
  private get ptr(): usize {
    return changetype<usize>(this);
  }

  get va(): u64 {
    return get64(this.ptr);
  }
  get rkey(): u32 {
    return get32(this.ptr + 8);
  }
  get swapAdd(): u64 {
    return get64(this.ptr + 12);
  }
  get compare(): u64 {
    return get64(this.ptr + 20);
  }

  write(va: u64, rkey: u32, swapAdd: u64, compare: u64): void {
    let ptr = this.ptr;
    put64(ptr, va);
    put32(ptr + 8, rkey);
    put64(ptr + 12, swapAdd);
    put64(ptr + 20, compare);
  }
}

@unmanaged
@final
export class AtomicAckEth {
  static at(ptr: usize): AtomicAckEth {
    return changetype<AtomicAckEth>(ptr);
  }
  get ptr(): usize {
    return changetype<usize>(this);
  }

  write(original: u64): void {
    put64(this.ptr, original);
  }
}
