/**
 * Divides the packets of a capture into ways: those of one address to one queue pair of another, as long as that
 * belongs to one connection. A queue pair number that is used again begins a new way.
 */
import type { CapturedRoce } from '../capture/roce.js';
import { ipText } from '../packet/address.js';
import { CNP, Op, UD_SEND_ONLY } from '../packet/opcodes.js';
import { psnAfter, psnDistance } from '../packet/psn.js';
import { isResponse, madOf } from './packet.js';

/** A packet of the capture. */
export interface Seen {
  /** Its index in the capture. */
  readonly at: number;
  /** Nanoseconds since the first packet of the capture. */
  readonly time: number;
  /** The packet, decoded. */
  readonly packet: CapturedRoce;
}

/** One direction of a connection. */
export interface Way {
  /** The address from which the packets come. */
  readonly src: string;
  /** The address to which they go. */
  readonly dst: string;
  /** The queue pair to which they go. */
  readonly qp: number;
  /** Why it is another connection than the one before with the same numbers; empty for the first one. */
  readonly began: string;
  /** In the order of the capture; at least one. */
  readonly packets: readonly Seen[];
}

/** A queue pair that rdma_cm has named, and the one that belongs to it. */
export interface Introduction {
  /** Its address and number. */
  readonly end: string;
  /** Index of the packet that names it. */
  readonly at: number;
  /** The introduction of the other end; undefined until a REP names it. */
  other: Introduction | undefined;
}

/**
 * More PSNs than a queue pair has in flight, and than a recorder is likely to lose at a time. A connection that begins
 * with a random PSN lies within them in 3 of 100 cases.
 */
export const JUMP = 1 << 18;

export const endOf = (address: string, qp: number): string => `${address} ${qp}`;
/** Whether the packets of a way have PSNs that count: not those of datagrams, nor congestion notifications. */
export const isSequenced = ({ bth }: CapturedRoce): boolean =>
  bth.destQp !== 1 && bth.opcode < UD_SEND_ONLY && bth.opcode !== CNP;

/** Returns the ways of a capture in the order of their first packets, and the queue pairs that rdma_cm names. */
export function findWays(all: readonly Seen[]): { ways: Way[]; introductions: Map<string, Introduction[]> } {
  const introductions = findIntroductions(all);
  const groups = new Map<string, Seen[]>();
  for (const seen of all) {
    const { ip, bth } = seen.packet;
    const key = `${ip.src} ${endOf(ip.dst, bth.destQp)}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [seen]);
    else group.push(seen);
  }
  const ways: Way[] = [];
  for (const group of groups.values()) ways.push(...divide(group, introductions));
  ways.sort((a, b) => (a.packets[0] as Seen).at - (b.packets[0] as Seen).at);
  return { ways, introductions };
}

/** Finds the queue pairs that REQ and REP name. A message that is sent again names them once. */
function findIntroductions(all: readonly Seen[]): Map<string, Introduction[]> {
  const found = new Map<string, Introduction[]>();
  const requests = new Map<string, Introduction>();
  const known = new Set<string>();
  const introduce = (address: string, qp: number, at: number): Introduction => {
    const end = endOf(address, qp);
    const introduction: Introduction = { end, at, other: undefined };
    found.set(end, [...(found.get(end) ?? []), introduction]);
    return introduction;
  };
  for (const { at, packet } of all) {
    const mad = madOf(packet);
    if (mad?.name !== 'REQ' && mad?.name !== 'REP') continue;
    const { src, dst } = packet.ip;
    const { localCommId, localQpn, startingPsn } = mad.fields;
    const once = `${mad.name} ${src} ${localCommId} ${localQpn} ${startingPsn}`;
    if (known.has(once)) continue;
    known.add(once);
    if (mad.name === 'REQ') {
      requests.set(`${src} ${localCommId}`, introduce(addressOf(mad.fields.localGid) ?? src, localQpn, at));
      continue;
    }
    const request = requests.get(`${dst} ${mad.fields.remoteCommId}`);
    const reply = introduce(src, localQpn, at);
    if (request === undefined) continue;
    request.other = reply;
    reply.other = request;
  }
  return found;
}

/** Returns the address of a GID; undefined if it is zero, because the message is cut. */
function addressOf(gid: Uint8Array): string | undefined {
  if (gid.every((byte) => byte === 0)) return undefined;
  const isV4 = gid.subarray(0, 10).every((byte) => byte === 0) && gid[10] === 0xff && gid[11] === 0xff;
  return ipText(isV4 ? gid.subarray(12) : gid);
}

/** Divides the packets to one queue pair where another connection begins. */
function divide(group: readonly Seen[], introductions: ReadonlyMap<string, readonly Introduction[]>): Way[] {
  const { ip, bth } = (group[0] as Seen).packet;
  const to = { src: ip.src, dst: ip.dst, qp: bth.destQp };
  const named = introductions.get(endOf(ip.dst, bth.destQp)) ?? [];
  const ways: Way[] = [];
  let from = 0;
  let began = '';
  const cut = (at: number, why: string) => {
    if (at > from) ways.push({ ...to, began, packets: group.slice(from, at) });
    from = at;
    began = why;
  };
  let streams = newStreams();
  for (const [i, { at, packet }] of group.entries()) {
    if (!isSequenced(packet)) continue;
    const stream = streams[isResponse(packet.bth.opcode) ? 1 : 0] as Stream;
    const previous = group[i - 1]?.at ?? -1;
    const isNamed = i > 0 && named.some((each) => each.at > previous && each.at < at);
    if (!isNamed && !isFar(stream, packet)) {
      advance(stream, packet);
      continue;
    }
    // a single packet from far away is an error of its sender
    if (!isNamed && !isFollowed(packet, group, i)) continue;
    const jump = `the PSNs jump from ${stream.low} to ${packet.bth.psn}`;
    cut(i, isNamed ? 'rdma_cm has made a connection with this queue pair number' : jump);
    streams = newStreams();
    advance(streams[isResponse(packet.bth.opcode) ? 1 : 0] as Stream, packet);
  }
  cut(group.length, '');
  return ways;
}

/** The PSNs that may come next: a READ takes at least one, and at most as many as its response has packets. */
interface Stream {
  low: number | undefined;
  high: number;
}

const newStreams = (): readonly [Stream, Stream] => [
  { low: undefined, high: 0 },
  { low: undefined, high: 0 },
];
const MIN_MTU = 256;

function advance(stream: Stream, { bth, reth }: CapturedRoce): void {
  if (stream.low !== undefined && psnDistance(bth.psn, stream.low) < 0) return;
  const bytes = bth.opcode === Op.RDMA_READ_REQUEST ? (reth?.length ?? 0) : 0;
  stream.low = psnAfter(bth.psn, 1);
  stream.high = psnAfter(bth.psn, Math.min(JUMP, Math.max(1, Math.ceil(bytes / MIN_MTU))));
}

function isFar({ low, high }: Stream, { bth }: CapturedRoce): boolean {
  return low !== undefined && (psnDistance(bth.psn, low) <= -JUMP || psnDistance(bth.psn, high) >= JUMP);
}

/** Whether the next request, or the next response, is near. */
function isFollowed({ bth }: CapturedRoce, group: readonly Seen[], i: number): boolean {
  const response = isResponse(bth.opcode);
  for (let k = i + 1; k < group.length; k++) {
    const { packet } = group[k] as Seen;
    if (!isSequenced(packet) || isResponse(packet.bth.opcode) !== response) continue;
    return Math.abs(psnDistance(packet.bth.psn, bth.psn)) < JUMP;
  }
  return false;
}
