// Ethernet II, with at most one 802.1Q tag.
//   0 destination(6) | 6 source(6) | [12 0x8100 | 14 tci(16)] | type(16)
import { get16, put16 } from './bytes';

export const ETHERNET_BYTES: u32 = 14;
export const VLAN_BYTES: u32 = 4;
export const ETHERTYPE_IPV4: u32 = 0x0800;
export const ETHERTYPE_IPV6: u32 = 0x86dd;
export const ETHERTYPE_VLAN: u32 = 0x8100;

@unmanaged
@final
export class Ethernet {
  static at(ptr: usize): Ethernet {
    return changetype<Ethernet>(ptr);
  }
  private get ptr(): usize {
    return changetype<usize>(this);
  }

  get sourcePtr(): usize {
    return this.ptr + 6;
  }
  /** Tag control information of a tagged frame. */
  get tci(): u32 {
    return get16(this.ptr + 14);
  }
  get isTagged(): bool {
    return get16(this.ptr + 12) == ETHERTYPE_VLAN;
  }
  get bytes(): u32 {
    return this.isTagged ? ETHERNET_BYTES + VLAN_BYTES : ETHERNET_BYTES;
  }
  /** The EtherType, behind the tag if there is one. */
  get type(): u32 {
    return get16(this.ptr + this.bytes - 2);
  }

  /** Sets the priority (PCP) of the tag, if there is one. */
  setPriority(priority: u32): void {
    if (this.isTagged) store<u8>(this.ptr, (load<u8>(this.ptr, 14) & 0x1f) | (priority << 5), 14);
  }

  /** The VLAN number in the tag; 0 without a tag, and in one that gives a priority only. */
  get vlan(): u32 {
    return this.isTagged ? vlanOf(get16(this.ptr + 14)) : 0;
  }

  /** Writes the header; a tci above 16 bits means untagged. Returns its length. */
  write(destination: usize, source: usize, tci: u32, type: u32): u32 {
    let ptr = this.ptr;
    memory.copy(ptr, destination, 6);
    memory.copy(ptr + 6, source, 6);
    ptr += 12;
    if (tci <= 0xffff) {
      put16(ptr, ETHERTYPE_VLAN);
      put16(ptr + 2, tci);
      ptr += 4;
    }
    put16(ptr, type);
    return <u32>(ptr + 2 - this.ptr);
  }
}

/** Returns the VLAN number of tag control information; 0 if that is above 16 bits, which means untagged. */
export function vlanOf(tci: u32): u32 {
  return tci <= 0xffff ? tci & 0xfff : 0;
}
