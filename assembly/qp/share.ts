// The link's share of a packet that is being built (LinkFlag.ICRC_OFFLOAD): the last bytes of a large packet. The link
// computes their part of the ICRC. It also copies them from registered memory, so that they are read once for both
// (TxOption.FETCH_SHARE).
import { LinkFlag } from '../codes';
import { Card } from '../host/card';
import { linkShare } from '../wire/icrc';

/** Returns the link's share of a packet with `bytes` bytes behind the BTH, pad included; 0 = none. */
export function offloadedShare(bytes: u32): u32 {
  return Card.get().linkFlags & <u32>LinkFlag.ICRC_OFFLOAD ? linkShare(bytes) : 0;
}

/**
 * Returns how many bytes at the end of a payload the link can fetch: its share, if that is payload alone.
 * @param headers bytes between the BTH and the payload
 */
export function fetchedShare(headers: u32, payload: u32): u32 {
  if (payload & 3) return 0;
  let share = offloadedShare(headers + payload);
  return share <= payload ? share : 0;
}
