// Garbage of posting and polling.
import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';

test('posting and polling allocate nothing', () => {
  const program = new URL('./heapusage.ts', import.meta.url).pathname;
  // Interpreted code boxes its numbers. Without these options a thread optimizes it, which a busy machine may delay.
  const engine = [
    '--expose-gc',
    '--no-concurrent-recompilation',
    '--min-semi-space-size=64',
    '--max-semi-space-size=64',
  ];
  const out = execFileSync(process.execPath, [...engine, '--import', 'tsx', program], { encoding: 'utf8' });
  const { operations, bytes } = JSON.parse(out);
  // The rest is the measurement itself, divided by the operations; one small object per operation would be 16 bytes.
  expect(bytes / operations).toBeLessThan(4);
});
