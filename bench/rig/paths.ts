/** The project's folders. */
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');

/** The folder of the compiled programs and of the stored results. */
export const PROGRAMS = `${ROOT}/build/bench`;
