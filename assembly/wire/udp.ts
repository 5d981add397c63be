// UDP: 0 source port(16) | 2 destination port(16) | 4 length(16) | 6 checksum(16)
// The checksum is sent as 0 and ignored on receipt: the ICRC covers more (IBTA annex 17).
import { get16, put16 } from './bytes';

export const UDP_BYTES: u32 = 8;
/** The destination port of RoCEv2. */
export const ROCE_PORT: u32 = 4791;

@unmanaged
@final
export class Udp {
  static at(ptr: usize): Udp {
    return changetype<Udp>(ptr);
  }
  private get ptr(): usize {
    return changetype<usize>(this);
  }

  get sourcePort(): u32 {
    return get16(this.ptr);
  }
  get destPort(): u32 {
    return get16(this.ptr + 2);
  }
  get length(): u32 {
    return get16(this.ptr + 4);
  }

  /** Writes the header; `close` sets the length. */
  write(sourcePort: u32): void {
    let ptr = this.ptr;
    put16(ptr, sourcePort);
    put16(ptr + 2, ROCE_PORT);
    store<u32>(ptr, 0, 4);
  }

  setSourcePort(port: u32): void {
    put16(this.ptr, port);
  }

  close(length: u32): void {
    put16(this.ptr + 4, length);
  }
}
