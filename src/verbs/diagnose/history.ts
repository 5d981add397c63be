/** The last packets of a queue pair and the last decisions of the card about it, as lines for an explanation. */
import type { Card } from '../../device/card.js';
import { decisions } from '../../device/decisions.js';
import { type PacketHeader, tracedPackets } from '../../device/decode.js';
import type { Engine } from '../../device/engine.js';

/** A queue pair, with what traces it. */
interface TracedQp {
  readonly qpNum: number;
  readonly device: { readonly card: Card; readonly engine: Engine };
}

/** Most packets, and most decisions, in an explanation: the last ones matter. */
const MOST_LINES = 16;

/**
 * Returns the last packets received for a queue pair or sent by it, one line each, oldest first, with the time relative
 * to the last packet.
 * @param peer the peer of a connected queue pair
 */
export function recentPackets(
  qp: TracedQp,
  peer: { readonly address: string; readonly qpNum: number } | undefined,
): string[] {
  const isToPeer = ({ srcQpn, destQpn, destination }: PacketHeader) =>
    srcQpn !== undefined ? srcQpn === qp.qpNum : destQpn === peer?.qpNum && destination === peer.address;
  const { card, engine } = qp.device;
  const packets = card
    .exclusively(() => tracedPackets(engine.trace))
    .filter((packet) => (packet.sent ? isToPeer(packet) : packet.destQpn === qp.qpNum))
    .slice(-MOST_LINES);
  const lastAt = packets.at(-1)?.at ?? 0;
  return packets.map(({ at, sent, text }) => {
    const ms = ((at - lastAt) / 1e6).toFixed(3);
    return `${ms.padStart(11)} ms  ${sent ? 'sent' : 'came'}  ${text}`;
  });
}

/** The last decisions about a queue pair: a line each, oldest first, with the time before the last one. */
export function decisionsOf(qp: TracedQp): string[] {
  const last = decisions(qp.device.card, qp.qpNum).slice(-MOST_LINES);
  const end = last.at(-1)?.at ?? 0;
  return last.map(({ at, text }) => `${((at - end) / 1e6).toFixed(3).padStart(11)} ms  ${text}`);
}
