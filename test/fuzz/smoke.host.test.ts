/** Some inputs for each target of `npm run fuzz`, always with the same seed and without sanitizers. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { testIf } from '../kit/privileges.js';
import { FuzzFailure, type FuzzTarget, fuzz, readJournal, replay, type Session } from './fuzzer.js';
import { TARGETS } from './targets.js';

const SEED = 4791;
const INPUTS = 20_000;
const folder = mkdtempSync(join(tmpdir(), 'fuzz-'));
afterAll(() => rmSync(folder, { recursive: true }));

for (const target of TARGETS) {
  const reason = target.unavailable?.() ?? '';
  testIf({ ok: reason === '', reason }, `${target.name}: ${target.about}`, async () => {
    const journal = join(folder, `${target.name}.hex`);
    const inputs = INPUTS * (target.share ?? 1);
    expect(await fuzz(target, { seed: SEED, inputs, journal })).toBeGreaterThanOrEqual(inputs);
    // what was done last can be repeated
    const last = readJournal(journal);
    expect(last.target).toBe(target.name);
    await replay(target, { ...last, batches: last.batches.slice(0, 5) });
  });
}

/** A target that fails at an input that ends with 7. */
const failing: FuzzTarget = {
  ...{ name: 'failing', about: 'a target that fails', batch: 4, batches: 1000 },
  open: async (): Promise<Session> => ({
    next: (random) => random.bytes(2),
    feed(inputs) {
      for (const [, last] of inputs) if (last === 7) throw new Error('it ends with 7');
    },
    check() {},
    async [Symbol.asyncDispose]() {},
  }),
};

test('the journal of a failed epoch repeats the failure', async () => {
  const journal = join(folder, 'failing.hex');
  await expect(fuzz(failing, { seed: 1, inputs: 100_000, journal })).rejects.toThrow(FuzzFailure);
  expect(readFileSync(journal, 'utf8').trimEnd().split('\n').slice(-4).join()).toMatch(/07/);
  await expect(replay(failing, readJournal(journal))).rejects.toThrow('it ends with 7');
  writeFileSync(journal, 'nonsense');
  expect(() => readJournal(journal)).toThrow('does not begin with');
});
