/** Two streams that are one connection. */
import type { Duplex } from 'node:stream';

/**
 * Passes the bytes of two streams to each other, at the pace of the slower one. The end of either is that of the other;
 * an error, or a close without an end, destroys both.
 * @returns resolves when both are closed
 */
export function relay(one: Duplex, other: Duplex): Promise<void> {
  const ended = [one, other].map((stream) => new Promise<void>((resolve) => stream.once('close', () => resolve())));
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.pipe(to);
    from.on('error', () => to.destroy());
    from.on('close', () => {
      if (!from.readableEnded) to.destroy();
    });
  }
  return Promise.all(ended).then(() => {});
}
