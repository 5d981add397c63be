/** The arrays that collectives take. */
import { wrongType } from '../../base/options.js';
import { invalidType } from '../../errors.js';

/** An array of numbers. */
export type NumberArray = Float32Array | Float64Array | Int32Array | BigInt64Array;

/** Name of a constructor of arrays. */
export type ElementName = 'Float32Array' | 'Float64Array' | 'Int32Array' | 'BigInt64Array';

/** Constructor of an array over memory. */
type ArrayConstructor = new (buffer: ArrayBufferLike, offset: number, length: number) => NumberArray;

/** The type of the elements of an array. */
export interface ElementType {
  readonly name: ElementName;
  /** Bytes of an element. */
  readonly bytes: number;
  readonly array: ArrayConstructor;
  /** Its name in the module that combines arrays (assembly/reduce.ts). */
  readonly code: 'F32' | 'F64' | 'I32' | 'I64';
}

const TYPES: readonly ElementType[] = [
  { name: 'Float32Array', bytes: 4, array: Float32Array, code: 'F32' },
  { name: 'Float64Array', bytes: 8, array: Float64Array, code: 'F64' },
  { name: 'Int32Array', bytes: 4, array: Int32Array, code: 'I32' },
  { name: 'BigInt64Array', bytes: 8, array: BigInt64Array, code: 'I64' },
];

const NAMES = TYPES.map(({ name }) => name).join(', ');

/** Returns the type of an array. @param name of the argument @throws TypeError for another kind of array */
export function typeOf(name: string, array: NumberArray): ElementType {
  const type = TYPES.find((each) => array instanceof each.array);
  if (type === undefined) throw invalidType(`${name} is ${describe(array)}, must be one of ${NAMES}`);
  return type;
}

/** Returns the type with a name. @throws TypeError */
export function typeNamed(name: ElementName): ElementType {
  const type = TYPES.find((each) => each.name === name);
  if (type === undefined) throw wrongType('type', name, `one of ${NAMES}`);
  return type;
}

/** Returns the memory of an array. */
export function bytesOf(array: NumberArray): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

function describe(value: unknown): string {
  return ArrayBuffer.isView(value) ? value.constructor.name : typeof value;
}
