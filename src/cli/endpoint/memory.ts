/** The memory of a card, and the check that its regions fit. */
import { statSync } from 'node:fs';
import type { Config, RegionConfig } from './schema.js';

/** For connections, besides the regions. */
const CARD_BYTES = 2 ** 28;
/** The rings and tables of any card take more than this. */
const MIN_CARD_BYTES = 6 * 2 ** 20;
const MAX_BYTES = 2 ** 32;

type MemoryConfig = Pick<Config, 'regions' | 'memory'>;

/**
 * Returns the size of a card's memory.
 * @throws the system's error when the file that gives a region its size is missing
 */
export function cardMemory({ regions, memory }: MemoryConfig): number {
  return memory ?? Math.min(MAX_BYTES, CARD_BYTES + regionsBytes(regions));
}

/** Reports regions that cannot fit. @throws as `cardMemory` */
export function memoryProblems({ regions, memory }: MemoryConfig): string[] {
  const bytes = regionsBytes(regions);
  const most = memory ?? MAX_BYTES;
  if (bytes + MIN_CARD_BYTES <= most) return [];
  const limit = memory === undefined ? 'the largest card' : 'memory';
  return [`regions take ${bytes} bytes and the card ${MIN_CARD_BYTES}, more than the ${most} bytes of ${limit}`];
}

function regionsBytes(regions: Readonly<Record<string, RegionConfig>>): number {
  return Object.values(regions).reduce((sum, { size, file }) => sum + (size ?? statSync(file as string).size), 0);
}
