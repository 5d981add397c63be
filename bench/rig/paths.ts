/** The project's folders. */
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');

/** What is compiled for the benchmark, and where results are kept. */
export const PROGRAMS = `${ROOT}/build/bench`;
