// RDMA Extended Transport Header (IBTA 9.3.3): 0 virtual address(64) | 8 rkey(32) | 12 dma length(32)
import { get32, get64, put32, put64 } from './bytes';

export const RETH_BYTES: u32 = 16;

@unmanaged
@final
export class Reth {
  static at(ptr: usize): Reth {
    return changetype<Reth>(ptr);
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
  /** Bytes of the whole message. */
  get length(): u32 {
    return get32(this.ptr + 12);
  }

  write(va: u64, rkey: u32, length: u32): void {
    let ptr = this.ptr;
    put64(ptr, va);
    put32(ptr + 8, rkey);
    put32(ptr + 12, length);
  }
}
