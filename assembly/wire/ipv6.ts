// IPv6 header; RoCEv2 allows no extension headers (IBTA annex 17).
//   0 version(4)·traffic class(8)·flow label(20) | 4 payload length(16) | 6 next header | 7 hop limit
//   8 source(128) | 24 destination(128)
import { get16, get32, put16, put32 } from './bytes';

export const IPV6_BYTES: u32 = 40;

@unmanaged
@final
export class Ipv6 {
  static at(ptr: usize): Ipv6 {
    return changetype<Ipv6>(ptr);
  }
  private get ptr(): usize {
    return changetype<usize>(this);
  }

  get version(): u32 {
    return load<u8>(this.ptr) >> 4;
  }
  get trafficClass(): u32 {
    return (get32(this.ptr) >> 20) & 0xff;
  }
  get payloadLength(): u32 {
    return get16(this.ptr + 4);
  }
  get nextHeader(): u32 {
    return load<u8>(this.ptr, 6);
  }
  get sourcePtr(): usize {
    return this.ptr + 8;
  }
  get destPtr(): usize {
    return this.ptr + 24;
  }

  /** Writes the header; `close` sets the length. */
  write(source: usize, destination: usize, trafficClass: u32, flowLabel: u32, hopLimit: u32): void {
    let ptr = this.ptr;
    put32(ptr, (6 << 28) | (trafficClass << 20) | (flowLabel & 0xfffff));
    put16(ptr + 4, 0);
    store<u8>(ptr, 17, 6);
    store<u8>(ptr, hopLimit, 7);
    memory.copy(ptr + 8, source, 16);
    memory.copy(ptr + 24, destination, 16);
  }

  setTrafficClass(trafficClass: u32): void {
    put32(this.ptr, (get32(this.ptr) & 0xf00fffff) | (trafficClass << 20));
  }

  close(payloadLength: u32): void {
    put16(this.ptr + 4, payloadLength);
  }
}
