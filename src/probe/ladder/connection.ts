/** A connection of a ladder. */
import { type LadderPacket, TROUBLE } from './packet.js';
import { type Pairing, pairingText } from './pairing.js';

/** The two ends of a connection. */
export interface LadderConnection {
  /** IP addresses of the first and the second end. */
  readonly addresses: readonly [string, string];
  /** Queue pair numbers; undefined for an end to which no packet went. */
  readonly qps: readonly [number | undefined, number | undefined];
  /** The evidence that the two directions belong together. */
  readonly pairing: Pairing;
  /** The reason why it is another connection than an earlier one with the same numbers; empty for the first one. */
  readonly began: string;
  /** Number of packets. */
  readonly packets: number;
  /** Number of packets with marks that mean trouble. */
  readonly troubles: number;
}

/** Returns the counts of a connection with these packets. */
export function countsOf(packets: readonly LadderPacket[]): Pick<LadderConnection, 'packets' | 'troubles'> {
  return { packets: packets.length, troubles: packets.filter(({ marks }) => marks & TROUBLE).length };
}

/** Returns both ends in a line. */
export function connectionText({ addresses, qps }: LadderConnection): string {
  const [near, far] = addresses.map((address, i) => `${address} qp ${qps[i] ?? '?'}`);
  return `${near} – ${far}`;
}

/** Returns how sure it is that the two directions are one connection, and that it is not an earlier one. */
export function aboutText({ pairing, began }: LadderConnection): string {
  return pairingText(pairing) + (began === '' ? '' : ` A new connection of numbers that were used before: ${began}.`);
}
