/**
 * Message layouts as tables: one row for each field, with its byte offset and its bit offset from the most significant
 * bit, as in the specification. All numbers are big-endian.
 */
import { outOfRange } from '../../errors.js';

/** One field of a layout. */
export interface Field<V> {
  readonly bytes: number;
  read(at: DataView): V;
  /** @throws RangeError when the value does not fit */
  write(at: DataView, value: V): void;
}

/** A field of any type. */
interface AnyField {
  readonly bytes: number;
  read(at: DataView): unknown;
  write(at: DataView, value: never): void;
}

/** Fields of a message by name. */
export type Layout = Readonly<Record<string, AnyField>>;

/** The values of all fields of a layout. */
export type Values<L extends Layout> = {
  readonly [K in keyof L]: L[K] extends Field<infer V> ? V : never;
};

/** An unsigned number of `width` bits, at most 32, that begins `bit` bits into a byte. */
export function uint(byte: number, width: number, bit = 0): Field<number> {
  const { bytes, read, write } =
    (bit === 0 && aligned(byte, width)) || within(byte, width, bit) || bits(byte, width, bit);
  const limit = 2 ** width;
  return {
    bytes,
    read,
    write(at, value) {
      if (!Number.isInteger(value) || value < 0 || value >= limit)
        throw outOfRange(`${value} at byte ${byte}: the field has ${width} bits`);
      write(at, value);
    },
  };
}

/** A number of one to four whole bytes. */
function aligned(byte: number, width: number): Field<number> | undefined {
  const bytes = byte + width / 8;
  switch (width) {
    case 8:
      return { bytes, read: (at) => at.getUint8(byte), write: (at, value) => at.setUint8(byte, value) };
    case 16:
      return { bytes, read: (at) => at.getUint16(byte), write: (at, value) => at.setUint16(byte, value) };
    case 24:
      return {
        bytes,
        read: (at) => (at.getUint16(byte) << 8) | at.getUint8(byte + 2),
        write: (at, value) => {
          at.setUint16(byte, value >> 8);
          at.setUint8(byte + 2, value);
        },
      };
    case 32:
      return { bytes, read: (at) => at.getUint32(byte), write: (at, value) => at.setUint32(byte, value) };
    default:
      return undefined;
  }
}

/** Bits of one byte. */
function within(byte: number, width: number, bit: number): Field<number> | undefined {
  const shift = 8 - bit - width;
  if (shift < 0) return undefined;
  const mask = 2 ** width - 1;
  return {
    bytes: byte + 1,
    read: (at) => (at.getUint8(byte) >> shift) & mask,
    write: (at, value) => at.setUint8(byte, (at.getUint8(byte) & ~(mask << shift)) | (value << shift)),
  };
}

/** Any number of bits, up to five bytes: more than bit operations can handle, but doubles are exact up to 53 bits. */
function bits(byte: number, width: number, bit: number): Field<number> {
  const bytes = Math.ceil((bit + width) / 8);
  const unit = 2 ** (8 * bytes - bit - width);
  const all = (at: DataView) => {
    let value = 0;
    for (let i = 0; i < bytes; i++) value = value * 256 + at.getUint8(byte + i);
    return value;
  };
  const read = (at: DataView) => Math.floor(all(at) / unit) % 2 ** width;
  return {
    bytes: byte + bytes,
    read,
    write(at, value) {
      let rest = all(at) + (value - read(at)) * unit;
      for (let i = bytes - 1; i >= 0; i--) {
        at.setUint8(byte + i, rest % 256);
        rest = Math.floor(rest / 256);
      }
    },
  };
}

/** An unsigned 64-bit number. */
export function uint64(byte: number): Field<bigint> {
  return {
    bytes: byte + 8,
    read: (at) => at.getBigUint64(byte),
    write(at, value) {
      if (value < 0n || value >> 64n !== 0n) throw outOfRange(`${value} at byte ${byte}: the field has 64 bits`);
      at.setBigUint64(byte, value);
    },
  };
}

/** A field of bytes. */
export interface Octets extends Field<Uint8Array> {
  readonly length: number;
}

/** A field of bytes. A shorter value is padded with zeroes. */
export function octets(byte: number, length: number): Octets {
  return {
    length,
    bytes: byte + length,
    read: (at) => new Uint8Array(at.buffer, at.byteOffset + byte, length).slice(),
    write(at, value) {
      if (value.length > length)
        throw outOfRange(`${value.length} bytes at byte ${byte}: the field has ${length} bytes`);
      const field = new Uint8Array(at.buffer, at.byteOffset + byte, length);
      field.fill(0);
      field.set(value);
    },
  };
}

/** A layout inside another layout. */
export function nested<L extends Layout>(byte: number, layout: L): Field<Values<L>> {
  const inner = (at: DataView) => new DataView(at.buffer, at.byteOffset + byte);
  return {
    bytes: byte + extent(layout),
    read: (at) => readFields(layout, inner(at)),
    write: (at, value) => writeFields(layout, inner(at), value),
  };
}

/** Returns the number of bytes from the start of a layout to the end of its last field. */
export function extent(layout: Layout): number {
  return Math.max(...Object.values(layout).map(({ bytes }) => bytes));
}

/** Reads all fields of a layout. */
export function readFields<L extends Layout>(layout: L, at: DataView): Values<L> {
  const values = blankOf(layout);
  for (const name in layout) values[name] = (layout[name] as AnyField).read(at);
  return values as Values<L>;
}

const blanks = new WeakMap<Layout, Readonly<Record<string, unknown>>>();

/**
 * Returns an object that has the fields of a layout already. V8 makes a hash table of one that gets more than a dozen
 * by their names one after the other, which takes twice the time; JSON.parse makes an ordinary object.
 */
function blankOf(layout: Layout): Record<string, unknown> {
  let blank = blanks.get(layout);
  if (blank === undefined) {
    blank = JSON.parse(JSON.stringify(Object.fromEntries(Object.keys(layout).map((name) => [name, null]))));
    blanks.set(layout, blank as Record<string, unknown>);
  }
  return { ...blank };
}

/** Writes the fields that `values` contains; those of other names are ignored. @throws RangeError, with the name */
export function writeFields<L extends Layout>(layout: L, at: DataView, values: Partial<Values<L>>): void {
  for (const name in values) {
    const value = values[name];
    const field: AnyField | undefined = layout[name];
    if (value === undefined || field === undefined) continue;
    try {
      field.write(at, value as never);
    } catch (cause) {
      throw outOfRange(`${name}: ${(cause as Error).message}`, { cause });
    }
  }
}
