/** A part of a ladder: some connections, some time. */
import type { Ladder } from './analysis.js';
import { countsOf, type LadderConnection } from './connection.js';
import { groupBy } from './group.js';
import { type LadderPacket, MARKS } from './packet.js';

/** A choice of packets. */
export interface LadderPart {
  /** Connections with this queue pair number at either end. Default: all. */
  readonly qp?: number;
  /** Nanoseconds since the first packet of the capture. Default: from the first packet. */
  readonly from?: number;
  /** Nanoseconds since the first packet of the capture, inclusive. Default: to the last packet. */
  readonly to?: number;
}

/** Returns a part of a ladder. The notes of its packets are those that they have in the whole ladder. */
export function selectLadder(
  ladder: Ladder,
  { qp, from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY }: LadderPart,
): Ladder {
  const isWanted = ({ connection, time }: LadderPacket) =>
    time >= from &&
    time <= to &&
    (qp === undefined || (ladder.connections[connection] as LadderConnection).qps.includes(qp));
  const wanted = ladder.packets.filter(isWanted);
  const kept = [...groupBy(wanted, ({ connection }) => connection)].sort(([a], [b]) => a - b);
  const numbers = new Map(kept.map(([connection], i) => [connection, i]));
  return {
    connections: kept.map(([connection, packets]) => ({
      ...(ladder.connections[connection] as LadderConnection),
      ...countsOf(packets),
    })),
    packets: wanted.map((packet) => ({ ...packet, connection: numbers.get(packet.connection) as number })),
    skipped: ladder.skipped,
  };
}

/** A packet with something unusual. */
export interface LadderFinding extends Pick<LadderPacket, 'number' | 'time' | 'direction' | 'psn' | 'label' | 'note'> {
  /** Names of MARKS. */
  readonly marks: readonly (keyof typeof MARKS)[];
}

/** A connection with all that is unusual about its packets. */
export interface ConnectionFindings extends LadderConnection {
  /** In the order of the capture. */
  readonly findings: readonly LadderFinding[];
}

/** Returns the connections of a ladder with what is unusual about each, those with most trouble first. */
export function ladderFindings({ connections, packets }: Ladder): ConnectionFindings[] {
  const found = connections.map((): LadderFinding[] => []);
  for (const { connection, number, time, direction, psn, label, note, marks } of packets)
    if (marks !== 0) found[connection]?.push({ number, time, direction, psn, label, note, marks: names(marks) });
  return connections
    .map((connection, i) => ({ ...connection, findings: found[i] as LadderFinding[] }))
    .sort((a, b) => b.troubles - a.troubles);
}

function names(marks: number): (keyof typeof MARKS)[] {
  return (Object.keys(MARKS) as (keyof typeof MARKS)[]).filter((name) => marks & MARKS[name]);
}
