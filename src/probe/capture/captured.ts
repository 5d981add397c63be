/** Packets of a capture, in whatever file they are. */

/** A packet of a capture. */
export interface CapturedPacket {
  /** Nanoseconds since 1970. */
  time: bigint;
  /** The frame from its first byte, as far as it was captured. */
  data: Uint8Array;
  /** Bytes on the wire; more than the length of `data` if the capture was truncated. */
  wireLength: number;
  /** From the packet flags of pcapng: 1 = received, 2 = sent, 0 = unknown. */
  direction: 0 | 1 | 2;
  /** What the frame begins with, a LINKTYPE of pcap. Default: 1, Ethernet. */
  linkType?: number;
}

/** A capture, read. */
export interface Capture {
  /** The format of the file. */
  format: 'pcap' | 'pcapng';
  /** The packets in the order of the file. */
  packets: CapturedPacket[];
  /** What of the file could not be read, in sentences: a file may end in the middle of a packet. */
  remarks: string[];
}

/** Fields of a file in its byte order. */
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
