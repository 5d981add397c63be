/** Copies and CRCs: the least cost of every card, and the speed of the card's own code. */
import { digits, type Sheet } from '../report/sheet.js';
import { onOneCpu, startLocal } from '../rig/local.js';
import { PROGRAMS } from '../rig/paths.js';
import { lineLike } from '../rig/program.js';
import { median } from '../rig/stats.js';
import type { Context, Subject } from './subject.js';

/** The ns for `bytes`, by the name of the implementation. */
export interface CrcRow {
  readonly bytes: number;
  /** Bytes of the region, which is used in a cycle. */
  readonly span: number;
  readonly ns: Readonly<Record<string, number>>;
}

export const SIZES = [1024, 2048, 4096] as const;

/** Titles of the rows by name, in the order of the table. */
const NAMES: Readonly<Record<string, string>> = {
  sum: "the card's CRC (WebAssembly)",
  copyAndSum: 'copy, then CRC (WebAssembly)',
  fused: 'copy and CRC in one pass (WebAssembly)',
  copy: 'copy (WebAssembly)',
  'cVpclmulqdq, 512 bits': "the links' ICRC offload, vpclmulqdq with 512 bits (C++)",
  'cVpclmulqdq, 256 bits': "the links' ICRC offload, vpclmulqdq with 256 bits (C++)",
  cPclmulqdq: "the links' ICRC offload, pclmulqdq (C++)",
  cPmull: "the links' ICRC offload, pmull (C++)",
  cCrc32: "the links' ICRC offload, crc32 (C++)",
  cCopyAndOffload: 'copy, then the first of them (C++)',
  node: "Node's zlib.crc32",
  cZlib: 'zlib (C)',
  cIsal: 'ISA-L (C)',
  cCopyAndZlib: 'copy, then zlib (C)',
  cCopyAndIsal: 'copy, then ISA-L (C)',
  cCopy: 'memcpy (C)',
};

/** Measures the card's code and Node's in one process, and C in another. */
export async function measureCrc(
  works: readonly Pick<CrcRow, 'bytes' | 'span'>[],
  ms: number,
  rounds: number,
): Promise<CrcRow[]> {
  const worker = startLocal('crc');
  const all = works.map((work) => ({ ...work, times: {} as Record<string, number[]> }));
  try {
    for (let round = 0; round < rounds; round++) {
      for (const { bytes, span, times } of all) {
        const note = ([name, value]: [string, number]) => {
          times[name] = [...(times[name] ?? []), value];
        };
        Object.entries(await worker.call<Record<string, number>>('measure', bytes, span, ms)).forEach(note);
        Object.entries(await inC(bytes, span, ms)).forEach(note);
      }
    }
  } finally {
    worker.kill();
  }
  return all.map(({ times, ...work }) => ({
    ...work,
    ns: Object.fromEntries(Object.entries(times).map(([name, values]) => [name, median(values)])),
  }));
}

/** Measures the program in C. Returns no figures if it was not compiled. */
async function inC(bytes: number, span: number, ms: number): Promise<Record<string, number>> {
  const program = onOneCpu([`${PROGRAMS}/crc`, ...[bytes, span, ms].map(String)]);
  try {
    const { kept, ...ns } = JSON.parse(await lineLike(program, /^\{/)) as Record<string, number>;
    const named = (name: string) => `c${name.charAt(0).toUpperCase()}${name.slice(1)}`;
    return Object.fromEntries(Object.entries(ns).map(([name, value]) => [named(name), value]));
  } catch {
    return {};
  }
}

export const icrc: Subject<CrcRow[]> = {
  name: 'icrc',
  title: 'ICRC: the CRC-32 of every packet',

  async measure({ settings, progress }: Context) {
    progress('copies and CRCs');
    const works = SIZES.map((bytes) => ({ bytes, span: bytes }));
    return measureCrc(works, settings.ms / 8, settings.rounds);
  },

  sheets(rows) {
    const known = Object.entries(NAMES).filter(([name]) => rows.some(({ ns }) => ns[name] !== undefined));
    const sheet: Sheet = {
      title: 'GB/s on one core with the data in its cache (and ns)',
      head: ['', ...rows.map(({ bytes }) => `${bytes} bytes`)],
      rows: known.map(([name, title]) => [title, ...rows.map(({ bytes, ns }) => shown(bytes, ns[name]))]),
    };
    return [sheet];
  },
};

function shown(bytes: number, ns: number | undefined): string {
  return ns === undefined ? '' : `${digits(bytes / ns)} (${Math.round(ns)})`;
}
