import { execFile } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { ROOT, text } from './sources.js';

test('the program in the README runs as it is printed there', async () => {
  const [, program] = /```js\n([\s\S]*?)```/.exec(text('README.md')) ?? [];
  expect(program).toBeDefined();
  // inside the package its own name leads to what it exports
  const file = join(ROOT, 'build', `readme-${process.pid}.mjs`);
  await writeFile(file, program as string);
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [file], { timeout: 20_000 });
    expect(stdout).toBe('hello, remote memory\n');
  } finally {
    await rm(file);
  }
});
