/** The decisions of the card about a queue pair, as lines for an explanation. */
import { decisions } from '../device/decisions.js';
import type { Qp } from './qp.js';

/** An explanation shows no more than this: the last ones matter. */
const MOST = 16;

/** The last decisions about a queue pair: a line each, oldest first, with the time before the last one. */
export function decisionsOf(qp: Qp): string[] {
  const last = decisions(qp.device.card, qp.qpNum).slice(-MOST);
  const end = last.at(-1)?.at ?? 0;
  return last.map(({ at, text }) => `${((at - end) / 1e6).toFixed(3).padStart(11)} ms  ${text}`);
}
