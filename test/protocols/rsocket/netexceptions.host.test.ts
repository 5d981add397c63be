// Exceptions of listeners are those of the program: the same over node:net and node:dgram, and over ours.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = async (program: string, module: string): Promise<string[]> => {
  const path = join(import.meta.dirname, program);
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', path, module]);
  return JSON.parse(stdout);
};

/** After these a socket of TCP hangs: it does not read what follows. */
const HANGS = /^client (lookup|connect): , closed false$/;

test('an exception of a listener is an uncaughtException, and changes nothing else', async () => {
  const [ours, node] = await Promise.all(['wasm-roce/net', 'node:net'].map((module) => run('throwing.ts', module)));
  expect(ours).toEqual(node?.map((line) => line.replace(HANGS, 'client $1: hello, closed true')));
  expect(ours?.filter((line) => line.includes('uncaughtException bug'))).toHaveLength(15);
});

test('an exception of a listener of datagrams is an uncaughtException, and changes nothing else', async () => {
  const modules = ['wasm-roce/dgram', 'node:dgram'];
  const [ours, node] = await Promise.all(modules.map((module) => run('throwingdatagrams.ts', module)));
  const last = ours?.splice(-2);
  expect(ours).toEqual(node);
  expect(ours?.filter((line) => line.includes('uncaughtException bug'))).toHaveLength(5);
  expect(last?.at(-1)).toBe('listening of the first message: one two three ');
});
