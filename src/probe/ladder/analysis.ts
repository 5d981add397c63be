/** The analysis of a capture of RoCEv2 packets: its connections, the kind of each packet, and the trouble. */
import type { CapturedPacket } from '../capture/captured.js';
import { type CapturedRoce, decodeCaptured } from '../capture/roce.js';
import { Op } from '../packet/opcodes.js';
import { countsOf, type LadderConnection } from './connection.js';
import { Follower } from './follow.js';
import type { LadderPacket } from './packet.js';
import { type Pair, pairWays } from './pairing.js';
import { type Directed, restarts } from './restart.js';
import { findWays, firstOf, type Seen } from './ways.js';

/** A capture as a ladder shows it. */
export interface Ladder {
  /** The connections, in the order of their first packets. */
  readonly connections: readonly LadderConnection[];
  /** The RoCEv2 packets, in the order of the capture. */
  readonly packets: readonly LadderPacket[];
  /** Packets of the capture that are not RoCEv2, or are cut before the end of their BTH. */
  readonly skipped: number;
}

/** Analyses a capture. */
export function analyse(captured: readonly CapturedPacket[]): Ladder {
  const start = captured[0]?.time ?? 0n;
  const all: Seen[] = [];
  for (const [at, each] of captured.entries()) {
    const packet = decodeCaptured(each);
    if (packet !== undefined) all.push({ at, time: Number(each.time - start), packet });
  }
  const connections: LadderConnection[] = [];
  const packets: LadderPacket[] = [];
  const begun = pairWays(findWays(all))
    .flatMap(divide)
    .sort((a, b) => firstOf(a) - firstOf(b));
  for (const { pair, began, packets: own } of begun) {
    const follower = new Follower(connections.length, pathMtu(own));
    const shown = own.map(({ at, time, direction, packet }) =>
      follower.packet({ number: at + 1, time, direction, packet }),
    );
    const { first, second, pairing } = pair;
    const ends = { addresses: [first.src, first.dst], qps: [second?.qp, first.qp] } as const;
    connections.push({ ...ends, pairing, began, ...countsOf(shown) });
    for (const each of shown) packets.push(each);
  }
  packets.sort((a, b) => a.number - b.number);
  return { connections, packets, skipped: captured.length - all.length };
}

interface Begun {
  readonly pair: Pair;
  readonly began: string;
  readonly packets: readonly Directed[];
}

/** Returns the connections of a pair, one after the other. */
function divide(pair: Pair): Begun[] {
  const directed = (packets: readonly Seen[], direction: 0 | 1) => packets.map((seen) => ({ ...seen, direction }));
  const both: Directed[] = [...directed(pair.first.packets, 0), ...directed(pair.second?.packets ?? [], 1)];
  both.sort((a, b) => a.at - b.at);
  const cuts = [0, ...restarts(both)];
  return cuts.map((from, i) => ({
    pair,
    began: i === 0 ? pair.first.began : 'the peer counts its messages (MSN) from the beginning',
    packets: both.slice(from, cuts[i + 1]),
  }));
}

/** Returns the path MTU in bytes: the payload of a packet that is not the last of its message; 0 if there is none. */
function pathMtu(packets: readonly Seen[]): number {
  return packets.reduce((most, { packet }) => (isInner(packet) ? Math.max(most, packet.payloadBytes) : most), 0);
}

/** Operations of packets that others of their message follow. */
const INNER: ReadonlySet<number> = new Set([
  ...[Op.SEND_FIRST, Op.SEND_MIDDLE, Op.RDMA_WRITE_FIRST, Op.RDMA_WRITE_MIDDLE],
  ...[Op.RDMA_READ_RESPONSE_FIRST, Op.RDMA_READ_RESPONSE_MIDDLE],
]);

function isInner({ bth }: CapturedRoce): boolean {
  return INNER.has(bth.opcode & 0x1f);
}
