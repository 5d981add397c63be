/** Copies and CRCs: what no card can save, and how the card's own code does it. */
import { digits, type Sheet } from '../report/sheet.js';
import { onOneCpu, startLocal } from '../rig/local.js';
import { PROGRAMS } from '../rig/paths.js';
import { lineLike } from '../rig/program.js';
import { median } from '../rig/stats.js';
import type { Context, Subject } from './subject.js';

/** ns for so many bytes, by name of who does it. */
export interface SumsRow {
  readonly bytes: number;
  /** Bytes of the region of which it is always the next that are taken. */
  readonly span: number;
  readonly ns: Readonly<Record<string, number>>;
}

export const SIZES = [1024, 2048, 4096] as const;

/** What the names mean, in the order of the table. */
const NAMES: Readonly<Record<string, string>> = {
  sum: "the card's CRC (WebAssembly)",
  copyAndSum: 'copy, then CRC (WebAssembly)',
  fused: 'copy and CRC in one pass (WebAssembly)',
  copy: 'copy (WebAssembly)',
  cVpclmulqdq: "the links' part of it, vpclmulqdq (C++)",
  cPclmulqdq: "the links' part of it, pclmulqdq (C++)",
  node: "Node's zlib.crc32",
  cZlib: 'zlib (C)',
  cIsal: 'ISA-L (C)',
  cCopyAndZlib: 'copy, then zlib (C)',
  cCopyAndIsal: 'copy, then ISA-L (C)',
  cCopy: 'memcpy (C)',
};

/** One round: the card's code and Node's in one process, C in another. */
export async function measureSums(
  works: readonly Pick<SumsRow, 'bytes' | 'span'>[],
  ms: number,
  rounds: number,
): Promise<SumsRow[]> {
  const party = startLocal('sums');
  const all = works.map((work) => ({ ...work, times: {} as Record<string, number[]> }));
  try {
    for (let round = 0; round < rounds; round++) {
      for (const { bytes, span, times } of all) {
        const note = ([name, value]: [string, number]) => {
          times[name] = [...(times[name] ?? []), value];
        };
        Object.entries(await party.call<Record<string, number>>('measure', bytes, span, ms)).forEach(note);
        Object.entries(await inC(bytes, span, ms)).forEach(note);
      }
    }
  } finally {
    party.kill();
  }
  return all.map(({ times, ...work }) => ({
    ...work,
    ns: Object.fromEntries(Object.entries(times).map(([name, values]) => [name, median(values)])),
  }));
}

/** Nothing where it was not compiled. */
async function inC(bytes: number, span: number, ms: number): Promise<Record<string, number>> {
  const program = onOneCpu([`${PROGRAMS}/sums`, ...[bytes, span, ms].map(String)]);
  try {
    const { kept, ...ns } = JSON.parse(await lineLike(program, /^\{/)) as Record<string, number>;
    const named = (name: string) => `c${name.charAt(0).toUpperCase()}${name.slice(1)}`;
    return Object.fromEntries(Object.entries(ns).map(([name, value]) => [named(name), value]));
  } catch {
    return {};
  }
}

export const icrc: Subject<SumsRow[]> = {
  name: 'icrc',
  title: 'ICRC: the CRC-32 of every packet',

  async measure({ settings, progress }: Context) {
    progress('copies and CRCs');
    const works = SIZES.map((bytes) => ({ bytes, span: bytes }));
    return measureSums(works, settings.ms / 8, settings.rounds);
  },

  sheets(rows) {
    const known = Object.entries(NAMES).filter(([name]) => rows.some(({ ns }) => ns[name] !== undefined));
    const sheet: Sheet = {
      title: 'GB/s on one core, the bytes being in its cache (and ns)',
      head: ['', ...rows.map(({ bytes }) => `${bytes} bytes`)],
      rows: known.map(([name, title]) => [title, ...rows.map(({ bytes, ns }) => shown(bytes, ns[name]))]),
    };
    return [sheet];
  },
};

function shown(bytes: number, ns: number | undefined): string {
  return ns === undefined ? '' : `${digits(bytes / ns)} (${Math.round(ns)})`;
}
