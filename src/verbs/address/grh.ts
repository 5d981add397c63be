/**
 * The 40 bytes in front of every received datagram (IBTA annex A17.4.5): the IPv6 header, or 20 undefined bytes and the
 * IPv4 header.
 */

import { ipText, ipv4Text, isMulticast } from '../../base/address.js';
import { gidText } from '../../base/gid.js';
import { wrongType } from '../../base/options.js';
import { outOfRange, VerbsError } from '../../errors.js';
import type { Wc } from '../work/wc.js';
import type { GidEntry } from './gid.js';
import type { AhAttr } from './resolvedaddress.js';

/** Bytes in front of the payload of a received datagram (the GRH): 40. */
export const GRH_BYTES = 40;
const IPV4_OFFSET = 20;
/** ECN bits of a traffic class. A congestion mark of the received packet must not be copied to the response. */
const ECN_MASK = 3;

/** IP header fields of a received datagram, from {@link readGrh}. */
export interface GrhInfo {
  /** IP version. */
  readonly version: 4 | 6;
  /** Source IP address as text. */
  readonly source: string;
  /** Destination IP address as text. */
  readonly destination: string;
  /** IPv4 TOS or IPv6 traffic class, with the ECN bits. */
  readonly trafficClass: number;
  /** IPv6 flow label, 20 bits; 0 for IPv4. */
  readonly flowLabel: number;
  /** TTL or hop limit as received. */
  readonly hopLimit: number;
}

/**
 * Reads the IP header in front of a received datagram.
 * @param buffer start of the receive's memory, at least 40 bytes
 * @throws TypeError, RangeError for a buffer that is too short; VerbsError EINVAL when it does not start with an IP
 * header
 */
export function readGrh(buffer: Uint8Array): GrhInfo {
  if (!(buffer instanceof Uint8Array)) throw wrongType('the buffer', buffer, 'a Uint8Array');
  if (buffer.length < GRH_BYTES)
    throw outOfRange(`the buffer has ${buffer.length} bytes, must have at least the ${GRH_BYTES} bytes of the GRH`);
  const version = versionOf(buffer);
  const byte = (at: number) => buffer[at] as number;
  if (version === 4)
    return {
      version,
      source: ipv4Text(buffer, IPV4_OFFSET + 12),
      destination: ipv4Text(buffer, IPV4_OFFSET + 16),
      trafficClass: byte(IPV4_OFFSET + 1),
      flowLabel: 0,
      hopLimit: byte(IPV4_OFFSET + 8),
    };
  return {
    version,
    source: ipText(buffer.subarray(8, 24)),
    destination: ipText(buffer.subarray(24, 40)),
    trafficClass: ((byte(0) & 15) << 4) | (byte(1) >> 4),
    flowLabel: ((byte(1) & 15) << 16) | (byte(2) << 8) | byte(3),
    hopLimit: byte(7),
  };
}

/**
 * Returns the address of a datagram's sender (ibv_init_ah_from_wc): its source address, reached from the address that
 * it was sent to. Flow label and traffic class are copied without the ECN bits; the hop limit is the route's.
 * @throws as `readGrh`; VerbsError EINVAL when the completion is not that of a datagram
 */
export function ahAttrFromWc(wc: Wc, buffer: Uint8Array, gids: readonly GidEntry[]): AhAttr {
  if (!wc.ok || !wc.hasGrh) throw new VerbsError('EINVAL', `${wc}: not the completion of a received datagram`);
  const { source, destination, trafficClass, flowLabel } = readGrh(buffer);
  const own = gids.find(({ gid }) => gid === gidText(destination));
  const grh = { dgid: gidText(source), trafficClass: trafficClass & ~ECN_MASK, flowLabel };
  if (own !== undefined) return { grh: { ...grh, sgidIndex: own.index } };
  if (isMulticast(Uint8Array.from(destinationBytes(buffer)))) return { grh };
  throw new VerbsError('EINVAL', `the datagram was sent to ${destination}, which is no address of this device`);
}

function destinationBytes(buffer: Uint8Array): Uint8Array {
  return versionOf(buffer) === 4 ? buffer.subarray(36, 40) : buffer.subarray(24, 40);
}

/** Linux' rule: if both headers are possible, it is IPv4 when the IPv4 checksum is valid. */
function versionOf(buffer: Uint8Array): 4 | 6 {
  const [first, second] = [buffer[0] as number, buffer[IPV4_OFFSET] as number];
  if (first >> 4 !== 6) {
    if (second >> 4 === 4) return 4;
    throw new VerbsError('EINVAL', 'the buffer does not begin with the IP header of a datagram');
  }
  return second === 0x45 && isIpv4ChecksumValid(buffer) ? 4 : 6;
}

function isIpv4ChecksumValid(buffer: Uint8Array): boolean {
  let sum = 0;
  for (let at = IPV4_OFFSET; at < GRH_BYTES; at += 2) sum += ((buffer[at] as number) << 8) | (buffer[at + 1] as number);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return sum === 0xffff;
}
