/** The reliable connections in a capture: requests and responses in the order of the wire. */

import { type Decoded, decode, Op } from '../../src/probe/packet/packets.js';
import { roceFrames } from '../kit/fixtures.js';

/** Requests from one queue pair to another, and the responses. */
export interface Conversation {
  readonly capture: string;
  readonly srcIp: string;
  readonly dstIp: string;
  /** Queue pair of the requester and of the responder. */
  readonly requester: number;
  readonly responder: number;
  readonly mtu: number;
  readonly firstPsn: number;
  /** Both directions, in order. */
  readonly packets: readonly { readonly isRequest: boolean; readonly frame: Decoded }[];
}

const RESPONSES: readonly number[] = [
  Op.RDMA_READ_RESPONSE_FIRST,
  Op.RDMA_READ_RESPONSE_MIDDLE,
  Op.RDMA_READ_RESPONSE_LAST,
  Op.RDMA_READ_RESPONSE_ONLY,
  Op.ACKNOWLEDGE,
  Op.ATOMIC_ACKNOWLEDGE,
];
const FULL: readonly number[] = [
  Op.SEND_FIRST,
  Op.SEND_MIDDLE,
  Op.RDMA_WRITE_FIRST,
  Op.RDMA_WRITE_MIDDLE,
  Op.RDMA_READ_RESPONSE_FIRST,
  Op.RDMA_READ_RESPONSE_MIDDLE,
];

export const isResponse = ({ bth }: Decoded): boolean => RESPONSES.includes(bth.opcode);
/** The lead of PSN a over b. */
export const ahead = (a: number, b: number): number => ((a - b) << 8) >> 8;

function oldest(frames: readonly Decoded[]): number {
  return frames.map(({ bth }) => bth.psn).reduce((a, b) => (ahead(a, b) < 0 ? a : b));
}

/** Every direction of every reliable connection that has requests. */
export function conversations(capture: string): Conversation[] {
  return conversationsIn(capture, roceFrames(capture));
}

/** The same of RoCEv2 frames; `capture` is their name. */
export function conversationsIn(capture: string, captured: readonly Uint8Array[]): Conversation[] {
  const frames = captured.map(decode).filter(({ bth }) => bth.opcode < 0x20);
  const streams = new Map<string, Decoded[]>();
  for (const frame of frames) {
    if (isResponse(frame)) continue;
    const key = `${frame.ip.src} ${frame.ip.dst} ${frame.bth.destQp}`;
    streams.set(key, [...(streams.get(key) ?? []), frame]);
  }
  return [...streams.values()].flatMap((requests) => conversation(capture, frames, requests));
}

function conversation(capture: string, frames: readonly Decoded[], requests: readonly Decoded[]): Conversation[] {
  const { ip, bth } = requests[0] as Decoded;
  const firstPsn = oldest(requests);
  const span = Math.max(...requests.map((frame) => ahead(frame.bth.psn, firstPsn) + packetsOf(frame, 256)));
  // a packet names only its destination: the requester is the one that receives responses with these PSNs
  const counts = new Map<number, number>();
  for (const frame of frames) {
    if (!isResponse(frame) || frame.ip.src !== ip.dst || frame.ip.dst !== ip.src) continue;
    const place = ahead(frame.bth.psn, firstPsn);
    if (place >= -16 && place <= span) counts.set(frame.bth.destQp, (counts.get(frame.bth.destQp) ?? 0) + 1);
  }
  const requester = [...counts].sort((a, b) => b[1] - a[1])[0]?.[0];
  if (requester === undefined) return [];
  const packets = frames.flatMap((frame) => {
    if (frame.ip.src === ip.src && frame.bth.destQp === bth.destQp && !isResponse(frame))
      return [{ isRequest: true, frame }];
    const isAnswer = frame.ip.src === ip.dst && frame.bth.destQp === requester && isResponse(frame);
    return isAnswer ? [{ isRequest: false, frame }] : [];
  });
  const full = packets.find(({ frame }) => FULL.includes(frame.bth.opcode));
  const mtu = full?.frame.payload.length ?? (capture.startsWith('mtu9000') ? 4096 : 1024);
  return [{ capture, srcIp: ip.src, dstIp: ip.dst, requester, responder: bth.destQp, mtu, firstPsn, packets }];
}

/** Number of PSNs of a request. */
export function packetsOf({ bth, reth }: Decoded, mtu: number): number {
  return bth.opcode === Op.RDMA_READ_REQUEST ? Math.max(1, Math.ceil((reth?.length ?? 0) / mtu)) : 1;
}

/** The parts of a packet that a test compares; an absent member means that the packet lacks the header. */
export interface Said {
  readonly opcode: string;
  readonly psn: number;
  readonly syndrome?: number;
  readonly msn?: number;
  readonly original?: bigint;
  readonly bytes: number;
  readonly payload: string;
}

export function said({ bth, aeth, atomicack, payload }: Decoded): Said {
  return {
    opcode: Op[bth.opcode] as string,
    psn: bth.psn,
    ...(aeth ? { syndrome: aeth.syndrome, msn: aeth.msn } : {}),
    ...(atomicack === undefined ? {} : { original: atomicack }),
    bytes: payload.length,
    payload: Buffer.from(payload).toString('base64'),
  };
}
