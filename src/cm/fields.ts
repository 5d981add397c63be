/**
 * Layouts as tables: a message is a row for each field, with its place as the specification counts it - byte, and bit from
 * the most significant. All numbers are big-endian.
 */

/** One field of a layout. */
export interface Field<V> {
  readonly bytes: number;
  read(at: DataView): V;
  /** @throws RangeError when the value does not fit */
  write(at: DataView, value: V): void;
}

/** A field whatever its values are. */
interface AnyField {
  readonly bytes: number;
  read(at: DataView): unknown;
  write(at: DataView, value: never): void;
}

export type Layout = Readonly<Record<string, AnyField>>;

/** The values of all fields of a layout. */
export type Values<L extends Layout> = {
  readonly [K in keyof L]: L[K] extends Field<infer V> ? V : never;
};

/** An unsigned number of `width` bits, 32 at the most, that begins `bit` bits into a byte. */
export function uint(byte: number, width: number, bit = 0): Field<number> {
  const bytes = Math.ceil((bit + width) / 8);
  const unit = 2 ** (8 * bytes - bit - width);
  const limit = 2 ** width;
  // Five bytes may be touched, more than bit operations can take; doubles are exact up to 53 bits.
  const all = (at: DataView) => {
    let value = 0;
    for (let i = 0; i < bytes; i++) value = value * 256 + at.getUint8(byte + i);
    return value;
  };
  const read = (at: DataView) => Math.floor(all(at) / unit) % limit;
  return {
    bytes: byte + bytes,
    read,
    write(at, value) {
      if (!Number.isInteger(value) || value < 0 || value >= limit)
        throw new RangeError(`${value} at byte ${byte}: the field has ${width} bits`);
      let rest = all(at) + (value - read(at)) * unit;
      for (let i = bytes - 1; i >= 0; i--) {
        at.setUint8(byte + i, rest % 256);
        rest = Math.floor(rest / 256);
      }
    },
  };
}

export function uint64(byte: number): Field<bigint> {
  return {
    bytes: byte + 8,
    read: (at) => at.getBigUint64(byte),
    write(at, value) {
      if (value < 0n || value >> 64n !== 0n) throw new RangeError(`${value} at byte ${byte}: the field has 64 bits`);
      at.setBigUint64(byte, value);
    },
  };
}

export interface Octets extends Field<Uint8Array> {
  readonly length: number;
}

/** Bytes as they are. What is written may be shorter; zeroes follow. */
export function octets(byte: number, length: number): Octets {
  return {
    length,
    bytes: byte + length,
    read: (at) => new Uint8Array(at.buffer, at.byteOffset + byte, length).slice(),
    write(at, value) {
      if (value.length > length)
        throw new RangeError(`${value.length} bytes at byte ${byte}: there is room for ${length}`);
      const field = new Uint8Array(at.buffer, at.byteOffset + byte, length);
      field.fill(0);
      field.set(value);
    },
  };
}

/** A layout inside another. */
export function nested<L extends Layout>(byte: number, layout: L): Field<Values<L>> {
  const inner = (at: DataView) => new DataView(at.buffer, at.byteOffset + byte);
  return {
    bytes: byte + extent(layout),
    read: (at) => readFields(layout, inner(at)),
    write: (at, value) => writeFields(layout, inner(at), value),
  };
}

/** Bytes from the beginning of a layout to the end of its last field. */
export function extent(layout: Layout): number {
  return Math.max(...Object.values(layout).map(({ bytes }) => bytes));
}

export function readFields<L extends Layout>(layout: L, at: DataView): Values<L> {
  const values: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(layout)) values[name] = field.read(at);
  return values as Values<L>;
}

/** Writes the fields that `values` has. @throws RangeError naming the field */
export function writeFields<L extends Layout>(layout: L, at: DataView, values: Partial<Values<L>>): void {
  for (const [name, value] of Object.entries(values)) {
    const field = layout[name];
    if (field === undefined || value === undefined) continue;
    try {
      field.write(at, value as never);
    } catch (cause) {
      throw new RangeError(`${name}: ${(cause as Error).message}`, { cause });
    }
  }
}
