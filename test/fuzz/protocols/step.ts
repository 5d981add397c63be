/** The next step of a hostile end, as the bytes of an input. */

export enum Act {
  SEND,
  SEND_WITH_IMM,
  WRITE,
  WRITE_WITH_IMM,
  READ,
  /** Ends the connection; the next one has other private data. */
  LEAVE,
  /** Begins the next connection, with the payload as private data. */
  MEET,
}

export interface Step {
  readonly act: Act;
  /** Immediate data, 32 bits. */
  readonly imm: number;
  /** Remote address: from the start of the memory that the other end has announced, or from address 0. */
  readonly addr: bigint;
  readonly isAbsolute: boolean;
  /** Bytes of a READ, or of a WRITE whose payload is zeroes. */
  readonly bytes: number;
  readonly payload: Uint8Array;
}

const HEADER_BYTES = 17;

export function encodeStep({ act, imm = 0, addr = 0n, isAbsolute = false, bytes = 0, payload }: PartialStep): Buffer {
  const data = payload ?? new Uint8Array(0);
  const input = Buffer.alloc(HEADER_BYTES + data.length);
  input[0] = act;
  input.writeUInt32BE(imm >>> 0, 1);
  input.writeBigUInt64BE(BigInt.asUintN(64, addr), 5);
  input[13] = isAbsolute ? 1 : 0;
  input.writeUIntBE(bytes % 2 ** 24, 14, 3);
  input.set(data, HEADER_BYTES);
  return input;
}

export type PartialStep = Pick<Step, 'act'> & Partial<Step>;

export function decodeStep(input: Uint8Array): Step {
  const bytes = Buffer.from(input.buffer, input.byteOffset, input.length);
  return {
    act: bytes[0] as Act,
    imm: bytes.readUInt32BE(1),
    addr: bytes.readBigUInt64BE(5),
    isAbsolute: bytes[13] === 1,
    bytes: bytes.readUIntBE(14, 3),
    payload: bytes.subarray(HEADER_BYTES),
  };
}
