/** The programs in README, and what they print. */
import { text } from './sources.js';

/** The output of each of the programs, in their order. */
export const README_OUTPUT = ['hello, remote memory\n', 'hello, remote memory\nthe client said thank you\n'];

/** Returns the programs of README in their order. */
export function readmePrograms(): string[] {
  return [...text('README.md').matchAll(/```js\n([\s\S]*?)```/g)].map(([, program]) => program as string);
}
