import { Duplex } from 'node:stream';
import { setImmediate as eventLoop } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { WriteSide } from '../../src/transport/duplexsides.js';

/** A stream whose writes are taken at once. It logs when data may be delivered. */
function stream(order: string[]): { duplex: Duplex; writing: WriteSide } {
  const writing = new WriteSide(() => order.push('deliver'));
  const duplex = new Duplex({
    write(chunk, _, callback) {
      writing.add(chunk);
      writing.begin(callback);
      writing.end(null);
    },
  });
  return { duplex, writing };
}

// TLS over any stream ends a write so, and a server of HTTP fails when the next request comes before
test('data waits until the immediates that the callbacks of writes have set are done', async () => {
  const order: string[] = [];
  const { duplex, writing } = stream(order);
  const settled = (name: string) => () => setImmediate(() => order.push(name));
  duplex.write('a', settled('first'));
  duplex.write('b', settled('second'));
  expect(writing.isSettling).toBe(true);
  setImmediate(() => duplex.write('c', settled('third')));
  for (let i = 0; i < 5; i++) await eventLoop();
  expect(order).toEqual(['first', 'second', 'third', 'deliver']);
  expect(writing.isSettling).toBe(false);
});
