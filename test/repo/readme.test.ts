import { execFile } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { ROOT, text } from './sources.js';

const PRINTED = ['hello, remote memory\n', 'hello, remote memory\nthe client said thank you\n'];

test('the programs in the README run as they are printed there', async () => {
  const programs = [...text('README.md').matchAll(/```js\n([\s\S]*?)```/g)].map(([, program]) => program as string);
  expect(programs.length).toBe(PRINTED.length);
  for (const [i, program] of programs.entries()) {
    // inside the package its own name leads to what it exports
    const file = join(ROOT, 'build', `readme-${process.pid}-${i}.mjs`);
    await writeFile(file, program);
    try {
      const { stdout } = await promisify(execFile)(process.execPath, [file], { timeout: 20_000 });
      expect(stdout).toBe(PRINTED[i]);
    } finally {
      await rm(file);
    }
  }
});
