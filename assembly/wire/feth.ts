// Flush Extended Transport Header (IBTA A19.3): 32 bits, selectivity(2) << 4 | placement(4)
import { get32, put32 } from './bytes';

export const FETH_BYTES: u32 = 4;

@unmanaged
@final
export class Feth {
  static at(ptr: usize): Feth {
    return changetype<Feth>(ptr);
  }
  private get ptr(): usize {
    return changetype<usize>(this);
  }

  get placement(): u32 {
    return get32(this.ptr) & 15;
  }
  get selectivity(): u32 {
    return (get32(this.ptr) >> 4) & 3;
  }
  write(placement: u32, selectivity: u32): void {
    put32(this.ptr, (selectivity << 4) | placement);
  }
}
