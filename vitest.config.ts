import { defineConfig } from 'vitest/config';

const excluded = ['**/node_modules/**', 'test/interop/**'];

export default defineConfig({
  test: {
    // Two processors are what these tests were written for; more files at once would only wait for each other.
    maxWorkers: 2,
    minWorkers: 1,
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: excluded,
          testTimeout: 30_000,
          hookTimeout: 30_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        // Verbs and connections once more, with a thread of its own for each card (pair.ts). Two cards need more than two processors
        // as it is, so not all files at once.
        test: {
          name: 'worker',
          include: [
            ...['completion', 'congestion', 'keys', 'objects', 'post', 'srq', 'transfer', 'uc'].map(
              (subject) => `test/verbs/${subject}.test.ts`,
            ),
            'test/cm/cmid.test.ts',
            'test/connection/*.test.ts',
          ],
          env: { WASM_ROCE_MODE: 'worker' },
          pool: 'forks',
          poolOptions: { forks: { singleFork: true } },
          testTimeout: 60_000,
          hookTimeout: 60_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        // One file after the other, once all else is done: they share two processors with a virtual machine.
        test: {
          name: 'interop',
          include: ['test/interop/**/*.test.ts'],
          pool: 'forks',
          poolOptions: { forks: { singleFork: true } },
          maxConcurrency: 4,
          testTimeout: 120_000,
          hookTimeout: 120_000,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
