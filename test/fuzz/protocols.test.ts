// Messages whose integers are at their edges end their own connections alone, whatever the protocol and the role.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { fuzz, readJournal, replay } from './fuzzer.js';
import { PROTOCOL_TARGETS } from './protocols/all.js';

const SEED = 39;
const INPUTS = 10_000;
const folder = mkdtempSync(join(tmpdir(), 'fuzz-'));
afterAll(() => rmSync(folder, { recursive: true }));

test.each(PROTOCOL_TARGETS.map((target) => [target.name, target] as const))('%s', async (name, target) => {
  const journal = join(folder, `${name}.hex`);
  expect(await fuzz(target, { seed: SEED, inputs: INPUTS, journal })).toBeGreaterThanOrEqual(INPUTS);
  const last = readJournal(journal);
  await replay(target, { ...last, batches: last.batches.slice(0, 5) });
});
