// The ICRC span of a packet that is being built (LinkFlag.ICRC_OFFLOAD): the last bytes of a large packet. The link
// computes their part of the ICRC. It also copies them from registered memory, so that they are read once for both
// (TxOption.FETCH_SPAN).
import { LinkFlag } from '../codes';
import { Card } from '../host/card';
import { BTH_BYTES } from '../wire/bth';
import { icrcSpan } from '../wire/icrc';
import { headerBytes } from '../wire/opcode';

/** Returns the ICRC span of a packet with `bytes` bytes behind the BTH, pad included; 0 = none. */
export function offloadedSpan(bytes: u32): u32 {
  return Card.get().linkFlags & <u32>LinkFlag.ICRC_OFFLOAD ? icrcSpan(bytes) : 0;
}

/** Returns how many bytes at the end of a payload the link can fetch: the ICRC span, if that is payload alone. */
export function fetchedSpan(opcode: u32, payload: u32): u32 {
  if (payload & 3) return 0;
  let span = offloadedSpan(headerBytes(opcode) - BTH_BYTES + payload);
  return span <= payload ? span : 0;
}
