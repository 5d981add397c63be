// Registered memory stays, whatever the program does with its ArrayBuffer.
import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { installedNodes } from '../../scripts/setup/nodes.mjs';

const PROGRAM = new URL('./transferredmemory.ts', import.meta.url).pathname;

const nodes = { 'this Node': process.execPath, ...installedNodes() };
const runs = Object.entries(nodes).flatMap(([name, node]) => ['inline', 'worker'].map((mode) => [name, mode, node]));

test.each(runs)('a region keeps its memory when the ArrayBuffer loses it (%s, mode %s)', (_, mode, node) => {
  const env = { ...process.env, WASM_ROCE_MODE: mode };
  const out = execFileSync(node as string, ['--expose-gc', '--import', 'tsx', PROGRAM], { encoding: 'utf8', env });
  const ways = out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { name: string; isIntact: boolean; refused?: string });
  expect(ways.length).toBeGreaterThanOrEqual(4);
  expect(ways.filter(({ isIntact }) => !isIntact)).toEqual([]);
  const refusals = ways.flatMap(({ name, refused }) => (refused === undefined ? [] : [`${name}: ${refused}`]));
  // V8 before version 13 would move the memory
  for (const refusal of refusals) expect(refusal).toMatch(/^transfer to .* bytes: the ArrayBuffer is registered/);
});
