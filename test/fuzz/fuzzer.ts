/**
 * Runs a fuzz target: epochs of batches of inputs, each epoch with a fresh session and a seed of its own. An input is
 * bytes, and a session depends on its seed and its inputs only, so that the journal of an epoch repeats it.
 */
import { closeSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { Random } from '../kit/random.js';

/** The target of one epoch. */
export interface Session extends AsyncDisposable {
  /** Returns the next input. It may depend on the state of the session. */
  next(random: Random): Uint8Array;
  /** Applies inputs. @throws Error if something does not hold */
  feed(inputs: readonly Uint8Array[]): void | Promise<void>;
  /** Checks at the end of the epoch that what was fuzzed still works. @throws Error */
  check(): void | Promise<void>;
}

export interface FuzzTarget {
  readonly name: string;
  readonly about: string;
  /** Inputs of a batch, and batches of an epoch. */
  readonly batch: number;
  readonly batches: number;
  /** Share of the inputs that `npm test` gives to it, of those of the other targets. Default 1. */
  readonly share?: number;
  /** Whether it runs in virtual time (test/kit/virtualclock.ts). */
  readonly isVirtual?: boolean;
  /** Returns why the target cannot run here, or undefined. */
  unavailable?(): string | undefined;
  open(seed: number): Promise<Session>;
}

export interface FuzzOptions {
  readonly seed: number;
  /** When it ends, in seconds. Default: never. */
  readonly seconds?: number;
  /** After how many inputs it ends, once their batch is whole. Default: never. */
  readonly inputs?: number;
  /** File in which the inputs of the running epoch are written before they are used. */
  readonly journal: string;
  /** Called after each batch. */
  onBatch?(inputs: number): void;
}

/** A target and its inputs, as a journal has them: a line in hexadecimal each, batches apart by empty lines. */
export interface Journal {
  readonly target: string;
  readonly seed: number;
  readonly batches: readonly (readonly Uint8Array[])[];
}

/** A failure, and the number of inputs before it. */
export class FuzzFailure extends Error {
  constructor(cause: unknown, seed: number) {
    super(`epoch with seed ${seed}: ${cause instanceof Error ? (cause.stack ?? cause.message) : cause}`, { cause });
  }
}

/**
 * Fuzzes for some time, or with some inputs.
 * @returns the number of inputs
 * @throws FuzzFailure; its inputs are in the journal
 */
export async function fuzz(target: FuzzTarget, options: FuzzOptions): Promise<number> {
  const { seed, seconds = Number.POSITIVE_INFINITY, inputs: most = Number.POSITIVE_INFINITY, journal } = options;
  mkdirSync(dirname(journal), { recursive: true });
  const file = openSync(journal, 'w');
  // not performance.now, which may be virtual
  const end = Date.now() + seconds * 1000;
  const seeds = new Random(seed);
  let inputs = 0;
  const hasMore = () => inputs < most && Date.now() < end;
  try {
    do {
      const epoch = seeds.u32();
      ftruncateSync(file);
      let at = writeSync(file, `# target ${target.name}, seed ${epoch}\n`, 0);
      const random = new Random(epoch);
      const play = async (session: Session) => {
        for (let n = 0; n < target.batches && hasMore(); n++) {
          const batch = Array.from({ length: target.batch }, () => session.next(random));
          at += writeSync(file, `${batch.map((bytes) => Buffer.from(bytes).toString('hex')).join('\n')}\n\n`, at);
          await session.feed(batch);
          inputs += batch.length;
          options.onBatch?.(inputs);
        }
      };
      await inSession(target, epoch, play);
    } while (hasMore());
  } finally {
    closeSync(file);
  }
  return inputs;
}

/** Repeats the inputs of a journal. @throws FuzzFailure */
export async function replay(target: FuzzTarget, { seed, batches }: Journal): Promise<void> {
  await inSession(target, seed, async (session) => {
    for (const batch of batches) await session.feed(batch);
  });
}

async function inSession(target: FuzzTarget, seed: number, play: (session: Session) => Promise<void>): Promise<void> {
  try {
    await using session = await target.open(seed);
    await play(session);
    await session.check();
  } catch (cause) {
    throw new FuzzFailure(cause, seed);
  }
}

/** Reads a journal. @throws Error if it does not name a target and a seed */
export function readJournal(file: string): Journal {
  const text = readFileSync(file, 'utf8');
  const [, target, seed] = /^# target (\S+), seed (\d+)/.exec(text) ?? [];
  if (target === undefined) throw new Error(`${file} does not begin with "# target NAME, seed NUMBER"`);
  const batches = text
    .replace(/^#.*\n/gm, '')
    .split('\n\n')
    .map((lines) => lines.split('\n').map((line) => Uint8Array.from(Buffer.from(line.trim(), 'hex'))))
    .filter((batch) => batch.some(({ length }) => length > 0));
  return { target, seed: Number(seed), batches };
}

/** Reads the frames or messages of a corpus file: one in hexadecimal a line; text after # is a comment. */
export function readCorpus(file: URL): Uint8Array[] {
  return readFileSync(file, 'utf8')
    .replace(/#.*$/gm, '')
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => Uint8Array.from(Buffer.from(line.trim(), 'hex')));
}
