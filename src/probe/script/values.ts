/** Values of a script, and the evaluation of expressions. */
import { type Expression, type Operator, type SourcePosition, UNITS, type Unit } from './ast.js';

/** A span of time. */
export class Duration {
  /** @param ns nanoseconds */
  constructor(readonly ns: bigint) {}

  /** Returns the duration in the largest unit in which it is at least 1, with up to three decimals. */
  toString(): string {
    const units = Object.entries(UNITS).reverse();
    const size = this.ns < 0n ? -this.ns : this.ns;
    const [unit, ns] = units.find(([, each]) => size >= each) ?? ['ns', 1n];
    return `${Number((Number(this.ns) / Number(ns)).toFixed(3))}${unit}`;
  }
}

/** A packet that a script has sent or received: its fields by name. */
export interface PacketRecord {
  /** Time since the start of the script. */
  readonly time: Duration;
  /**
   * Returns a field by its name, or undefined if the packet does not have it.
   * @throws RangeError for a name that no packet has
   */
  field(name: string): Value | undefined;
}

/** A value of a script. Integers have no size; a field cuts them to its own. */
export type Value = bigint | Duration | Uint8Array | string | PacketRecord;

/** Names that stand for numbers: the codes of a NAK (IBTA 9.7.5.2.8) and the ECN codepoints (RFC 3168). */
export const CONSTANTS: ReadonlyMap<string, bigint> = new Map(
  Object.entries({
    sequence: 0n,
    invalid_request: 1n,
    remote_access: 2n,
    remote_operational: 3n,
    not_ect: 0n,
    ect1: 1n,
    ect0: 2n,
    ce: 3n,
  }),
);

/** Variables that every script finds, 0 unless the run gives them: PSNs, MSNs and the like. */
export const GIVEN: readonly string[] = ['psn', 'msn', 'va', 'rkey', 'qkey', 'qp', 'mtu'];

/** Functions of expressions, with the least and the most number of arguments. */
export const FUNCTIONS: ReadonlyMap<string, readonly [number, number]> = new Map([
  ['pattern', [1, 2]],
  ['zeros', [1, 1]],
  ['bytes', [1, 1]],
  ['length', [1, 1]],
]);

/** Returns the message for a function that does not exist. */
export const unknownFunction = (name: string) => `no function ${name}; there are ${[...FUNCTIONS.keys()].join(', ')}`;

/** The longest bytes that a function makes. */
const MAX_BYTES = 1n << 24n;

type Fail = (place: SourcePosition, text: string) => never;

/** Returns the kind of a value, for messages. */
export function kindOf(value: Value): string {
  if (typeof value === 'bigint') return 'a number';
  if (typeof value === 'string') return 'a text';
  if (value instanceof Duration) return 'a duration';
  return value instanceof Uint8Array ? 'bytes' : 'a packet';
}

function bytesOfText(text: string): Uint8Array | undefined {
  const digits = text.replace(/[\s:]/g, '');
  return /^([0-9a-fA-F]{2})*$/.test(digits) ? Uint8Array.from(Buffer.from(digits, 'hex')) : undefined;
}

/** Returns bytes that differ from offset to offset, the same for the same seed. */
export function pattern(length: number, seed = 0): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => (i * 151 + (i >> 8) * 31 + seed) & 255);
}

/** Evaluates expressions over the variables of a script. */
export class Evaluator {
  constructor(
    readonly variables: ReadonlyMap<string, Value>,
    readonly fail: Fail,
  ) {}

  /** @throws the error of `fail`, for an unknown name or a value of the wrong kind */
  value(expression: Expression): Value {
    switch (expression.kind) {
      case 'number':
        return BigInt(expression.text.replaceAll('_', ''));
      case 'duration':
        return new Duration(nanoseconds(expression.text, expression.unit));
      case 'string':
        return expression.value;
      case 'group':
        return this.value(expression.inner);
      case 'name':
        return this.#name(expression, expression.path);
      case 'call':
        return this.#call(expression, expression.name, expression.arguments);
      case 'unary': {
        const operand = this.value(expression.operand);
        if (expression.operator === '-' && operand instanceof Duration) return new Duration(-operand.ns);
        if (typeof operand !== 'bigint') return this.fail(expression.operand, `${expression.operator} needs a number`);
        return expression.operator === '-' ? -operand : ~operand;
      }
      case 'binary':
        return this.#binary(expression, expression.operator, this.value(expression.left), this.value(expression.right));
    }
  }

  number(expression: Expression): bigint {
    const value = this.value(expression);
    return typeof value === 'bigint' ? value : this.fail(expression, `expected a number, found ${kindOf(value)}`);
  }

  /** Returns a duration in nanoseconds. */
  nanoseconds(expression: Expression): number {
    const value = this.value(expression);
    if (!(value instanceof Duration)) return this.fail(expression, `expected a duration, found ${kindOf(value)}`);
    if (value.ns < 0n) return this.fail(expression, `the duration ${value} is negative`);
    return Number(value.ns);
  }

  #name(place: SourcePosition, path: readonly string[]): Value {
    const [first = '', field, ...more] = path;
    const value = this.variables.get(first) ?? CONSTANTS.get(first);
    if (value === undefined) return this.fail(place, `no variable ${first}`);
    if (field === undefined) return value;
    if (typeof value !== 'object' || !('field' in value))
      return this.fail(place, `${first} is ${kindOf(value)}, only a packet has fields`);
    if (field === 'time' && more.length === 0) return value.time;
    const name = [field, ...more].join('.');
    try {
      return value.field(name) ?? this.fail(place, `the packet ${first} has no field ${name}`);
    } catch (error) {
      if (error instanceof RangeError) return this.fail(place, error.message);
      throw error;
    }
  }

  #call(place: SourcePosition, name: string, list: readonly Expression[]): Value {
    const count = FUNCTIONS.get(name);
    if (count === undefined) return this.fail(place, unknownFunction(name));
    if (list.length < count[0] || list.length > count[1])
      return this.fail(place, `${name} takes ${count[0] === count[1] ? count[0] : count.join(' to ')} arguments`);
    const [first, second] = list as [Expression, Expression | undefined];
    if (name === 'bytes') {
      const text = this.value(first);
      const bytes = typeof text === 'string' ? bytesOfText(text) : undefined;
      return bytes ?? this.fail(first, 'bytes needs hexadecimal digits in quotes, two for each byte');
    }
    if (name === 'length') {
      const bytes = this.value(first);
      return bytes instanceof Uint8Array ? BigInt(bytes.length) : this.fail(first, 'length needs bytes');
    }
    const length = this.number(first);
    if (length < 0n || length > MAX_BYTES)
      return this.fail(first, `the length ${length} must be 0 to ${MAX_BYTES} bytes`);
    if (name === 'zeros') return new Uint8Array(Number(length));
    return pattern(Number(length), second === undefined ? 0 : Number(BigInt.asUintN(8, this.number(second))));
  }

  #binary(place: SourcePosition, operator: Operator, left: Value, right: Value): Value {
    const wrong = () => this.fail(place, `${operator} cannot take ${kindOf(left)} and ${kindOf(right)}`);
    if (left instanceof Uint8Array && right instanceof Uint8Array) {
      const same = Buffer.compare(left, right) === 0;
      return operator === '==' ? BigInt(same) : operator === '!=' ? BigInt(!same) : wrong();
    }
    const [a, b] = [left, right].map((value) => (value instanceof Duration ? value.ns : value));
    if (typeof a !== 'bigint' || typeof b !== 'bigint') return wrong();
    const [isLeftTime, isRightTime] = [left instanceof Duration, right instanceof Duration];
    const isComparison = operator in COMPARE;
    const isScaled = isLeftTime && !isRightTime && (operator === '*' || operator === '/');
    const isTime = isLeftTime || isRightTime;
    const fits = isComparison || operator === '+' || operator === '-' || operator === '%';
    if (isTime && !isScaled && !(isLeftTime && isRightTime && fits)) return wrong();
    if (isComparison) return BigInt(COMPARE[operator as keyof typeof COMPARE](a, b));
    if ((operator === '/' || operator === '%') && b === 0n) return this.fail(place, 'division by zero');
    if ((operator === '<<' || operator === '>>') && (b < 0n || b > 64n))
      return this.fail(place, `the shift ${b} must be 0 to 64`);
    const result = CALCULATE[operator as keyof typeof CALCULATE](a, b);
    return isTime ? new Duration(result) : result;
  }
}

const COMPARE = {
  '==': (a: bigint, b: bigint) => a === b,
  '!=': (a: bigint, b: bigint) => a !== b,
  '<': (a: bigint, b: bigint) => a < b,
  '>': (a: bigint, b: bigint) => a > b,
  '<=': (a: bigint, b: bigint) => a <= b,
  '>=': (a: bigint, b: bigint) => a >= b,
};

const CALCULATE = {
  '+': (a: bigint, b: bigint) => a + b,
  '-': (a: bigint, b: bigint) => a - b,
  '*': (a: bigint, b: bigint) => a * b,
  '/': (a: bigint, b: bigint) => a / b,
  '%': (a: bigint, b: bigint) => a % b,
  '&': (a: bigint, b: bigint) => a & b,
  '|': (a: bigint, b: bigint) => a | b,
  '^': (a: bigint, b: bigint) => a ^ b,
  '<<': (a: bigint, b: bigint) => a << b,
  '>>': (a: bigint, b: bigint) => a >> b,
};

/** Returns a decimal number of a unit in nanoseconds, cut to whole ones. */
function nanoseconds(text: string, unit: Unit): bigint {
  const [whole = '0', part = ''] = text.split('.');
  const digits = part.slice(0, 9);
  return (
    BigInt(whole) * UNITS[unit] + (BigInt(digits === '' ? '0' : digits) * UNITS[unit]) / 10n ** BigInt(digits.length)
  );
}
