/**
 * The card as C (native/card) in place of the card in V8, or beside it. Constants are those of the module, from which C
 * has them too.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { CARD_ADDON } from '../../scripts/setup/build.mjs';
import { cardModule } from '../../src/device/card.js';
import type { CardImports } from '../../src/device/regions.js';
import { ROOT } from '../repo/sources.js';
import type { Privilege } from './needs.js';

const ADDON = join(ROOT, CARD_ADDON);

interface CardAddon {
  instantiate(memory: Uint8Array, imports: CardImports): WebAssembly.Exports;
}

type Memory = WebAssembly.Memory;
type Imports = CardImports & { readonly memory: Memory };
type MakeExports = (inV8: WebAssembly.Exports, imports: Imports, log: ImportLog) => WebAssembly.Exports;
type Call = (...given: number[]) => number | undefined;

const { instantiate } = WebAssembly;

/** Returns whether the card as C was built for tests. */
export function cardInCPrivilege(): Privilege {
  return { ok: existsSync(ADDON), reason: 'the card as C is not built for tests: npm run build' };
}

const inC = (memory: Uint8Array, imports: CardImports) =>
  (createRequire(import.meta.url)(ADDON) as CardAddon).instantiate(memory, imports);

/** Returns exports with other functions, and with the constants of an instance in V8. */
function withConstants(inV8: WebAssembly.Exports, functions: object): WebAssembly.Exports {
  const constants = Object.entries(inV8).filter(([, value]) => value instanceof WebAssembly.Global);
  // the instance of the functions lives as long as this object
  return Object.setPrototypeOf(Object.fromEntries(constants), functions);
}

/** The card as C alone. */
const alone: MakeExports = (inV8, imports) => withConstants(inV8, inC(new Uint8Array(imports.memory.buffer), imports));

/** Returns the result of a call, or its trap. */
function outcomeOf(call: Call, given: number[]): { result?: number | undefined; trap?: Error } {
  try {
    return { result: call(...given) };
  } catch (error) {
    return { trap: error as Error };
  }
}

const IMPORTS = ['fetch', 'place', 'atomic'] as const;
/** The part of the card's memory that an import writes, from its last two arguments: offset and bytes. */
const WRITTEN = {
  fetch: (to: number, bytes: number) => [to, bytes],
  place: () => [0, 0],
  atomic: (_: number, operands: number) => [operands, 16],
} as Record<(typeof IMPORTS)[number], (a: number, b: number) => [at: number, bytes: number]>;

/** The imports that the card in V8 has called: the card as C must call the same, and gets their results. */
class ImportLog {
  #calls: { readonly call: string; readonly result: number; readonly fetched: Buffer }[] = [];
  /** Imports for the card in V8. */
  readonly recorded: CardImports;
  /** Imports for the card as C, on its memory. */
  readonly replayed: (memory: Buffer) => CardImports;

  constructor(imports: Imports) {
    const bytes = Buffer.from(imports.memory.buffer);
    const made = (make: (name: (typeof IMPORTS)[number]) => CardImports['fetch']) =>
      Object.fromEntries(IMPORTS.map((name) => [name, make(name)])) as unknown as CardImports;
    this.recorded = made((name) => (region, offset, a, b) => {
      const result = imports[name](region, offset, a, b);
      const [at, count] = WRITTEN[name](a >>> 0, b >>> 0);
      const fetched = Buffer.from(bytes.subarray(at, at + count));
      this.#calls.push({ call: `${name}(${[region, offset, a, b]})`, result, fetched });
      return result;
    });
    this.replayed = (memory) =>
      made((name) => (region, offset, a, b) => {
        const call = `${name}(${[region, offset, a, b]})`;
        const expected = this.#calls.shift();
        if (expected?.call !== call) throw new Error(`C calls ${call}, and V8 ${expected?.call}`);
        expected.fetched.copy(memory, WRITTEN[name](a >>> 0, b >>> 0)[0]);
        return expected.result;
      });
  }

  /** @throws Error if the card as C has called fewer imports than that in V8 */
  end(): void {
    const left = this.#calls.shift();
    this.#calls = [];
    if (left) throw new Error(`V8 calls ${left.call}, and C does not`);
  }
}

/**
 * Both cards: each call is made in V8, and as C on a copy of the memory from before. Results, traps, calls of imports
 * and all bytes of the two memories must be equal.
 */
const both: MakeExports = (inV8, { memory }, log) => {
  const first = Buffer.from(memory.buffer);
  const second = Buffer.alloc(first.length);
  const functions = inC(second, log.replayed(second)) as Record<string, Call>;
  const compared = (name: string, call: Call): Call => {
    const other = functions[name] as Call;
    return (...given) => {
      second.set(first);
      const { result, trap } = outcomeOf(call, given);
      const answer = outcomeOf(other, given);
      log.end();
      const what = `${name}(${given})`;
      if (result !== answer.result || trap?.message !== answer.trap?.message)
        throw new Error(`${what} is ${trap ?? result} in V8, and ${answer.trap ?? answer.result} as C`);
      if (!first.equals(second)) {
        const at = first.findIndex((byte, i) => byte !== second[i]);
        throw new Error(`${what} leaves ${first[at]} at 0x${at.toString(16)} in V8, and ${second[at]} as C`);
      }
      if (trap) throw trap;
      return result;
    };
  };
  const calls = Object.entries(inV8).filter(([, value]) => typeof value === 'function') as [string, Call][];
  return withConstants(inV8, Object.fromEntries(calls.map(([name, call]) => [name, compared(name, call)])));
};

/** From now on, new instances of the card are others than those of V8. @returns ends that */
export function useCards(kind: 'c' | 'both'): () => void {
  const make = kind === 'c' ? alone : both;
  const patched = async (module: WebAssembly.Module, imports: { env: Imports }) => {
    if (module !== cardModule()) return instantiate(module, imports as unknown as WebAssembly.Imports);
    const { memory, fetch, place, atomic } = imports.env;
    const given = { memory, fetch, place, atomic };
    const log = new ImportLog(given);
    const env = kind === 'both' ? { memory, ...log.recorded } : given;
    const instance = await instantiate(module, { env } as unknown as WebAssembly.Imports);
    return { exports: make(instance.exports, given, log) };
  };
  WebAssembly.instantiate = patched as unknown as typeof WebAssembly.instantiate;
  return () => {
    WebAssembly.instantiate = instantiate;
  };
}
