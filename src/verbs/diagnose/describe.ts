/** The form of objects in `console.log` and JSON. */
import { type InspectOptionsStylized, inspect } from 'node:util';

/** Plain data that describes an object, for people to read. */
export type Description = Record<string, unknown>;

/** Returns the text of an object for `util.inspect`: its class and its description. */
export function inspectAs(object: { toJSON(): Description }, depth: number, options: InspectOptionsStylized): string {
  const name = object.constructor.name;
  if (depth < 0) return options.stylize(`[${name}]`, 'special');
  const depthLeft = options.depth === null || options.depth === undefined ? options.depth : options.depth - 1;
  return `${name} ${inspect(object.toJSON(), { ...options, depth: depthLeft ?? null })}`;
}

/** Returns a 64-bit value as JSON can represent it: text above 2^53 - 1. */
export function jsonNumber(value: number | bigint): number | string {
  return typeof value === 'bigint' && value > Number.MAX_SAFE_INTEGER ? String(value) : Number(value);
}
