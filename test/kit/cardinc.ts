/**
 * The card as C (native/card) in place of the card in V8, or beside it. Constants are those of the module, from which C
 * has them too.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { CARD_ADDON } from '../../scripts/setup/build.mjs';
import { cardModule } from '../../src/device/card.js';
import { ROOT } from '../repo/sources.js';
import type { Privilege } from './needs.js';

const ADDON = join(ROOT, CARD_ADDON);

interface CardAddon {
  instantiate(memory: Uint8Array): WebAssembly.Exports;
}

type Memory = WebAssembly.Memory;
type MakeExports = (inV8: WebAssembly.Exports, memory: Memory) => WebAssembly.Exports;
type Call = (...given: number[]) => number | undefined;

const { instantiate } = WebAssembly;

/** Returns whether the card as C was built for tests. */
export function cardInCPrivilege(): Privilege {
  return { ok: existsSync(ADDON), reason: 'the card as C is not built for tests: npm run build' };
}

const inC = (memory: Uint8Array) => (createRequire(import.meta.url)(ADDON) as CardAddon).instantiate(memory);

/** Returns exports with other functions, and with the constants of an instance in V8. */
function withConstants(inV8: WebAssembly.Exports, functions: object): WebAssembly.Exports {
  const constants = Object.entries(inV8).filter(([, value]) => value instanceof WebAssembly.Global);
  // the instance of the functions lives as long as this object
  return Object.setPrototypeOf(Object.fromEntries(constants), functions);
}

/** The card as C alone. */
const alone: MakeExports = (inV8, memory) => withConstants(inV8, inC(new Uint8Array(memory.buffer)));

/** Returns the result of a call, or its trap. */
function outcomeOf(call: Call, given: number[]): { result?: number | undefined; trap?: Error } {
  try {
    return { result: call(...given) };
  } catch (error) {
    return { trap: error as Error };
  }
}

/**
 * Both cards: each call is made in V8, and as C on a copy of the memory from before. Results, traps and all bytes of
 * the two memories must be equal.
 */
const both: MakeExports = (inV8, memory) => {
  const first = Buffer.from(memory.buffer);
  const second = Buffer.alloc(first.length);
  const functions = inC(second) as Record<string, Call>;
  const compared = (name: string, call: Call): Call => {
    const other = functions[name] as Call;
    return (...given) => {
      second.set(first);
      const { result, trap } = outcomeOf(call, given);
      const answer = outcomeOf(other, given);
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
  const patched = async (module: WebAssembly.Module, imports: { env: { memory: Memory } }) => {
    const instance = await instantiate(module, imports as unknown as WebAssembly.Imports);
    return module === cardModule() ? { exports: make(instance.exports, imports.env.memory) } : instance;
  };
  WebAssembly.instantiate = patched as unknown as typeof WebAssembly.instantiate;
  return () => {
    WebAssembly.instantiate = instantiate;
  };
}
