// ACK Extended Transport Header (IBTA 9.3.5): 0 syndrome | 1 msn(24)
//   syndrome: 000 credits(5) = ACK | 001 timer(5) = RNR NAK | 011 code(5) = NAK | all others reserved
import { get24, put8and24 } from './bytes';

export const AETH_BYTES: u32 = 4;

/** Class of a syndrome: its bits 7..5. */
export enum AethClass {
  ACK = 0,
  RNR = 1,
  NAK = 3,
}

/** Whole syndromes. */
export enum Syndrome {
  /** ACK with credit code 31: no limit told. */
  ACK = 0x1f,
  RNR = 0x20,
  NAK_SEQUENCE = 0x60,
  NAK_INVALID_REQUEST = 0x61,
  NAK_REMOTE_ACCESS = 0x62,
  NAK_REMOTE_OPERATION = 0x63,
}

@unmanaged
@final
export class Aeth {
  static at(ptr: usize): Aeth {
    return changetype<Aeth>(ptr);
  }
  private get ptr(): usize {
    return changetype<usize>(this);
  }

  get syndrome(): u32 {
    return load<u8>(this.ptr);
  }
  get msn(): u32 {
    return get24(this.ptr + 1);
  }

  write(syndrome: u32, msn: u32): void {
    put8and24(this.ptr, syndrome, msn);
  }
}

/** Nanoseconds that an RNR timer code stands for (IBTA table 46): 10 us, then steps of 1, 2, 3, 4, 6, 8, 12, 16 ... */
export function rnrDelay(code: u32): u64 {
  if (code == 0) return 655_360_000;
  if (code < 4) return <u64>code * 10_000;
  // from 4 on two codes share each power of two: 4·2^k and 6·2^k
  let step: u64 = (code & 1) == 0 ? 40_000 : 60_000;
  let doublings: u64 = (code - 4) >> 1;
  return step << doublings;
}
