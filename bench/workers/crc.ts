/** Copies and CRCs in this process: by the card's own code (build/bench/crc.wasm), and by Node. */

import { readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { crc32 } from 'node:zlib';

/** The ns of each operation on the given number of bytes. */
export interface CrcTimes {
  readonly copy: number;
  readonly sum: number;
  readonly copyAndSum: number;
  /** Copy and CRC in one pass. */
  readonly fused: number;
  readonly node: number;
}

/** Processes a region of `span` bytes in pieces of `bytes`. */
type Loop = (times: number, bytes: number, span: number) => number;
interface Module {
  readonly init: () => void;
  readonly copy: Loop;
  readonly sum: Loop;
  readonly copyAndSum: Loop;
  readonly fused: Loop;
}

const TIMES = 1000;

export class CrcEnd {
  #module: Module | undefined;

  async measure(bytes: number, span: number, ms: number): Promise<CrcTimes> {
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
  const file = new URL('../../../crc.wasm', import.meta.url);
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
