import type { SourcePosition } from './ast.js';

/** A mistake in a script: its message starts with `name:line:column`. */
export class ScriptError extends Error {
  /** Always `ScriptError`. */
  override readonly name = 'ScriptError';
  /** Always `ERR_SCRIPT`. */
  readonly code = 'ERR_SCRIPT';
  /** Line of the mistake, from 1. */
  readonly line: number;
  /** Column of the mistake, from 1. */
  readonly column: number;

  constructor(
    /** Name of the script, usually a path. */
    readonly script: string,
    place: SourcePosition,
    text: string,
  ) {
    super(`${script}:${place.line}:${place.column}: ${text}`);
    this.line = place.line;
    this.column = place.column;
  }
}
