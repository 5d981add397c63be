// Garbage of connections.
import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';

test('a closed connection leaves almost nothing in the old generation', () => {
  const program = new URL('./garbage.ts', import.meta.url).pathname;
  // A young generation that is collected after each few connections, and an old one that is not collected.
  const engine = ['--max-semi-space-size=1', '--initial-heap-size=1024'];
  const out = execFileSync(process.execPath, [...engine, '--import', 'tsx', program], { encoding: 'utf8' });
  // 3 to 6 KB: both ends remember it for a while (timewait). All that a connection has is 200 KB.
  expect(JSON.parse(out).bytes).toBeLessThan(10_000);
});
