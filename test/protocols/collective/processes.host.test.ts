// Ranks as processes of their own, over UDP: what the others do when one of them is killed.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { eventually } from '../../kit/eventually.js';

const ROOT = join(import.meta.dirname, '../../..');
const PROGRAM = join(import.meta.dirname, 'rank.js');
const isBuilt = existsSync(join(ROOT, 'dist/collective.js'));
const SIZE = 4;
const DEAD = 2;

const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

function startRank(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const stdio: ['ignore', 'pipe', 'inherit'] = ['ignore', 'pipe', 'inherit'];
  const child = spawn(process.execPath, [PROGRAM, ...args], { stdio, env: { ...process.env, ...env } });
  children.push(child);
  const said = { text: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => {
    said.text += text;
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  return { child, said, ended };
}

describe.skipIf(!isBuilt)('four processes', () => {
  test.each([
    ['127.97.1', 'worker', 'worker'],
    ['127.97.2', 'inline', 'worker'],
    ['127.97.3', 'inline', 'own'],
  ])('at %s, devices in mode %s, reduced by thread %s: the others name a killed rank', async (...args) => {
    const [network, mode, thread] = args;
    const ranks = Array.from({ length: SIZE }, (_, rank) =>
      startRank([String(rank), String(SIZE), network, '7200', mode, thread]),
    );
    for (const { said } of ranks) await eventually(() => expect(said.text).toBe('running\n'));
    ranks[DEAD]?.child.kill('SIGKILL');
    for (const [rank, { said, ended }] of ranks.entries()) {
      const status = await ended;
      if (rank === DEAD) continue;
      expect(status).toBe(0);
      const [, result = ''] = said.text.split('\n');
      expect(JSON.parse(result)).toMatchObject({ name: 'RankError', rank: DEAD });
    }
  });
});

test.skipIf(!isBuilt)('ranks that connect again while rank 0 is busy join', async () => {
  const start = (rank: number) =>
    startRank([String(rank), '3', '127.97.4', '7200', 'inline', 'own'], { BUSY_MS: '3500' });
  const root = start(0);
  await eventually(() => expect(root.said.text).toBe('busy\n'));
  const others = [1, 2].map(start);
  for (const { said } of others) await eventually(() => expect(said.text).toBe('running\n'));
  await eventually(() => expect(root.said.text).toBe('busy\nrunning\n'));
});
