#!/usr/bin/env node
// Installs and builds what the project needs and does not have yet. Runs before npm install, so it has no dependencies.
// A step is { name, optional, pending() }. pending returns undefined (nothing to do), { doing, make } or { blocked: why
// }.
import { arm64 } from './setup/arm64.mjs';
import {
  addons,
  card,
  cardC,
  dist,
  libraries,
  nativeTests,
  reduceModule,
  scriptGrammar,
  testingCard,
  xdpProgram,
} from './setup/build.mjs';
import { debianPackages, demoPackages } from './setup/debian.mjs';
import { guests } from './setup/guest.mjs';
import { npmPackages } from './setup/npm.mjs';
import { SetupError } from './setup/run.mjs';
import { valkey } from './setup/valkey.mjs';

/** The steps of all that the project needs, but for what single commands add. */
export const STEPS = [
  debianPackages,
  npmPackages,
  card,
  cardC,
  testingCard,
  reduceModule,
  scriptGrammar,
  ...addons,
  ...libraries,
  xdpProgram,
  ...nativeTests,
  dist,
  arm64,
  ...guests,
  valkey,
];

/** The steps of the playground's page. */
export const PLAYGROUND_STEPS = [npmPackages, card, scriptGrammar];

/** The steps of the demo. */
export const DEMO_STEPS = [demoPackages, npmPackages, card, cardC, scriptGrammar, addons[0], dist];

const secondsSince = (start) => `${((performance.now() - start) / 1000).toFixed(1)} s`;

/**
 * Runs steps in order and prints a line for each on stderr. A step with `optional` may fail; the text says what is
 * skipped then.
 * @throws SetupError that names the failed step
 */
async function setup(steps) {
  const start = performance.now();
  let lacking = 0;
  let made = 0;
  for (const step of steps) {
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

/** Runs steps for a main program. @returns false after a failure, whose message is printed */
export async function trySetup(steps = STEPS) {
  try {
    await setup(steps);
    return true;
  } catch (cause) {
    if (!(cause instanceof SetupError)) throw cause;
    console.error(cause.message);
    return false;
  }
}

if (import.meta.filename === process.argv[1] && !(await trySetup())) process.exitCode = 1;
