#!/usr/bin/env node
// npm test: sets up, then runs the tests in private network namespaces: all of them with the Node that runs npm, and
// those of OTHER_NODE with another version. The last line has the counts.
//   npm test -- ARGS             arguments go to vitest
//   npm test -- --node 24 ARGS   runs vitest with that version of Node
import { spawn } from 'node:child_process';
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { SECOND_RUN } from './counts-reporter.mjs';
import { privateNet } from './private-net.mjs';
import { installedNodes, nodeVersions } from './setup/nodes.mjs';
import { ROOT } from './setup/run.mjs';
import { trySetup } from './setup.mjs';

/** The sum of the counts of all runs, read by .ci/run. counts-reporter.mjs writes those of a run into a file beside. */
const COUNTS = join(ROOT, 'build/test-counts.txt');
/** The same for tests that failed or ran twice, a line each, so that they stand together at the end of the output. */
const REMARKS = join(ROOT, 'build/test-remarks.txt');
const FAILED_TO_RUN = '0 passed, 1 failed, 0 skipped';

/** Tests of what a version of Node can change: worker threads, streams, timers, and the calls of the addon. */
const OTHER_NODE = {
  majors: ['24', '26', '22'],
  args: ['--project', 'unit', 'test/verbs/', 'test/connection/', 'test/device/', 'test/cm/'],
};

/** Runs without a guest that go side by side, since they wait for timers much of the time. A guest goes alone. */
const AT_ONCE = 2;
/**
 * The interop tests run in parts, and a guest serves the files of one. The number of files sets the number of parts:
 * vitest fails in a part that gets no file.
 */
const FILES_OF_A_GUEST = 5;

let isInterrupted = false;
const children = new Set();
// a terminal sends SIGINT to vitest as well
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => {
    isInterrupted = true;
    if (signal === 'SIGTERM') for (const child of children) child.kill(signal);
  });
}

/**
 * Runs vitest, and prints its output, line by line where other runs print too.
 * @returns its exit status, and its counts as a text like '3 passed, 1 failed, 0 skipped'
 */
function vitest({ node, args }, isAlone, number) {
  const { prefix, net } = privateNet();
  const counts = `${COUNTS}.${number}`;
  const reporters = ['--reporter=default', `--reporter=${join(ROOT, 'scripts/counts-reporter.mjs')}`];
  const program = [node, join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run'];
  const [command, ...rest] = [...prefix, ...program, ...reporters, ...args];
  const env = { ...process.env, WASM_ROCE_NET: net, WASM_ROCE_COUNTS: counts, WASM_ROCE_REMARKS: REMARKS };
  rmSync(counts, { force: true });
  return new Promise((resolve) => {
    const child = spawn(command, rest, { cwd: ROOT, env, stdio: isAlone ? 'inherit' : ['ignore', 'pipe', 'pipe'] });
    for (const name of isAlone ? [] : ['stdout', 'stderr'])
      createInterface({ input: child[name] }).on('line', (line) => process[name].write(`${line}\n`));
    children.add(child);
    child.on('close', (status) => {
      children.delete(child);
      const said = existsSync(counts) ? readFileSync(counts, 'utf8') : FAILED_TO_RUN;
      rmSync(counts, { force: true });
      resolve({ status: status ?? 1, counts: said });
    });
  });
}

/**
 * Returns the runs of vitest for the arguments of this program, in stages of those that may go side by side: as
 * [[{ node, args }]]; none if the arguments are wrong.
 */
function stages(given) {
  const running = process.versions.node.split('.')[0];
  const nodes = { ...installedNodes(), [running]: process.execPath };
  if (given[0] === '--node') {
    const node = nodes[given[1]];
    if (node) return [[{ node, args: given.slice(2) }]];
    console.error(`--node ${given[1]}: must be one of ${Object.keys(nodes).join(', ')}`);
    return [];
  }
  const own = (args) => ({ node: process.execPath, args });
  if (given.length > 0) return [[own(given)]];
  const other = OTHER_NODE.majors.find((major) => major !== running && nodes[major]);
  if (!other) console.error('the tests with another version of Node are skipped: none is installed');
  const others = other ? [{ node: nodes[other], args: OTHER_NODE.args }] : [];
  const project = (name) => own(['--project', name]);
  const files = readdirSync(join(ROOT, 'test/interop')).filter((name) => name.endsWith('.test.ts'));
  const shards = Math.ceil(files.length / FILES_OF_A_GUEST);
  const interop = Array.from({ length: shards }, (_, i) => own(['--project', 'interop', `--shard=${i + 1}/${shards}`]));
  const unit = [1, 2].map((half) => own(['--project', 'unit', `--shard=${half}/2`]));
  return [[...unit, project('worker'), ...others], ...[project('peers'), ...interop].map((run) => [run])];
}

/** Returns the sum of texts like '3 passed, 1 failed, 0 skipped'. */
function sum(counts) {
  const numbers = counts.map((text) => text.match(/\d+/g).map(Number));
  const [passed, failed, skipped] = [0, 1, 2].map((at) => numbers.reduce((all, one) => all + one[at], 0));
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}

const counts = [];
mkdirSync(join(ROOT, 'build'), { recursive: true });
writeFileSync(REMARKS, '');
const given = (await trySetup([nodeVersions])) ? stages(process.argv.slice(2)) : [];
const isSingle = given.flat().length === 1;
let started = 0;

/** Takes one run after the other until none waits. */
async function takeRuns(waiting) {
  for (let run = waiting.shift(); run && !isInterrupted; run = waiting.shift()) {
    if (!isSingle) console.log(`\nstarts: ${run.node} vitest ${run.args.join(' ')}`);
    const result = await vitest(run, isSingle, started++);
    process.exitCode = Math.max(process.exitCode ?? 0, result.status);
    counts.push(result.counts);
  }
}

for (const stage of given) await Promise.all(Array.from({ length: AT_ONCE }, () => takeRuns(stage)));
const all = sum(counts.length > 0 ? counts : [FAILED_TO_RUN]);
if (!all.includes(' 0 failed')) process.exitCode ||= 1;
writeFileSync(COUNTS, `${all}\n`);
const remarks = readFileSync(REMARKS, 'utf8');
const twice = remarks.split('\n').filter((line) => line.startsWith(SECOND_RUN)).length;
if (twice > 0) appendFileSync(REMARKS, `ran a second time: ${twice}\n`);
process.stdout.write(readFileSync(REMARKS));
console.log(all);
