/** A card whose turns fail. */
import type { Device } from '../../src/index.js';

/** Makes the next turn trap, by placing the receive ring behind the end of the memory. */
export function breakTurns({ card }: Device): void {
  const at = [...card.u32.subarray(0, 2048)].indexOf(card.exports.rxRing());
  card.u32[at] = 0xfffffff0;
}
