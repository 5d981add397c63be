/** Arithmetic of packet and message sequence numbers: 24 bits, so that the numbers begin again after 2^24. */

/** Returns the distance from PSN `b` to `a`, from -2^23 to 2^23 - 1. */
export const psnDistance = (a: number, b: number): number => ((a - b) << 8) >> 8;

/** Returns the PSN some packets later. */
export const psnAfter = (psn: number, packets: number): number => (psn + packets) & 0xffffff;
