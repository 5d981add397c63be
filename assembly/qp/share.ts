// The link's share of a packet that is being built (LinkFlag.ICRC_OFFLOAD): the last bytes of a large packet. The link
// computes their part of the ICRC. It also copies them from registered memory, so that they are read once for both
// (TxOption.FETCH_SHARE).
import { LinkFlag } from '../codes';
import { Card } from '../host/card';
import { BTH_BYTES } from '../wire/bth';
import { linkShare } from '../wire/icrc';
import { headerBytes } from '../wire/opcode';

/** Returns the link's share of a packet with `bytes` bytes behind the BTH, pad included; 0 = none. */
export function offloadedShare(bytes: u32): u32 {
  return Card.get().linkFlags & <u32>LinkFlag.ICRC_OFFLOAD ? linkShare(bytes) : 0;
}

/** Returns how many bytes at the end of a payload the link can fetch: its share, if that is payload alone. */
export function fetchedShare(opcode: u32, payload: u32): u32 {
  if (payload & 3) return 0;
  let share = offloadedShare(headerBytes(opcode) - BTH_BYTES + payload);
  return share <= payload ? share : 0;
}
