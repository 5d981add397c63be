// npm test ends its runs with all that they have started, and without waiting for it.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { ProcessGroups } from '../../scripts/test-groups.mjs';
import { eventually } from '../kit/eventually.js';
import { lives } from '../kit/processes.js';

const folder = mkdtempSync(join(tmpdir(), 'groups-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Runs a shell that starts a process of its own and waits for it. @returns its end, and the number of that process */
async function start(groups: ProcessGroups, name: string, before: string) {
  const file = join(folder, name);
  const ended = groups.run('sh', ['-c', `${before} sleep 1000 & echo $! >${file}; wait; wait`], {});
  const pid = await eventually(() => {
    const [, text] = /^(\d+)\n$/.exec(readFileSync(file, 'latin1')) ?? [];
    if (text === undefined) throw new Error('not started');
    return Number(text);
  });
  return { ended, pid };
}

test('a program that ends has its exit status', async () => {
  expect(await new ProcessGroups().run('sh', ['-c', 'exit 3'], {})).toBe(3);
});

test('what a program leaves behind ends with it', async () => {
  const file = join(folder, 'left');
  expect(await new ProcessGroups().run('sh', ['-c', `sleep 1000 >/dev/null 2>&1 & echo $! >${file}`], {})).toBe(0);
  await eventually(() => expect(lives(Number(readFileSync(file, 'latin1')))).toBe(false));
});

test('a program that there is not is an error', async () => {
  await expect(new ProcessGroups().run(join(folder, 'none'), [], {})).rejects.toMatchObject({ code: 'ENOENT' });
});

test('all programs end with what they have started', async () => {
  const groups = new ProcessGroups();
  const both = [await start(groups, 'first', ''), await start(groups, 'second', '')];
  groups.end();
  expect(await Promise.all(both.map(({ ended }) => ended))).toEqual(['SIGTERM', 'SIGTERM']);
  await eventually(() => expect(both.filter(({ pid }) => lives(pid))).toEqual([]));
});

test('so do those that ignore SIGTERM', async () => {
  const groups = new ProcessGroups({ graceMs: 50 });
  const { ended, pid } = await start(groups, 'third', "trap '' TERM;");
  groups.end();
  expect(await ended).toBe('SIGKILL');
  await eventually(() => expect(lives(pid)).toBe(false));
});
