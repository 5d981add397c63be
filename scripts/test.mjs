#!/usr/bin/env node
// npm test: sets up, then runs the tests, each process in a private network namespace: the projects unit, host, worker,
// cardinc and regions, those of OTHER_NODE with another version of Node, and the core of peers. The last lines are a
// summary and the counts.
//   npm test -- ARGS             arguments go to vitest
//   npm test -- --node 24 ARGS   runs vitest with that version of Node
//   npm run test:peers           all tests with foreign programs, some with two kernels
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CARD_ADDON } from './setup/build.mjs';
import { installedNodes, nodeVersions } from './setup/nodes.mjs';
import { ROOT } from './setup/run.mjs';
import { STEPS, trySetup } from './setup.mjs';
import { ProcessGroups } from './test-groups.mjs';
import { countsOf, MOST_REPEATED, sum, summary, watchMachine } from './test-summary.mjs';
import { listFiles, titleOf, vitest } from './test-vitest.mjs';

const REPORTS = join(ROOT, 'build/test-reports');
/** The tests that passed only when repeated. */
const FLAKY = join(ROOT, 'build/flaky.json');

/** A run that hangs ends after this time, so that it can still say what it did. */
const LIMIT_S = 80 * 60;

/** The arguments of vitest for each project. The files of `unit` share two processes, which takes half the time. */
const PROJECTS = {
  host: ['--project', 'host'],
  unit: ['--project', 'unit', '--no-isolate'],
  worker: ['--project', 'worker'],
  cardinc: ['--project', 'cardinc', '--no-isolate'],
  regions: ['--project', 'regions', '--no-isolate'],
};

/** Tests of what a version of Node can change: worker threads, streams, timers, and the calls of the addon. */
const OTHER_NODE = {
  majors: ['24', '26', '22'],
  projects: ['unit', 'host'],
  files: ['test/verbs/', 'test/protocols/message/stream'],
};

const interop = (name) => `test/interop/${name}.test.ts`;
/**
 * The core of the tests with foreign programs: the corners of each matrix (test/interop/environment.ts), and not the
 * files that take long and check with more programs what others check with one.
 */
const CORE = {
  env: { WASM_ROCE_PEERS: 'corners' },
  args: [
    ...['cm-crowd', 'probe-stock', 'rsocket-programs', 'valkey'].map(interop),
    ...['crowd', 'killed', 'loss'].map((name) => `test/programs/${name}.test.ts`),
  ].flatMap((file) => ['--exclude', file]),
};
/** Tests of what depends on the peer's kernel and libraries, with those of an older Debian. */
const OTHER_GUEST = {
  env: { WASM_ROCE_GUEST: 'bookworm' },
  files: ['cm', 'errors', 'operations', 'perftest', 'rping', 'valkey'].map(interop),
};

/** Tests of single verbs, with the library for C programs in place of rxe. */
const LIBRARY = {
  env: { WASM_ROCE_PEER: 'library' },
  files: ['credits', 'errors', 'extensions', 'operations', 'queues', 'unreliable'].map(interop),
};

const LIBRARY_CORE = { ...LIBRARY, env: { ...LIBRARY.env, ...CORE.env } };

/** Runs that go side by side. One run alone leaves a third of two processors idle. */
const AT_ONCE = 2;
/** The tests with a guest run in parts, and a guest serves the files of one. */
const FILES_OF_A_GUEST = 10;

const began = performance.now();
const groups = new ProcessGroups();
/** The reason why no more runs begin. */
let ended;

/** Ends all runs and the processes that they started. @param why reason of the end */
function endRuns(why) {
  if (ended) return;
  ended = why;
  groups.end();
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => endRuns(signal));
if (!process.argv.includes('--watch')) setTimeout(() => endRuns(`more than ${LIMIT_S} s`), LIMIT_S * 1000).unref();

/** Returns runs with a guest, each of a part of the files. */
function withGuest({ args = [], files = [], env } = {}) {
  const own = { node: process.execPath, args: ['--project', 'peers', ...args], env };
  const all = listFiles({ ...own, files }).map(({ file }) => file);
  const parts = Math.ceil(all.length / FILES_OF_A_GUEST);
  const part = (number) => ({ ...own, files: all.filter((_, i) => i % parts === number) });
  return Array.from({ length: parts }, (_, i) => part(i));
}

function hasCardInC() {
  const isBuilt = existsSync(join(ROOT, CARD_ADDON));
  if (!isBuilt) console.error('the tests of the card as C are skipped: it is not built');
  return isBuilt;
}

/** Returns the runs of vitest (test-vitest.mjs) for the arguments of this program; none if these are wrong. */
function runsFor(given) {
  const running = process.versions.node.split('.')[0];
  const nodes = { ...installedNodes(), [running]: process.execPath };
  if (given[0] === '--node') {
    const node = nodes[given[1]];
    if (node) return [{ node, args: given.slice(2) }];
    console.error(`--node ${given[1]}: must be one of ${Object.keys(nodes).join(', ')}`);
    return [];
  }
  if (given[0] === '--peers') return [...withGuest(), ...withGuest(OTHER_GUEST), ...withGuest(LIBRARY)];
  if (given.length > 0) return [{ node: process.execPath, args: given }];
  const other = OTHER_NODE.majors.find((major) => major !== running && nodes[major]);
  if (!other) console.error('the tests with another version of Node are skipped: none is installed');
  const { files } = OTHER_NODE;
  const others = OTHER_NODE.projects.map((name) => ({ node: nodes[other], args: PROJECTS[name], files }));
  const names = Object.keys(PROJECTS).filter((name) => name !== 'cardinc' || hasCardInC());
  const projects = names.map((name) => ({ node: process.execPath, args: PROJECTS[name], files: [] }));
  return [...projects, ...(other ? others : []), ...withGuest(CORE), ...withGuest(LIBRARY_CORE)];
}

const machine = watchMachine();
rmSync(REPORTS, { recursive: true, force: true });
mkdirSync(REPORTS, { recursive: true });
const isReady = await trySetup([...STEPS, nodeVersions]);
const runs = isReady ? runsFor(process.argv.slice(2)) : [];
const isSingle = runs.length === 1;
const reports = [];
/** Failures that no report has. */
const failures = [];
let started = 0;
if (!isReady) failures.push({ error: 'the setup failed' });
else if (runs.length === 0) failures.push({ error: 'wrong arguments' });

/** Returns what `npm test --` needs beside vitest's arguments to be like a run: [before it, after it]. */
function howOf({ node, env = {} }) {
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value} `);
  const [major] = Object.entries(installedNodes()).find(([, path]) => path === node) ?? [];
  return [variables.join(''), major ? `--node ${major} ` : ''];
}

const waiting = [...runs];

/** Takes one run after the other until none waits. */
async function takeRuns() {
  for (let run = waiting.shift(); run && !ended; run = waiting.shift()) {
    if (!isSingle) console.log(`\nstarts: ${titleOf(run)}`);
    const report = join(REPORTS, `${started++}`);
    const done = await vitest(run, { groups, report, isAlone: isSingle, isEnded: () => ended !== undefined });
    reports.push(...done.map((one) => ({ ...one, how: howOf(run) })));
  }
}

await Promise.all(Array.from({ length: AT_ONCE }, takeRuns));

const total = sum(reports);
total.failed += failures.length;
total.failures.push(...failures);
writeFileSync(FLAKY, `${JSON.stringify(total.repeated, undefined, 2)}\n`);
const lines = summary(total, machine());
if (ended) {
  const missing = runs.flatMap(listFiles).length - total.files.length;
  const seconds = Math.round((performance.now() - began) / 1000);
  lines.push(`ended after ${seconds} s (${ended}): ${missing} files had not run`);
}
process.exitCode = ended || total.failed > 0 || total.repeated.length > MOST_REPEATED ? 1 : 0;
console.log(`\n${[...lines, countsOf(total)].join('\n')}`);
