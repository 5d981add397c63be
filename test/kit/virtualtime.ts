/**
 * Virtual time for the tests of project `unit` (setupFiles of vitest.config.ts). vitest runs this file before each test
 * file. What the files of one process had left does not reach the next one.
 */
import { afterEach } from 'vitest';
import { restartClock } from './virtualclock.js';

restartClock();

// vitest takes a process that does not read its messages for a minute for a failure. Tests that only compute leave it
// no time to read them.
afterEach(() => new Promise<void>((resolve) => void setImmediate(resolve)));
