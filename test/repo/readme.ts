/** The programs in README, and what they print. */
import { programsOf } from './programs.js';

/** The output of each of the programs, in their order. */
export const README_OUTPUT = ['hello, remote memory\n', 'hello, remote memory\nthe client said thank you\n'];

/** Returns the programs of README in their order. */
export function readmePrograms(): string[] {
  return programsOf('README.md').map(({ program }) => program);
}
