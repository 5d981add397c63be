/** Writes pcapng (draft-ietf-opsawg-pcapng): the blocks that a capture of Ethernet frames needs. */

const BLOCK = { SECTION: 0x0a0d0d0a, INTERFACE: 1, PACKET: 6 } as const;
const OPTION = { COMMENT: 1, USER_APPLICATION: 4, IF_NAME: 2, IF_TSRESOL: 9, PACKET_FLAGS: 2 } as const;
const LINKTYPE_ETHERNET = 1;
const NANOSECONDS = 9;
const FIRST_BUFFER_BYTES = 65536;

/** Direction of a packet, as in the flags of its block. */
export enum Direction {
  Inbound = 1,
  Outbound = 2,
}

/** Builds blocks in a buffer until `take` returns them. All numbers are little-endian. */
export class PcapngWriter {
  #bytes = new Uint8Array(FIRST_BUFFER_BYTES);
  #view = new DataView(this.#bytes.buffer);
  #at = 0;

  /**
   * Adds the blocks that start a file.
   * @param program writer of the file
   * @param comment comment on the whole capture
   */
  header(program: string, comment: string, interfaceName: string): void {
    this.#block(BLOCK.SECTION, () => {
      this.#u32(0x1a2b3c4d);
      this.#u32(1); // version 1.0: two u16
      this.#u32(0xffffffff); // section length unknown: -1 as u64
      this.#u32(0xffffffff);
      this.#option(OPTION.COMMENT, Buffer.from(comment));
      this.#option(OPTION.USER_APPLICATION, Buffer.from(program));
      this.#u32(0);
    });
    this.#block(BLOCK.INTERFACE, () => {
      this.#u32(LINKTYPE_ETHERNET);
      this.#u32(0); // no snapshot length
      this.#option(OPTION.IF_NAME, Buffer.from(interfaceName));
      this.#option(OPTION.IF_TSRESOL, Uint8Array.of(NANOSECONDS));
      this.#u32(0);
    });
  }

  /** Adds a packet. @param time nanoseconds since 1970 @param comment UTF-8 */
  packet(time: bigint, direction: Direction, frame: Uint8Array, comment?: Uint8Array): void {
    this.#block(BLOCK.PACKET, () => {
      this.#u32(0); // the only interface
      this.#u32(Number(time >> 32n));
      this.#u32(Number(time & 0xffffffffn));
      this.#u32(frame.length);
      this.#u32(frame.length);
      this.#padded(frame);
      this.#option(OPTION.PACKET_FLAGS, Uint8Array.of(direction, 0, 0, 0));
      if (comment) this.#option(OPTION.COMMENT, comment);
      this.#u32(0);
    });
  }

  /** Returns the blocks that were built since the last call. The bytes are valid until the next block is built. */
  take(): Uint8Array {
    const taken = this.#bytes.subarray(0, this.#at);
    this.#at = 0;
    return taken;
  }

  #block(type: number, writeBody: () => void): void {
    const start = this.#at;
    this.#u32(type);
    this.#u32(0);
    writeBody();
    const length = this.#at - start + 4;
    this.#u32(length);
    this.#view.setUint32(start + 4, length, true);
  }

  #option(code: number, value: Uint8Array): void {
    this.#u32(code | (value.length << 16));
    this.#padded(value);
  }

  #u32(value: number): void {
    this.#reserve(4);
    this.#view.setUint32(this.#at, value, true);
    this.#at += 4;
  }

  #padded(bytes: Uint8Array): void {
    const length = (bytes.length + 3) & ~3;
    this.#reserve(length);
    this.#bytes.set(bytes, this.#at);
    this.#bytes.fill(0, this.#at + bytes.length, this.#at + length);
    this.#at += length;
  }

  #reserve(bytes: number): void {
    if (this.#at + bytes <= this.#bytes.length) return;
    const larger = new Uint8Array(2 * (this.#bytes.length + bytes));
    larger.set(this.#bytes);
    this.#bytes = larger;
    this.#view = new DataView(larger.buffer);
  }
}
