/**
 * Virtual time and seeded randomness for the tests of project `unit` (setupFiles of vitest.config.ts). vitest runs this
 * file before each test file: each begins with the same time, and without the timers of an earlier file in its process.
 */
import { afterEach, beforeEach, expect } from 'vitest';
import { restartRandom } from './seededrandom.js';
import { restartClock } from './virtualclock.js';

restartClock();
restartRandom('');
beforeEach(() => restartRandom(expect.getState().currentTestName ?? ''));

// vitest takes a process that does not read its messages for a minute for a failure. Tests that only compute leave it
// no time to read them.
afterEach(() => new Promise<void>((resolve) => void setImmediate(resolve)));
