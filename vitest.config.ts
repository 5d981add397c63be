import { configDefaults, defineConfig } from 'vitest/config';

/** Tests that need the kernel, threads, processes or a browser. Single files elsewhere are named `*.host.test.ts`. */
const HOST = ['test/{cli,examples,web}/**/*.test.ts', 'test/**/*.host.test.ts'];
/** Tests with foreign programs, most of them in a virtual machine. */
const PEERS = ['test/{interop,programs}/**/*.test.ts'];

/** Verbs, connections and sockets, once more with a thread of its own for each card (test/verbs/pair.ts). */
const IN_WORKER_MODE = [
  ...['completion', 'congestion', 'faults', 'keys', 'memory', 'objects', 'post', 'srq', 'transfer', 'uc'].map(
    (subject) => `test/verbs/${subject}.test.ts`,
  ),
  'test/cm/cmid.test.ts',
  'test/protocols/message/*.test.ts',
  'test/datagram/socket.test.ts',
  'test/protocols/rsocket/socket.test.ts',
];

/** The card alone, without links and verbs. */
const CARD = ['test/{qp,net,host,wire,replay}/**/*.test.ts', 'test/fuzz/frames.test.ts'];

/** One process for all files, one file after the other. */
const oneAfterTheOther = { pool: 'forks' as const, poolOptions: { forks: { singleFork: true } } };

/** Limits of tests in real time: many times what they take on a quiet machine. */
const limits = { testTimeout: 120_000, hookTimeout: 120_000 };

export default defineConfig({
  test: {
    // Two processors are what these tests were written for. scripts/test.mjs fills what two files leave idle by a
    // second run beside this one.
    maxWorkers: 2,
    minWorkers: 1,
    projects: [
      {
        // Virtual time and fixed seeds: a failure is a bug, so nothing is repeated.
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: [...configDefaults.exclude, ...HOST, ...PEERS],
          setupFiles: ['test/kit/virtualtime.ts'],
          // a broker is another process, whose replies take real time
          env: { WASM_ROCE_BROKER: 'off' },
          retry: 0,
          testTimeout: 120_000,
          hookTimeout: 60_000,
        },
      },
      {
        // The card as C: the same conversations, networks and random frames, with the same seeds.
        test: {
          name: 'cardinc',
          include: CARD,
          exclude: [...configDefaults.exclude, ...HOST],
          setupFiles: ['test/kit/virtualtime.ts', 'test/kit/usecardinc.ts'],
          retry: 0,
          testTimeout: 120_000,
          hookTimeout: 60_000,
        },
      },
      {
        // The same conversations and networks on memory outside of the card's.
        test: {
          name: 'regions',
          include: CARD.map((files) => files.replace(',host', '')),
          exclude: [...configDefaults.exclude, ...HOST],
          setupFiles: ['test/kit/virtualtime.ts', 'test/kit/useregions.ts'],
          retry: 0,
          testTimeout: 120_000,
          hookTimeout: 60_000,
        },
      },
      { test: { name: 'host', include: HOST, exclude: [...configDefaults.exclude, ...PEERS], retry: 1, ...limits } },
      {
        test: {
          name: 'worker',
          include: IN_WORKER_MODE,
          // they choose the mode of their devices themselves
          exclude: [...configDefaults.exclude, ...HOST],
          env: { WASM_ROCE_MODE: 'worker', WASM_ROCE_BROKER: 'off' },
          retry: 1,
          ...oneAfterTheOther,
          ...limits,
        },
      },
      {
        // A virtual machine needs both processors.
        test: { name: 'peers', include: PEERS, retry: 2, maxConcurrency: 4, ...oneAfterTheOther, ...limits },
      },
    ],
  },
});
