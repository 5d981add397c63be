/** Checks of arguments. Each names the argument, its value and the rule. */

/** @throws TypeError when not an integer, RangeError when outside min..max */
export function checkInteger(name: string, value: unknown, min: number, max: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value))
    throw new TypeError(`${name} is ${show(value)}, must be an integer`);
  if (value < min || value > max) throw new RangeError(`${name} is ${value}, must be from ${min} to ${max}`);
  return value;
}

/** @throws TypeError, RangeError as `checkInteger`, for 32 unsigned bits */
export function checkU32(name: string, value: unknown): number {
  // The common case first: this is on the path of every work request.
  if (typeof value === 'number' && value >>> 0 === value) return value;
  return checkInteger(name, value, 0, 0xffffffff);
}

/** @throws TypeError */
export function checkBoolean(name: string, value: unknown): boolean {
  if (typeof value !== 'boolean') throw new TypeError(`${name} is ${show(value)}, must be true or false`);
  return value;
}

/** 64 unsigned bits, as a number while that is exact. @throws TypeError, RangeError */
export function checkU64(name: string, value: unknown): number | bigint {
  if (typeof value === 'bigint') {
    if (value < 0n || value > 0xffffffffffffffffn)
      throw new RangeError(`${name} is ${value}n, must be from 0 to 2^64 - 1`);
    return value;
  }
  if (typeof value !== 'number' || !Number.isSafeInteger(value))
    throw new TypeError(`${name} is ${show(value)}, must be a bigint or an integer below 2^53`);
  if (value < 0) throw new RangeError(`${name} is ${value}, must not be negative`);
  return value;
}

/** Bits from names or from a number. @throws TypeError naming the known names, RangeError */
export function checkFlags(
  name: string,
  value: number | readonly string[] | undefined,
  known: Readonly<Record<string, number>>,
): number {
  if (value === undefined) return 0;
  if (typeof value === 'number') {
    const all = Object.values(known).reduce((bits, bit) => bits | bit, 0);
    checkU32(name, value);
    if ((value & ~all) !== 0) throw new RangeError(`${name} is ${value}, known bits are ${all}`);
    return value;
  }
  if (!Array.isArray(value)) throw new TypeError(`${name} is ${show(value)}, must be an array of names or a number`);
  return (value as readonly string[]).reduce((bits, flag) => {
    const bit = Object.hasOwn(known, flag) ? known[flag] : undefined;
    if (bit === undefined)
      throw new TypeError(`${name} has ${show(flag)}, must be one of ${Object.keys(known).join(', ')}`);
    return bits | bit;
  }, 0);
}

/** A value for a message. */
export function show(value: unknown): string {
  if (typeof value === 'string') return `'${value}'`;
  if (typeof value === 'bigint') return `${value}n`;
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'an array' : 'an object';
  return String(value);
}

/** `0x1a2b3c` */
export function hex(value: number, digits = 1): string {
  return `0x${value.toString(16).padStart(digits, '0')}`;
}
