/**
 * Enhanced connection establishment (ECE): vendor options of both ends, in fields of REQ and REP that are reserved
 * otherwise, and in the attribute modifier of the MAD header. The numbers mean something to adapters of one vendor
 * only.
 */
import type { Message } from './messages.js';

/** Vendor options of one end (ibv_ece). */
export interface Ece {
  /** Vendor, 24 bits: an OUI. */
  readonly vendorId: number;
  /** Options of that vendor, 32 bits. */
  readonly options: number;
}

/** Returns the vendor options in a REQ or REP, or undefined when there are none. */
export function eceOf(message: Message<'REQ'> | Message<'REP'>): Ece | undefined {
  const vendorId =
    message.name === 'REQ'
      ? message.vendorId
      : (message.vendorIdHigh << 16) | (message.vendorIdMiddle << 8) | message.vendorIdLow;
  const options = message.modifier;
  return vendorId === 0 && options === 0 ? undefined : { vendorId, options };
}

/** Returns the fields of a REQ. */
export function eceOfReq(ece: Ece | undefined) {
  return { vendorId: ece?.vendorId ?? 0, modifier: ece?.options ?? 0 };
}

/** Returns the fields of a REP. */
export function eceOfRep(ece: Ece | undefined) {
  const vendorId = ece?.vendorId ?? 0;
  return {
    vendorIdHigh: vendorId >>> 16,
    vendorIdMiddle: (vendorId >>> 8) & 255,
    vendorIdLow: vendorId & 255,
    modifier: ece?.options ?? 0,
  };
}
