/** The plots beside a ladder: PSN over time, and goodput. */
import { type LadderPacket, TROUBLE } from '../../src/probe/ladder/packet.js';
import { prepare } from './dom.js';

interface Colours {
  readonly text: string;
  readonly line: string;
  readonly mark: string;
  readonly data: string;
}

const [PAD_LEFT, PAD_BOTTOM, PAD_TOP] = [6, 16, 16];
const FONT = '11px system-ui, "DejaVu Sans", sans-serif';

function span(packets: readonly LadderPacket[]): [number, number] {
  const first = packets[0]?.time ?? 0;
  return [first, Math.max(1, (packets.at(-1)?.time ?? 0) - first)];
}

function axis(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  { text }: Colours,
  top: string,
  ns: number,
): void {
  context.font = FONT;
  context.fillStyle = text;
  context.textAlign = 'left';
  context.fillText(top, PAD_LEFT, 12);
  context.textAlign = 'right';
  context.fillText(ns >= 1e9 ? `${(ns / 1e9).toFixed(2)} s` : `${(ns / 1e6).toFixed(2)} ms`, width - 4, height - 4);
}

/** Draws the PSN of each request; troubles have another colour. */
export function drawPsns(canvas: HTMLCanvasElement, packets: readonly LadderPacket[], colours: Colours): void {
  const [context, width, height] = prepare(canvas);
  const requests = packets.filter(({ kind }) => ['SEND', 'WRITE', 'READ', 'ATOMIC'].includes(kind));
  if (requests.length === 0) return;
  const [start, length] = span(packets);
  let [low, high] = [Infinity, -Infinity];
  for (const { psn } of requests) [low, high] = [Math.min(low, psn), Math.max(high, psn)];
  const y = (psn: number) =>
    height - PAD_BOTTOM - ((psn - low) / Math.max(1, high - low)) * (height - PAD_BOTTOM - PAD_TOP);
  for (const { time, psn, marks } of requests) {
    const isTrouble = (marks & TROUBLE) !== 0;
    context.fillStyle = isTrouble ? colours.mark : colours.data;
    context.fillRect(
      PAD_LEFT + ((time - start) / length) * (width - 2 * PAD_LEFT),
      y(psn) - 1,
      isTrouble ? 3 : 2,
      isTrouble ? 3 : 2,
    );
  }
  axis(context, width, height, colours, `PSN ${low} to ${high}`, length);
}

/** Draws the payload that arrived for the first time, in steps of a fortieth of the capture. */
export function drawGoodput(canvas: HTMLCanvasElement, packets: readonly LadderPacket[], colours: Colours): void {
  const [context, width, height] = prepare(canvas);
  if (packets.length < 2) return;
  const [start, length] = span(packets);
  const steps = 40;
  const sums = new Float64Array(steps);
  for (const { time, bytes, marks } of packets)
    if ((marks & TROUBLE) === 0) {
      const step = Math.min(steps - 1, Math.floor(((time - start) / length) * steps));
      sums[step] = (sums[step] as number) + bytes;
    }
  const most = Math.max(...sums);
  const rate = (most * 8 * steps) / length; // bits per nanosecond: Gbit/s
  context.fillStyle = colours.data;
  for (const [i, sum] of sums.entries()) {
    const bar = most === 0 ? 0 : (sum / most) * (height - PAD_BOTTOM - PAD_TOP);
    const step = (width - 2 * PAD_LEFT) / steps;
    context.fillRect(PAD_LEFT + i * step, height - PAD_BOTTOM - bar, step - 1, bar);
  }
  axis(
    context,
    width,
    height,
    colours,
    rate >= 1 ? `at most ${rate.toFixed(2)} Gbit/s` : `at most ${(rate * 1000).toFixed(1)} Mbit/s`,
    length,
  );
}
