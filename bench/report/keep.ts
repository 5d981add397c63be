/** Stored results: one JSON file for each table, with machine, commit and date. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import type { Noise } from '../rig/noise.js';
import { PROGRAMS, ROOT } from '../rig/paths.js';
import type { Settings } from '../tables/subject.js';

export interface Origin {
  readonly machine: string;
  readonly commit: string;
  readonly date: string;
  readonly settings: Settings;
  /** The commit of the build before, if the table has it. */
  readonly before?: string;
}

export interface Kept<Data = unknown> extends Origin {
  readonly subject: string;
  /** Undefined when the table has no turns of contenders. */
  readonly noise?: Noise;
  /** Undefined when the table could not be measured. */
  readonly data?: Data;
  readonly skipped?: string;
}

/** @param before folder of the build before, if it is measured, too */
export function originOf(settings: Settings, before?: string): Origin {
  const date = new Date().toISOString().slice(0, 10);
  const own = { machine: machine(), commit: commitOf(ROOT), date, settings };
  return before === undefined ? own : { ...own, before: commitOf(before) };
}

function machine(): string {
  const all = cpus();
  const model = all[0]?.model.replace(/\s+/g, ' ').trim() ?? 'unknown CPU';
  const memory = Math.round(totalmem() / 2 ** 30);
  return `${all.length} × ${model}, ${memory} GiB, Linux ${release()}, Node ${process.version}`;
}

function commitOf(cwd: string): string {
  try {
    const git = (...args: string[]) => execFileSync('git', args, { cwd, encoding: 'utf8' }).trim();
    const isChanged = git('status', '--porcelain', '--', 'assembly', 'src', 'native') !== '';
    return `${git('rev-parse', '--short', 'HEAD')}${isChanged ? ' with changes' : ''}`;
  } catch {
    return 'unknown commit';
  }
}

const fileOf = (subject: string) => `${PROGRAMS}/${subject}.json`;

export function keep(result: Kept): void {
  mkdirSync(PROGRAMS, { recursive: true });
  writeFileSync(fileOf(result.subject), `${JSON.stringify(result, null, 1)}\n`);
}

/** Returns the stored results of a table, if there are any. */
export function kept<Data>(subject: string): Kept<Data> | undefined {
  return existsSync(fileOf(subject)) ? JSON.parse(readFileSync(fileOf(subject), 'utf8')) : undefined;
}
