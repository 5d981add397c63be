/** How much memory a card gets for its regions, and when that can be known to be too little. */
import { statSync } from 'node:fs';
import type { Config, RegionConfig } from './config.js';

/** For connections, beside the regions. */
const CARD_BYTES = 2 ** 28;
/** Rings and tables take more than that of any card. */
const LEAST_CARD_BYTES = 6 * 2 ** 20;
const MOST_BYTES = 2 ** 32;

type Wanted = Pick<Config, 'regions' | 'memory'>;

/** @throws the system's error when the size of a region is that of a file which cannot be found */
export function memoryOf({ regions, memory }: Wanted): number {
  return memory ?? Math.min(MOST_BYTES, CARD_BYTES + bytesOf(regions));
}

/** Why the regions do not fit, if they cannot. @throws as `memoryOf` */
export function shortage({ regions, memory }: Wanted): string[] {
  const bytes = bytesOf(regions);
  const most = memory ?? MOST_BYTES;
  if (bytes + LEAST_CARD_BYTES <= most) return [];
  const limit = memory === undefined ? 'a card can have' : 'memory';
  return [`regions are ${bytes} bytes in all, with the card's own ${LEAST_CARD_BYTES} more than ${limit}, ${most}`];
}

function bytesOf(regions: Readonly<Record<string, RegionConfig>>): number {
  return Object.values(regions).reduce((sum, { size, file }) => sum + (size ?? statSync(file as string).size), 0);
}
