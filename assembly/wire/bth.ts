// Base Transport Header (IBTA 9.2).
//   0 opcode | 1 se·m·pad(2)·tver(4) | 2 pkey(16) | 4 fecn·becn·reserved(6) | 5 destination qpn(24)
//   8 ackreq·reserved(7) | 9 psn(24)
import { get16, get24, put8and24, put16, put32 } from './bytes';

export const BTH_BYTES: u32 = 12;
/** The opcode of a CNP, as in the opcode table, and the BECN bit. */
const CNP: u16 = 0x81;
const BECN: u32 = 0x40;

@unmanaged
@final
export class Bth {
  static at(ptr: usize): Bth {
    return changetype<Bth>(ptr);
  }
  private get ptr(): usize {
    return changetype<usize>(this);
  }

  get opcode(): u32 {
    return load<u8>(this.ptr);
  }
  get isSolicited(): bool {
    return (load<u8>(this.ptr, 1) & 0x80) != 0;
  }
  get migReq(): bool {
    return (load<u8>(this.ptr, 1) & 0x40) != 0;
  }
  get pad(): u32 {
    return (load<u8>(this.ptr, 1) >> 4) & 3;
  }
  get version(): u32 {
    return load<u8>(this.ptr, 1) & 15;
  }
  get pkey(): u32 {
    return get16(this.ptr + 2);
  }
  get destQpn(): u32 {
    return get24(this.ptr + 5);
  }
  get isAckRequested(): bool {
    return (load<u8>(this.ptr, 8) & 0x80) != 0;
  }
  get psn(): u32 {
    return get24(this.ptr + 9);
  }

  /**
   * `migReq` is 1 by default: both ends are in the migrated state (IBTA 17.2.8). Hardware takes 0 for a request to
   * migrate the path.
   */
  write(
    opcode: u32,
    solicited: bool,
    pad: u32,
    pkey: u32,
    destQpn: u32,
    ackRequest: bool,
    psn: u32,
    migReq: bool,
  ): void {
    let ptr = this.ptr;
    put32(ptr, (opcode << 24) | (solicited ? 0x800000 : 0) | (migReq ? 0x400000 : 0) | (pad << 20) | pkey);
    put8and24(ptr + 4, 0, destQpn);
    put8and24(ptr + 8, ackRequest ? 0x80 : 0, psn);
  }

  /** Writes the BTH of a congestion notification packet: only BECN, P_Key and the queue pair (annex 17.9). */
  writeCnp(pkey: u32, destQpn: u32): void {
    let ptr = this.ptr;
    store<u16>(ptr, CNP);
    put16(ptr + 2, pkey);
    put8and24(ptr + 4, BECN, destQpn);
    store<u32>(ptr, 0, 8);
  }
}
