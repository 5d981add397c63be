/** The version of the package. */
import { readFileSync } from 'node:fs';

/** As package.json has it. */
export const version: string = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')).version;
