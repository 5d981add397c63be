#!/usr/bin/env node
// Installs and builds what the project needs and does not have yet. Runs before npm install, so it has no dependencies.
// A step is { name, optional, pending() }. pending returns undefined (nothing to do), { doing, make } or { blocked: why
// }.
import { arm64 } from './setup/arm64.mjs';
import { addons, card, dist, reduceModule, scriptGrammar, testingCard, xdpProgram } from './setup/build.mjs';
import { debianPackages } from './setup/debian.mjs';
import { guests } from './setup/guest.mjs';
import { npmPackages } from './setup/npm.mjs';
import { SetupError } from './setup/run.mjs';
import { valkey } from './setup/valkey.mjs';

const STEPS = [
  debianPackages,
  npmPackages,
  card,
  testingCard,
  reduceModule,
  scriptGrammar,
  ...addons,
  xdpProgram,
  dist,
  arm64,
  ...guests,
  valkey,
];

const secondsSince = (start) => `${((performance.now() - start) / 1000).toFixed(1)} s`;

/**
 * Runs the steps in order and prints a line for each on stderr. A step with `optional` may fail; the text says what is
 * skipped then.
 * @param more steps to run after STEPS
 * @throws SetupError that names the failed step
 */
export async function setup(more = []) {
  const start = performance.now();
  let lacking = 0;
  let made = 0;
  for (const step of [...STEPS, ...more]) {
    const work = step.pending();
    if (!work) continue;
    if (work.blocked) {
      lacking++;
      console.error(`setup: ${step.name}: ${work.blocked}`);
    } else if (await make(step, work)) made++;
    else lacking++;
  }
  const done = made > 0 ? 'setup: done' : 'nothing to set up';
  console.error(`${done}${lacking > 0 ? ', except what is missing above' : ''} (${secondsSince(start)})`);
}

async function make({ name, optional }, { doing, make }) {
  const start = performance.now();
  console.error(`setup: ${name}: ${doing} ...`);
  try {
    await make();
  } catch (cause) {
    if (!optional) throw new SetupError(`setup failed at ${name}: ${cause.message}`, { cause });
    console.error(`setup: ${name} failed, ${optional}: ${cause.message}`);
    return false;
  }
  console.error(`setup: ${name}: done (${secondsSince(start)})`);
  return true;
}

/** Runs `setup` for a main program. @returns false after a failure, whose message is printed */
export async function trySetup(more = []) {
  try {
    await setup(more);
    return true;
  } catch (cause) {
    if (!(cause instanceof SetupError)) throw cause;
    console.error(cause.message);
    return false;
  }
}

if (import.meta.filename === process.argv[1] && !(await trySetup())) process.exitCode = 1;
