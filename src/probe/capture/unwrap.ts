/**
 * Finds the RoCEv2 packet within a frame of a capture: behind the header of the link, tags, labels, and the tunnels and
 * mirror sessions of switches.
 */
import { ipText, macText } from '../packet/address.js';
import { ROCE_PORT } from '../packet/frame.js';
import { Fields } from './fields.js';

/** A RoCEv2 packet within a frame. */
export interface Unwrapped {
  /** Layers around it, from the outside, as text. */
  readonly outer: readonly string[];
  /** Its bytes from the IP header on, with whatever follows it. */
  readonly packet: Uint8Array;
}

/** The offset of the next header, and its EtherType. */
type Next = readonly [etherType: number, at: number];
type Step = (frame: Fields, at: number, outer: string[]) => Next | undefined;

const IPV4 = 0x0800;
const IPV6 = 0x86dd;
/** A frame with an Ethernet header of its own (transparent Ethernet bridging). */
const ETHERNET = 0x6558;
/** Tags of 802.1Q and 802.1ad, and those that switches used before 802.1ad. */
const TAGS = [0x8100, 0x88a8, 0x9100, 0x9200];
/** MPLS with one label for each packet, and with labels of a group. */
const MPLS = [0x8847, 0x8848];
/** Mirror sessions of types I and II, and of type III. */
const [ERSPAN, ERSPAN_III] = [0x88be, 0x22eb] as const;
/** Headers of one frame at most: an Ethernet header, tags and labels within a tunnel within another. */
const MAX_HEADERS = 24;

/** The first header by LINKTYPE (tcpdump.org/linktypes.html). */
const LINKS: Readonly<Record<number, Step>> = {
  0: (frame, at, outer) => loopback(new Fields(frame.bytes, true), at, outer),
  1: (_, at) => [ETHERNET, at],
  12: rawIp,
  14: rawIp,
  101: rawIp,
  108: loopback,
  113: (frame, at, outer) => {
    outer.push('Linux cooked capture');
    return [frame.u16(at + 14), at + 16];
  },
  228: (_, at) => [IPV4, at],
  229: (_, at) => [IPV6, at],
  276: (frame, at, outer) => {
    outer.push(`Linux cooked capture of interface ${frame.u32(at + 4)}`);
    return [frame.u16(at), at + 20];
  },
};

/** The link types that are read, for messages. */
export const LINK_TYPES = 'Ethernet (1), Linux cooked (113, 276), raw IP (12, 14, 101, 228, 229), loopback (0, 108)';

export const isKnownLinkType = (linkType: number): boolean => linkType in LINKS;

/** Headers by EtherType. */
const HEADERS: Readonly<Record<number, Step>> = {
  [ETHERNET]: (frame, at, outer) => {
    const mac = (from: number) => macText(frame.slice(from, 6));
    outer.push(`Ethernet ${mac(at + 6)} > ${mac(at)}`);
    return [frame.u16(at + 12), at + 14];
  },
  ...Object.fromEntries(TAGS.map((type) => [type, tag])),
  ...Object.fromEntries(MPLS.map((type) => [type, labels])),
  [IPV4]: ip,
  [IPV6]: ip,
  // its last bit tells of eight bytes more, and its frame type of a frame without Ethernet header
  [ERSPAN_III]: (frame, at, outer) => {
    outer.push(`ERSPAN III session ${frame.u16(at + 2) & 0x3ff}`);
    const flags = frame.u16(at + 10);
    const inner = at + 12 + 8 * (flags & 1);
    return ((flags >> 10) & 31) === 2 ? rawIp(frame, inner) : [ETHERNET, inner];
  },
};

/** Flags of GRE (RFC 2784, RFC 2890), each with a field of four bytes. */
const GRE = { CHECKSUM: 0x8000, KEY: 0x2000, SEQUENCE: 0x1000 } as const;

/** UDP ports of tunnels. */
const TUNNELS: Readonly<Record<number, Step>> = { 4789: vxlan, 8472: vxlan, 6081: geneve };

/** Returns the RoCEv2 packet of a frame; undefined if it has none, or is cut before it. */
export function unwrap(data: Uint8Array, linkType: number): Unwrapped | undefined {
  const frame = new Fields(data, false);
  const outer: string[] = [];
  try {
    let next = LINKS[linkType]?.(frame, 0, outer);
    for (let i = 0; i < MAX_HEADERS && next !== undefined; i++) {
      const [etherType, at] = next;
      if (isRoceIp(frame, etherType, at)) return { outer, packet: data.subarray(at) };
      next = HEADERS[etherType]?.(frame, at, outer);
    }
  } catch (error) {
    // the frame ends within a header
    if (!(error instanceof RangeError)) throw error;
  }
  return undefined;
}

function rawIp(frame: Fields, at: number): Next | undefined {
  const version = frame.u8(at) >> 4;
  if (version === 4) return [IPV4, at];
  return version === 6 ? [IPV6, at] : undefined;
}

/** The header of loopback captures: an address family, which tells less than the version of IP. */
function loopback(frame: Fields, at: number, outer: string[]): Next | undefined {
  outer.push('loopback');
  return rawIp(frame, at + 4);
}

/** A tag of IEEE 802.1Q or 802.1ad: priority, and VLAN. */
function tag(frame: Fields, at: number, outer: string[]): Next {
  const control = frame.u16(at);
  outer.push(`VLAN ${control & 0xfff}${control >> 13 ? `, priority ${control >> 13}` : ''}`);
  return [frame.u16(at + 2), at + 4];
}

/** Labels of MPLS (RFC 3032), and what a pseudowire carries behind a control word or without one (RFC 4385). */
function labels(frame: Fields, at: number, outer: string[]): Next | undefined {
  let end = at;
  let word: number;
  do {
    word = frame.u32(end);
    outer.push(`MPLS label ${word >>> 12}`);
    end += 4;
  } while (!(word & 0x100));
  return rawIp(frame, end) ?? [ETHERNET, frame.u8(end) >> 4 === 0 ? end + 4 : end];
}

/** The protocol behind an IP header and the extension headers of IPv6, and where it begins. */
function behindIp(frame: Fields, etherType: number, at: number): readonly [protocol: number, at: number] | undefined {
  if (etherType === IPV4) {
    // of a fragment only the first has the header of the protocol
    const isLater = (frame.u16(at + 6) & 0x1fff) !== 0;
    return isLater ? undefined : [frame.u8(at + 9), at + 4 * (frame.u8(at) & 15)];
  }
  let protocol = frame.u8(at + 6);
  let end = at + 40;
  // hop-by-hop options, routing and destination options
  while (protocol === 0 || protocol === 43 || protocol === 60) {
    protocol = frame.u8(end);
    end += 8 * (1 + frame.u8(end + 1));
  }
  return [protocol, end];
}

const UDP = 17;

function isRoceIp(frame: Fields, etherType: number, at: number): boolean {
  if (etherType !== IPV4 && etherType !== IPV6) return false;
  const [protocol, end] = behindIp(frame, etherType, at) ?? [0, 0];
  return protocol === UDP && frame.u16(end + 2) === ROCE_PORT;
}

/** An IP header around a tunnel. */
function ip(frame: Fields, at: number, outer: string[]): Next | undefined {
  const isV4 = frame.u8(at) >> 4 === 4;
  const found = behindIp(frame, isV4 ? IPV4 : IPV6, at);
  if (found === undefined) return undefined;
  const [protocol, end] = found;
  const [first, bytes] = isV4 ? [at + 12, 4] : [at + 8, 16];
  outer.push(`IPv${isV4 ? 4 : 6} ${ipText(frame.slice(first, bytes))} > ${ipText(frame.slice(first + bytes, bytes))}`);
  if (protocol === UDP) return TUNNELS[frame.u16(end + 2)]?.(frame, end + 8, outer);
  if (protocol === 47) return gre(frame, end, outer);
  return protocol === 4 || protocol === 41 ? rawIp(frame, end) : undefined;
}

function gre(frame: Fields, at: number, outer: string[]): Next {
  const flags = frame.u16(at);
  const fields = [GRE.CHECKSUM, GRE.KEY, GRE.SEQUENCE].filter((flag) => flags & flag).length;
  const [etherType, end] = [frame.u16(at + 2), at + 4 + 4 * fields];
  outer.push('GRE');
  if (etherType !== ERSPAN) return [etherType, end];
  // type I has no header, and no sequence numbers
  const isSecond = (flags & GRE.SEQUENCE) !== 0;
  outer.push(isSecond ? `ERSPAN II session ${frame.u16(end + 2) & 0x3ff}` : 'ERSPAN I');
  return [ETHERNET, isSecond ? end + 8 : end];
}

/** RFC 7348. */
function vxlan(frame: Fields, at: number, outer: string[]): Next {
  outer.push(`VXLAN ${frame.u32(at + 4) >>> 8}`);
  return [ETHERNET, at + 8];
}

/** RFC 8926. */
function geneve(frame: Fields, at: number, outer: string[]): Next {
  outer.push(`GENEVE ${frame.u32(at + 4) >>> 8}`);
  return [frame.u16(at + 2), at + 8 + 4 * (frame.u8(at) & 0x3f)];
}
