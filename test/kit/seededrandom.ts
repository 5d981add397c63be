/**
 * Seeded random numbers: this file replaces Math.random and what the sources use of node:crypto in this process. Each
 * test draws the same numbers in each run, alone or after others: devices that are opened without a seed have the same
 * PSNs, queue pair numbers and keys. `WASM_ROCE_SEED=<n>` gives all tests other numbers.
 */
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { Random } from './random.js';

const SEED = Number(process.env.WASM_ROCE_SEED ?? 0);
const { createHash } = crypto;
let random = new Random(SEED);

/** Begins the numbers of the test that has this name. */
export function restartRandom(name: string): void {
  random = new Random(createHash('sha256').update(`${SEED} ${name}`).digest().readUInt32LE());
}

Math.random = () => random.fraction();
// Without the forms that have a callback, which nothing here uses.
const replaced: Partial<Record<keyof typeof crypto, unknown>> = {
  randomBytes: (bytes: number) => Buffer.from(random.bytes(bytes)),
  randomInt: (first: number, limit?: number) =>
    limit === undefined ? random.below(first) : random.between(first, limit),
};
Object.assign(crypto, replaced);
syncBuiltinESMExports();
