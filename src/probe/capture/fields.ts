/** Numbers in bytes of either byte order. */

/** Bytes whose numbers have one byte order. A number beyond their end is a RangeError. */
export class Fields {
  readonly #view: DataView;

  constructor(
    readonly bytes: Uint8Array,
    readonly little: boolean,
  ) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  get length(): number {
    return this.bytes.length;
  }

  u8(at: number): number {
    return this.#view.getUint8(at);
  }

  u16(at: number): number {
    return this.#view.getUint16(at, this.little);
  }

  u32(at: number): number {
    return this.#view.getUint32(at, this.little);
  }

  i64(at: number): bigint {
    return this.#view.getBigInt64(at, this.little);
  }

  slice(at: number, length: number): Uint8Array {
    return this.bytes.slice(at, at + length);
  }

  /** The same bytes from `at` to `end`. */
  part(at: number, end: number): Fields {
    return new Fields(this.bytes.subarray(at, end), this.little);
  }
}

/** Returns the remark about a file that ends in the middle of something. */
export const endsWithin = (what: string, at: number, bytes: number): string =>
  `The file ends in the middle of ${what} at offset ${at}: its last ${bytes} bytes are left out.`;
