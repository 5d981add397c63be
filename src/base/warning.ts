/** Warnings of the process, which also work in a page. */

/** The codes of all warnings; docs/diagnostics.md explains them. */
export type WarningCode =
  | 'WASM_ROCE_NO_RECEIVE'
  | 'WASM_ROCE_ICRC'
  | 'WASM_ROCE_NO_NEIGHBOUR'
  | 'WASM_ROCE_PORT_TAKEN'
  | 'WASM_ROCE_INTERFACE'
  | 'WASM_ROCE_LEAVE';

/** Emits a warning of the process; in a page, which has no process, it goes to the console. */
export function emitWarning(code: WarningCode, text: string): void {
  const { process } = globalThis as { process?: NodeJS.Process };
  if (process === undefined) console.warn(`${code}: ${text}`);
  else process.emitWarning(text, { code });
}
