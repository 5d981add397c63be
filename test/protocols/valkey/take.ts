import type { Readable } from 'node:stream';

/** Returns the first bytes that a stream delivers. */
export function take(stream: Readable, bytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let count = 0;
    stream.on('error', reject);
    stream.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      count += chunk.length;
      if (count >= bytes) resolve(Buffer.concat(chunks));
    });
  });
}
