/**
 * The 40 bytes in front of every received datagram (annex A17.4.5 of the InfiniBand specification): over IPv6 its header,
 * over IPv4 twenty bytes that mean nothing and the IPv4 header.
 */
import { VerbsError } from '../errors.js';
import { ipText, isMulticast } from '../link/address.js';
import type { AhAttr } from './ah.js';
import { show } from './check.js';
import { type GidEntry, gidText } from './gid.js';
import type { Wc } from './wc.js';

/** Bytes in front of a received datagram. */
export const GRH_BYTES = 40;
const IPV4_AT = 20;
/** The congestion bits of a traffic class: a mark on the way here is none for the way back. */
const ECN = 3;

/** Addresses and class of a received datagram. */
export interface GrhInfo {
  readonly version: 4 | 6;
  /** IP addresses as text. */
  readonly source: string;
  readonly destination: string;
  readonly trafficClass: number;
  /** IPv6 only; else 0. */
  readonly flowLabel: number;
  readonly hopLimit: number;
}

/**
 * Reads the 40 bytes.
 * @param buffer begins with them: the start of the receive's memory
 * @throws TypeError, RangeError when they are not all there; VerbsError EINVAL when they are no IP header
 */
export function readGrh(buffer: Uint8Array): GrhInfo {
  if (!(buffer instanceof Uint8Array)) throw new TypeError(`the buffer is ${show(buffer)}, must be a Uint8Array`);
  if (buffer.length < GRH_BYTES)
    throw new RangeError(`the buffer has ${buffer.length} bytes, a datagram begins with ${GRH_BYTES} of its way`);
  const version = versionOf(buffer);
  const byte = (at: number) => buffer[at] as number;
  if (version === 4)
    return {
      version,
      source: ipText(buffer.slice(IPV4_AT + 12, IPV4_AT + 16)),
      destination: ipText(buffer.slice(IPV4_AT + 16, IPV4_AT + 20)),
      trafficClass: byte(IPV4_AT + 1),
      flowLabel: 0,
      hopLimit: byte(IPV4_AT + 8),
    };
  return {
    version,
    source: ipText(buffer.slice(8, 24)),
    destination: ipText(buffer.slice(24, 40)),
    trafficClass: ((byte(0) & 15) << 4) | (byte(1) >> 4),
    flowLabel: ((byte(1) & 15) << 16) | (byte(2) << 8) | byte(3),
    hopLimit: byte(7),
  };
}

/**
 * The way back to whom a datagram came from (ibv_init_ah_from_wc): its source address, from ours that it was sent to;
 * flow label and traffic class as they came, without a congestion mark; the hop limit is the route's.
 * @throws as `readGrh`; VerbsError EINVAL when the completion is not one of a datagram
 */
export function ahAttrFromWc(wc: Wc, buffer: Uint8Array, gids: readonly GidEntry[]): AhAttr {
  if (!wc.ok || !wc.hasGrh) throw new VerbsError('EINVAL', `${wc}: no datagram was received with it`);
  const { source, destination, trafficClass, flowLabel } = readGrh(buffer);
  const own = gids.find(({ gid }) => gid === gidText(destination));
  const grh = { dgid: gidText(source), trafficClass: trafficClass & ~ECN, flowLabel };
  if (own !== undefined) return { grh: { ...grh, sgidIndex: own.index } };
  if (isMulticast(Uint8Array.from(destinationBytes(buffer)))) return { grh };
  throw new VerbsError('EINVAL', `the datagram was sent to ${destination}, which is none of our addresses`);
}

function destinationBytes(buffer: Uint8Array): Uint8Array {
  return versionOf(buffer) === 4 ? buffer.subarray(36, 40) : buffer.subarray(24, 40);
}

/** The rule of Linux: where both headers seem possible, that of IPv4 is one if its checksum is right. */
function versionOf(buffer: Uint8Array): 4 | 6 {
  const [first, second] = [buffer[0] as number, buffer[IPV4_AT] as number];
  if (first >> 4 !== 6) {
    if (second >> 4 === 4) return 4;
    throw new VerbsError('EINVAL', 'the buffer does not begin with the IP header of a datagram');
  }
  return second === 0x45 && isSumRight(buffer) ? 4 : 6;
}

function isSumRight(buffer: Uint8Array): boolean {
  let sum = 0;
  for (let at = IPV4_AT; at < GRH_BYTES; at += 2) sum += ((buffer[at] as number) << 8) | (buffer[at + 1] as number);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return sum === 0xffff;
}
