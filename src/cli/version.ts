/** The version of the package. */
import { readFileSync } from 'node:fs';
import { packageFile } from '../packagefile.js';

/** As package.json has it. */
export const version: string = JSON.parse(readFileSync(packageFile('package.json'), 'utf8')).version;
