import { execFile } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { README_OUTPUT, readmePrograms } from './readme.js';
import { ROOT } from './sources.js';

test('the programs in the README run as they are printed there', async () => {
  const programs = readmePrograms();
  expect(programs.length).toBe(README_OUTPUT.length);
  for (const [i, program] of programs.entries()) {
    // within the package folder Node resolves the package's own name
    const file = join(ROOT, 'build', `readme-${process.pid}-${i}.mjs`);
    await writeFile(file, program);
    try {
      const { stdout } = await promisify(execFile)(process.execPath, [file], { timeout: 20_000 });
      expect(stdout).toBe(README_OUTPUT[i]);
    } finally {
      await rm(file);
    }
  }
});
