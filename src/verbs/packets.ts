/** The packets that a failure is about, for people. */
import { type PacketHeader, tracedPackets } from '../device/headers.js';
import type { Qp } from './qp.js';

/** The end of a story is what matters. */
const MOST = 16;

/**
 * The last packets that came for a queue pair, or went from it to its peer: a line each, oldest first, with the time
 * before the last one.
 * @param peer of a connected queue pair
 */
export function packetsOf(qp: Qp, peer: { readonly address: string; readonly qpn: number } | undefined): string[] {
  const isToPeer = ({ srcQpn, destQpn, destination }: PacketHeader) =>
    srcQpn !== undefined ? srcQpn === qp.qpNum : destQpn === peer?.qpn && destination === peer.address;
  const { card, engine } = qp.device;
  const packets = card
    .exclusively(() => tracedPackets(engine.trace))
    .filter((packet) => (packet.sent ? isToPeer(packet) : packet.destQpn === qp.qpNum))
    .slice(-MOST);
  const end = packets.at(-1)?.at ?? 0;
  return packets.map(({ at, sent, text }) => {
    const ms = ((at - end) / 1e6).toFixed(3);
    return `${ms.padStart(11)} ms  ${sent ? 'sent' : 'came'}  ${text}`;
  });
}
