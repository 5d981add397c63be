// IPv4 header without options; RoCEv2 has none (IBTA annex 17).
//   0 version·ihl | 1 tos | 2 total length(16) | 4 identification(16) | 6 flags·fragment(16)
//   8 ttl | 9 protocol | 10 checksum(16) | 12 source(32) | 16 destination(32)
import { get16, put16 } from './bytes';

export const IPV4_BYTES: u32 = 20;
export const PROTOCOL_UDP: u32 = 17;

@unmanaged
@final
export class Ipv4 {
  static at(ptr: usize): Ipv4 {
    return changetype<Ipv4>(ptr);
  }
  private get ptr(): usize {
    return changetype<usize>(this);
  }

  get versionIhl(): u32 {
    return load<u8>(this.ptr);
  }
  get tos(): u32 {
    return load<u8>(this.ptr, 1);
  }
  get totalLength(): u32 {
    return get16(this.ptr + 2);
  }
  get identification(): u32 {
    return get16(this.ptr + 4);
  }
  /** A fragment: more fragments follow, or this is not the first. */
  get isFragment(): bool {
    return (get16(this.ptr + 6) & 0x3fff) != 0;
  }
  get protocol(): u32 {
    return load<u8>(this.ptr, 9);
  }
  get sourcePtr(): usize {
    return this.ptr + 12;
  }
  get destPtr(): usize {
    return this.ptr + 16;
  }
  /** The header sums to all ones (RFC 1071). */
  get isSumRight(): bool {
    return sum(this.ptr) == 0xffff;
  }

  /**
   * Writes the header of a datagram that may not be fragmented (DF); length, identification and checksum are set by
   * `close`.
   */
  write(source: usize, destination: usize, tos: u32, ttl: u32): void {
    let ptr = this.ptr;
    store<u64>(ptr, 0);
    store<u8>(ptr, 0x45);
    store<u8>(ptr, tos, 1);
    put16(ptr + 6, 0x4000);
    store<u8>(ptr, ttl, 8);
    store<u8>(ptr, PROTOCOL_UDP, 9);
    store<u16>(ptr, 0, 10);
    memory.copy(ptr + 12, source, 4);
    memory.copy(ptr + 16, destination, 4);
  }

  /** Changes the type of service of a closed header. */
  setTos(tos: u32): void {
    store<u8>(this.ptr, tos, 1);
    this.setSum();
  }

  /**
   * Changes the identification of a header that was closed with 0. The checksum is updated as in RFC 1624: summing a
   * header that was just written would wait for the stores.
   */
  identify(identification: u32): void {
    let ptr = this.ptr;
    let word = <u32>bswap<u16>(<u16>identification);
    let sum = (<u32>load<u16>(ptr, 10) ^ 0xffff) + word;
    store<u16>(ptr, word, 4);
    store<u16>(ptr, ~(sum + (sum >> 16)), 10);
  }

  /** Sets the length, the identification and the checksum. */
  close(totalLength: u32, identification: u32): void {
    let ptr = this.ptr;
    put16(ptr + 2, totalLength);
    put16(ptr + 4, identification);
    this.setSum();
  }

  private setSum(): void {
    let ptr = this.ptr;
    store<u16>(ptr, 0, 10);
    store<u16>(ptr, ~sum(ptr), 10);
  }
}

/** Returns the ones' complement sum of a header's 16-bit words; it has the byte order of the words. */
function sum(ptr: usize): u32 {
  let total = <u64>load<u32>(ptr) + load<u32>(ptr, 4) + load<u32>(ptr, 8) + load<u32>(ptr, 12) + load<u32>(ptr, 16);
  total = (total & 0xffffffff) + (total >> 32);
  total = (total & 0xffff) + ((total >> 16) & 0xffff) + (total >> 32);
  return <u32>((total & 0xffff) + (total >> 16));
}
