// Exceptions of listeners are those of the program: the same over node:net and over wasm-roce/net.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = async (module: string): Promise<string[]> => {
  const program = join(import.meta.dirname, 'throwing.ts');
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', program, module]);
  return JSON.parse(stdout);
};

/** After these a socket of TCP hangs: it does not read what follows. */
const HANGS = /^client (lookup|connect): , closed false$/;

test('an exception of a listener is an uncaughtException, and changes nothing else', async () => {
  const [ours, node] = await Promise.all(['wasm-roce/net', 'node:net'].map(run));
  expect(ours).toEqual(node?.map((line) => line.replace(HANGS, 'client $1: hello, closed true')));
  expect(ours?.filter((line) => line.includes('uncaughtException bug'))).toHaveLength(15);
});
