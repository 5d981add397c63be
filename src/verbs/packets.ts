/** The traced packets of a queue pair as text, for explanations. */
import { type PacketHeader, tracedPackets } from '../device/decode.js';
import type { Qp } from './qp.js';

/** Most packets in an explanation. */
const MAX_PACKETS = 16;

/**
 * Returns the last packets received for a queue pair or sent by it, one line each, oldest first, with the time relative
 * to the last packet.
 * @param peer the peer of a connected queue pair
 */
export function recentPackets(qp: Qp, peer: { readonly address: string; readonly qpn: number } | undefined): string[] {
  const isToPeer = ({ srcQpn, destQpn, destination }: PacketHeader) =>
    srcQpn !== undefined ? srcQpn === qp.qpNum : destQpn === peer?.qpn && destination === peer.address;
  const { card, engine } = qp.device;
  const packets = card
    .exclusively(() => tracedPackets(engine.trace))
    .filter((packet) => (packet.sent ? isToPeer(packet) : packet.destQpn === qp.qpNum))
    .slice(-MAX_PACKETS);
  const lastAt = packets.at(-1)?.at ?? 0;
  return packets.map(({ at, sent, text }) => {
    const ms = ((at - lastAt) / 1e6).toFixed(3);
    return `${ms.padStart(11)} ms  ${sent ? 'sent' : 'came'}  ${text}`;
  });
}
