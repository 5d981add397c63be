#!/usr/bin/env node
// Brings up everything that the project needs, and only what is missing. Runs before npm install: no dependencies.
// A step is { name, optional, pending() }; pending answers undefined (nothing to do), { doing, make } or { blocked: why }.
import { addon, card, dist, xdpProgram } from './setup/build.mjs';
import { debianPackages } from './setup/debian.mjs';
import { guest } from './setup/guest.mjs';
import { npmPackages } from './setup/npm.mjs';
import { SetupError } from './setup/run.mjs';

const STEPS = [debianPackages, npmPackages, card, addon, xdpProgram, dist, guest];

const secondsSince = (start) => `${((performance.now() - start) / 1000).toFixed(1)} s`;

/**
 * Runs the steps in order; one line each, on stderr. A step that is `optional` may fail: that is what is skipped then.
 * @param more steps after the usual ones
 * @throws SetupError naming the step that failed
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
  console.error(`${done}${lacking > 0 ? `, but for what is missing above` : ''} (${secondsSince(start)})`);
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

/** For the main programs: false after a failure, which has been explained. */
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
