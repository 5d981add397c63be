// Invalidate Extended Transport Header (IBTA 9.3.8): 0 rkey(32)
import { get32, put32 } from './bytes';

export const IETH_BYTES: u32 = 4;

@unmanaged
@final
export class Ieth {
  static at(ptr: usize): Ieth {
    return changetype<Ieth>(ptr);
  }
  private get ptr(): usize {
    return changetype<usize>(this);
  }

  get rkey(): u32 {
    return get32(this.ptr);
  }
  write(rkey: u32): void {
    put32(this.ptr, rkey);
  }
}
