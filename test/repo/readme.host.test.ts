import { expect, test } from 'vitest';
import { runProgram } from './programs.js';
import { README_OUTPUT, readmePrograms } from './readme.js';

test('the programs in the README run as they are printed there', async () => {
  const programs = readmePrograms();
  expect(programs.length).toBe(README_OUTPUT.length);
  for (const [i, program] of programs.entries()) expect((await runProgram(program)).stdout).toBe(README_OUTPUT[i]);
});
