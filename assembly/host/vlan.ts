// The VLANs that the card knows: those into which a path of it leads (IEEE 802.1Q). A datagram names no path, so it may
// come from any of them. A VLAN stays known until the card closes.
import { VLANS } from '../memorymap';

/** @param vlan 0 to 4095 */
export function knowVlan(vlan: u32): void {
  let byte = VLANS + (vlan >> 3);
  store<u8>(byte, load<u8>(byte) | ((<u8>1) << (<u8>(vlan & 7))));
}

/** Returns whether datagrams of a VLAN may enter. Number 0 is a frame without a tag, or with a priority only. */
export function isVlanKnown(vlan: u32): bool {
  return vlan == 0 || ((load<u8>(VLANS + (vlan >> 3)) >> (vlan & 7)) & 1) != 0;
}
