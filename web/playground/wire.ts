/** The picture of the wire: each packet on its way, at its place. */
import type { Kind } from '../../src/probe/ladder/packet.js';
import { colour, line, prepare } from '../ladder/dom.js';
import { COLOURS, cross, LOST_AT } from '../ladder/view.js';
import type { Flight } from './network.js';

const MARGIN = 6;
/** Packets of fewer bytes carry no data to speak of. */
const SMALL_BYTES = 200;

/** Draws packets from A at the top, packets from B below. */
export function drawWire(
  canvas: HTMLCanvasElement,
  flights: readonly Flight[],
  now: number,
  kindOf: (flight: Flight) => Kind,
): void {
  const [context, width, height] = prepare(canvas);
  const lanes = [height * 0.35, height * 0.65] as const;
  context.strokeStyle = colour('line');
  for (const y of lanes) line(context, 0, y, width, y);
  for (const flight of flights) {
    const { from, bytes, sent, arrives, isLost } = flight;
    const share = Math.min((now - sent) / (arrives - sent), isLost ? LOST_AT : 1);
    const x = MARGIN + (width - 2 * MARGIN) * (from === 0 ? share : 1 - share);
    const y = lanes[from];
    if (isLost && share === LOST_AT) {
      context.strokeStyle = colour('trouble');
      cross(context, x, y);
    } else {
      const size = bytes.length > SMALL_BYTES ? 5 : 3;
      context.fillStyle = colour(COLOURS[kindOf(flight)]);
      context.fillRect(x - size, y - size, 2 * size, 2 * size);
    }
  }
}
