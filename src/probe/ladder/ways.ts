/**
 * Divides the packets of a capture into ways: those of one address to one queue pair of another, as long as that
 * belongs to one connection. A queue pair number that is used again begins a new way.
 */
import type { CapturedRoce } from '../capture/roce.js';
import { ipText } from '../packet/address.js';
import { Op } from '../packet/opcodes.js';
import { psnAfter, psnDistance } from '../packet/psn.js';
import { groupBy } from './group.js';
import { isResponse, isSequenced, madOf } from './packet.js';

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
  /** The name that rdma_cm has given the queue pair; undefined if it has not, before the first packet. */
  readonly named: Introduction | undefined;
  /** The reason why it is another connection than the one before with the same numbers; empty for the first one. */
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
/** Returns the index of the first packet. */
export const firstOf = ({ packets }: { readonly packets: readonly Seen[] }): number => (packets[0] as Seen).at;

/** Returns the ways of a capture. */
export function findWays(all: readonly Seen[]): Way[] {
  const introductions = groupBy(findIntroductions(all), ({ end }) => end);
  const groups = groupBy(all, ({ packet: { ip, bth } }) => `${ip.src} ${endOf(ip.dst, bth.destQp)}`);
  return [...groups.values()].flatMap((group) => divide(group, introductions));
}

/** Returns the queue pairs that REQ and REP name. A message that is sent again names them once. */
function findIntroductions(all: readonly Seen[]): Introduction[] {
  const found: Introduction[] = [];
  const requests = new Map<string, Introduction>();
  const known = new Set<string>();
  const introduce = (address: string, qp: number, at: number): Introduction => {
    const introduction: Introduction = { end: endOf(address, qp), at, other: undefined };
    found.push(introduction);
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
  const introduced = introductions.get(endOf(ip.dst, bth.destQp)) ?? [];
  const ways: Way[] = [];
  let [from, began, streams] = [0, '', newStreams()];
  let count = 0;
  const named = () => introduced[count - 1];
  /** Ends the way before a packet. */
  const cut = (before: number, why: string) => {
    if (before > from) ways.push({ ...to, named: named(), began, packets: group.slice(from, before) });
    [from, began, streams] = [before, why, newStreams()];
  };
  for (const [i, { at, packet }] of group.entries()) {
    if (!isSequenced(packet)) continue;
    if ((introduced[count]?.at ?? at) < at) {
      cut(i, i === 0 ? '' : 'rdma_cm has made a connection with this queue pair number');
      while ((introduced[count]?.at ?? at) < at) count++;
    }
    const stream = () => streams[isResponse(packet.bth.opcode) ? 1 : 0];
    if (isFar(stream(), packet)) {
      // a single packet from far away is an error of its sender
      if (!isFollowed(packet, group, i)) continue;
      cut(i, `the PSNs jump from ${stream().low} to ${packet.bth.psn}`);
    }
    advance(stream(), packet);
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
