/** A part of a ladder: some connections, some time. */
import type { Ladder } from './analysis.js';
import type { LadderConnection } from './connection.js';
import { type LadderPacket, MARKS, TROUBLE } from './packet.js';

/** What of a ladder is wanted. */
export interface LadderPart {
  /** Connections with this queue pair number at either end. Default: all. */
  readonly qp?: number;
  /** Nanoseconds since the first packet of the capture. Default: from the first packet. */
  readonly from?: number;
  /** Nanoseconds since the first packet of the capture, inclusive. Default: to the last packet. */
  readonly to?: number;
}

/** Returns a part of a ladder. What is unusual about its packets is seen with the others that the capture has. */
export function selectLadder(
  ladder: Ladder,
  { qp, from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY }: LadderPart,
): Ladder {
  const isWanted = ({ connection, time }: LadderPacket) =>
    time >= from &&
    time <= to &&
    (qp === undefined || (ladder.connections[connection] as LadderConnection).qps.includes(qp));
  const wanted = ladder.packets.filter(isWanted);
  const counts = new Map<number, { packets: number; troubles: number }>();
  for (const { connection, marks } of wanted) {
    const count = counts.get(connection) ?? { packets: 0, troubles: 0 };
    counts.set(connection, count);
    count.packets++;
    if (marks & TROUBLE) count.troubles++;
  }
  const kept = [...counts.keys()].sort((a, b) => a - b);
  const numbers = new Map(kept.map((connection, i) => [connection, i]));
  return {
    connections: kept.map((each) => ({ ...(ladder.connections[each] as LadderConnection), ...counts.get(each) })),
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
