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
  /** ACK with credit code 31, NO_LIMIT. */
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

/** Credit code for an unlimited number of messages (IBTA 9.7.7.2.3). */
export const NO_LIMIT: u32 = 31;

/** Returns the number of messages of a credit code (IBTA table 45): 0 to 4, then 6, 8, 12, 16, 24 ... 32768. */
export function creditsOf(code: u32): u32 {
  // two codes share each power of two: 2·2^k and 3·2^k
  return code < 2 ? code : (2 | (code & 1)) << ((code >> 1) - 1);
}

/** Returns the largest code for no more than this many messages. */
export function creditCode(credits: u32): u32 {
  if (credits < 2) return credits;
  let power = 31 - clz<u32>(credits);
  return min((power << 1) | ((credits >> (power - 1)) & 1), NO_LIMIT - 1);
}

/** Returns the nanoseconds of an RNR timer code (IBTA table 46): 10 us, then steps of 1, 2, 3, 4, 6, 8, 12, 16 ... */
export function rnrDelay(code: u32): u64 {
  if (code == 0) return 655_360_000;
  if (code < 4) return <u64>code * 10_000;
  // from 4 on two codes share each power of two: 4·2^k and 6·2^k
  let step: u64 = (code & 1) == 0 ? 40_000 : 60_000;
  let doublings: u64 = (code - 4) >> 1;
  return step << doublings;
}
