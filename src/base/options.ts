/** Argument checks. Each error names the argument, its value and the rule. */
import { invalidType, invalidValue, outOfRange } from '../errors.js';

/** Returns the error of a value of the wrong type. @param rule the values that it may have */
export const wrongType = (name: string, value: unknown, rule: string): TypeError =>
  invalidType(`${name} is ${show(value)}, must be ${rule}`);

/** Returns the error of a value that is not allowed. @param rule the values that it may have */
export const wrongValue = (name: string, value: unknown, rule: string): TypeError =>
  invalidValue(`${name} is ${show(value)}, must be ${rule}`);

/** Returns the error of a number or length outside its range. @param rule the values that it may have */
export const wrongNumber = (name: string, value: unknown, rule: string): RangeError =>
  outOfRange(`${name} is ${show(value)}, must be ${rule}`);

/** @throws TypeError when not an integer, RangeError when outside min..max */
export function checkInteger(name: string, value: unknown, min: number, max: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value)) throw wrongType(name, value, 'an integer');
  if (value < min || value > max) throw wrongNumber(name, value, `from ${min} to ${max}`);
  return value;
}

/** Checks an unsigned 32-bit value. @throws TypeError, RangeError as `checkInteger` */
export function checkU32(name: string, value: unknown): number {
  // Fast path: every work request is checked here.
  if (typeof value === 'number' && value >>> 0 === value) return value;
  return checkInteger(name, value, 0, 0xffffffff);
}

/** @throws TypeError */
export function checkBoolean(name: string, value: unknown): boolean {
  if (typeof value !== 'boolean') throw wrongType(name, value, 'true or false');
  return value;
}

/** Checks an unsigned 64-bit value: a bigint, or an integer below 2^53. @throws TypeError, RangeError */
export function checkU64(name: string, value: unknown): number | bigint {
  if (typeof value === 'bigint') {
    if (value < 0n || value > 0xffffffffffffffffn) throw wrongNumber(name, value, 'from 0 to 2^64 - 1');
    return value;
  }
  if (typeof value !== 'number' || !Number.isSafeInteger(value))
    throw wrongType(name, value, 'a bigint or an integer below 2^53');
  if (value < 0) throw outOfRange(`${name} is ${value}, must not be negative`);
  return value;
}

/** Returns the bits of flag names or of a number. @throws TypeError for unknown names, RangeError for unknown bits */
export function checkFlags(name: string, value: unknown, known: Readonly<Record<string, number>>): number {
  if (value === undefined) return 0;
  if (typeof value === 'number') {
    const all = Object.values(known).reduce((bits, bit) => bits | bit, 0);
    checkU32(name, value);
    if ((value & ~all) !== 0) throw outOfRange(`${name} is ${value}, allowed bits are ${all}`);
    return value;
  }
  if (!Array.isArray(value)) throw wrongType(name, value, 'an array of names or a number');
  let bits = 0;
  const count: number = value.length;
  for (let i = 0; i < count; i++) {
    const flag: unknown = value[i];
    const bit = typeof flag === 'string' && Object.hasOwn(known, flag) ? known[flag] : undefined;
    if (bit === undefined)
      throw invalidValue(`${name} has ${show(flag)}, must be one of ${Object.keys(known).join(', ')}`);
    bits |= bit;
  }
  return bits;
}

/** Checks one option. @throws TypeError, RangeError, which name the option, its value and the rule */
export interface Check {
  (name: string, value: unknown): unknown;
  /** Whether the option must be given: an undefined one is checked as well. */
  readonly isRequired?: true;
}

/** The options that a call knows, each with its check. The type demands all of them. */
export type Checks<Options> = { readonly [Key in keyof Options]-?: Check };

/**
 * Checks an object of options: each must be known, and pass its check unless it is undefined and not required. Each
 * is read once, so use the returned values and not the object.
 * @param call the owner of the options, for messages: `openDevice`
 * @param prefix of the names of the options in messages: `xdp.`
 * @returns the options that are not undefined
 * @throws TypeError, RangeError
 */
export function checkOptions<Options extends object>(
  call: string,
  options: Options,
  checks: Checks<Options>,
  prefix = '',
): Options {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw invalidType(`the options of ${call} are ${show(options)}, must be an object`);
  for (const name in options) {
    if (!Object.hasOwn(checks, name))
      throw invalidValue(`${call} has no option '${name}', must be one of ${Object.keys(checks).join(', ')}`);
  }
  const checked: Partial<Options> = {};
  // Not over Object.keys, which allocates an array in each call.
  for (const name in checks) {
    const value = options[name];
    if (value === undefined && checks[name].isRequired !== true) continue;
    checks[name](prefix + name, value);
    checked[name] = value;
  }
  return checked as Options;
}

/** The check of an object of options within another one. */
export function nested<Options extends object>(checks: Checks<Options>): Check {
  return (name, value) => checkOptions(name, value as Options, checks, `${name}.`);
}

/** The check of an option that must be given. */
export const required = (check: Check): Check =>
  Object.assign((name: string, value: unknown) => check(name, value), { isRequired: true as const });

/** The check of an option that the call itself checks. */
export const anything: Check = () => {};

/** The check of an integer. */
export function integer(min: number, max: number): Check {
  return (name, value) => checkInteger(name, value, min, max);
}

/** The check of one of some texts or numbers. */
export function oneOf(...values: readonly (string | number)[]): Check {
  return (name, value) => {
    if (values.includes(value as string)) return;
    const known = values.map(show);
    const last = known.pop();
    const rule = known.length === 0 ? last : `${known.join(', ')} or ${last}`;
    throw wrongValue(name, value, `${rule}`);
  };
}

/** The check of a text. */
export function text(name: string, value: unknown): void {
  if (typeof value !== 'string') throw wrongType(name, value, 'text');
}

/** The check of an array of texts. */
export function texts(name: string, value: unknown): void {
  if (!Array.isArray(value)) throw wrongType(name, value, 'an array of texts');
  for (const [i, item] of value.entries()) text(`${name}[${i}]`, item);
}

/** The check of a name or an address of a host. */
export function hostName(name: string, value: unknown): void {
  if (typeof value !== 'string' || value === '') throw wrongType(name, value, 'a name or an address');
}

/** The check of a function. */
export function callable(name: string, value: unknown): void {
  if (typeof value !== 'function') throw wrongType(name, value, 'a function');
}

/** The check of an object. */
export function object(name: string, value: unknown): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrongType(name, value, 'an object');
}

/** The check of an array. */
export function array(name: string, value: unknown): void {
  if (!Array.isArray(value)) throw wrongType(name, value, 'an array');
}

/** The check of bytes. */
export function bytes(name: string, value: unknown): void {
  if (!(value instanceof Uint8Array)) throw wrongType(name, value, 'a Uint8Array');
}

/** The check of an object of a class. @param what name of the object, for messages: `a protection domain` */
export function instanceOf(type: () => abstract new (...args: never[]) => unknown, what: string): Check {
  return (name, value) => {
    if (!(value instanceof type())) throw wrongType(name, value, what);
  };
}

/** Formats a value for an error message. */
export function show(value: unknown): string {
  if (typeof value === 'string') return `'${value}'`;
  if (typeof value === 'bigint') return `${value}n`;
  // a proxy is none
  if (value instanceof Uint8Array && ArrayBuffer.isView(value)) return `${value.length} bytes`;
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'an array' : 'an object';
  return String(value);
}
