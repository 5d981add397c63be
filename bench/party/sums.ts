/** Copies and CRCs of this process: the card's own code (build/bench/sums.wasm), and what Node has. */

import { readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { crc32 } from 'node:zlib';

/** ns for each of so many bytes. */
export interface Sums {
  readonly copy: number;
  readonly sum: number;
  readonly copyAndSum: number;
  /** Copied and summed in one pass. */
  readonly fused: number;
  readonly node: number;
}

/** Goes through a region of `span` bytes, so many at a time. */
type Loop = (times: number, bytes: number, span: number) => number;
interface Module {
  readonly init: () => void;
  readonly copy: Loop;
  readonly sum: Loop;
  readonly copyAndSum: Loop;
  readonly fused: Loop;
}

const TIMES = 1000;

export class SumsEnd {
  #module: Module | undefined;

  async measure(bytes: number, span: number, ms: number): Promise<Sums> {
    this.#module ??= await open();
    const { copy, sum, copyAndSum, fused } = this.#module;
    const each = (loop: Loop) => nsOf(loop, bytes, span, ms);
    const from = Buffer.alloc(span, 7);
    const node: Loop = (times) => {
      let value = 0;
      for (let i = 0, at = 0; i < times; i++, at = at + 2 * bytes <= span ? at + bytes : 0)
        value ^= crc32(from.subarray(at, at + bytes));
      return value;
    };
    if (fused(2, bytes, span) !== copyAndSum(2, bytes, span))
      throw new Error('copy and CRC in one pass comes to something else');
    return { copy: each(copy), sum: each(sum), copyAndSum: each(copyAndSum), fused: each(fused), node: each(node) };
  }
}

async function open(): Promise<Module> {
  const memory = new WebAssembly.Memory({ initial: 64, maximum: 65536, shared: true });
  const file = new URL('../../sums.wasm', import.meta.url);
  const { instance } = await WebAssembly.instantiate(readFileSync(file), { env: { memory, abort: () => {} } });
  const module = instance.exports as unknown as Module;
  module.init();
  return module;
}

function nsOf(loop: Loop, bytes: number, span: number, ms: number): number {
  loop(TIMES, bytes, span);
  const begin = performance.now();
  let times = 0;
  for (; performance.now() < begin + ms; times += TIMES) loop(TIMES, bytes, span);
  return ((performance.now() - begin) * 1e6) / times;
}
