import { defineConfig } from 'vitest/config';

/** Attempts after a failure. The run lists each test that needed one. */
const retry = 2;

const excluded = ['**/node_modules/**', 'test/interop/**'];

/** One file after the other, once the other tests of a run are done: a virtual machine needs both processors. */
const withGuest = {
  pool: 'forks' as const,
  poolOptions: { forks: { singleFork: true } },
  maxConcurrency: 4,
  retry,
  testTimeout: 120_000,
  hookTimeout: 120_000,
};

/** Tests with a guest that take long and depend little on its kernel: one guest is enough. */
const LONG = ['test/interop/valkey.test.ts'];

export default defineConfig({
  test: {
    // Two processors are what these tests were written for. scripts/test.mjs fills what two files leave idle by a
    // second run beside this one.
    maxWorkers: 2,
    minWorkers: 1,
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: excluded,
          retry,
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
            'test/ulp/rsocket/socket.test.ts',
          ],
          env: { WASM_ROCE_MODE: 'worker' },
          pool: 'forks',
          poolOptions: { forks: { singleFork: true } },
          retry,
          testTimeout: 60_000,
          hookTimeout: 60_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          name: 'interop',
          include: ['test/interop/**/*.test.ts'],
          exclude: LONG,
          ...withGuest,
          sequence: { groupOrder: 1 },
        },
      },
      {
        // What depends on the peer, with the rxe, rdma-core and perftest of another kernel.
        test: {
          name: 'peers',
          include: [
            ...['cm', 'errors', 'operations', 'perftest', 'rping'].map((name) => `test/interop/${name}.test.ts`),
            ...LONG,
          ],
          env: { WASM_ROCE_GUEST: 'bookworm' },
          ...withGuest,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
