// Datagram Extended Transport Header (IBTA 9.3.2): 0 qkey(32) | 4 reserved | 5 source qpn(24)
import { get24, get32, put8and24, put32 } from './bytes';

export const DETH_BYTES: u32 = 8;

@unmanaged
@final
export class Deth {
  static at(ptr: usize): Deth {
    return changetype<Deth>(ptr);
  }
  private get ptr(): usize {
    return changetype<usize>(this);
  }

  get qkey(): u32 {
    return get32(this.ptr);
  }
  get sourceQpn(): u32 {
    return get24(this.ptr + 5);
  }

  write(qkey: u32, sourceQpn: u32): void {
    put32(this.ptr, qkey);
    put8and24(this.ptr + 4, 0, sourceQpn);
  }
}
