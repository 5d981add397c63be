/** Management datagrams: a 24-byte header and a message (IBTA 13.4.3), 256 bytes in total. */
import { type Layout, readFields, uint, uint64, type Values, writeFields } from './fields.js';
import { ATTRIBUTE, type Fields, LAYOUTS, type Message, type MessageName } from './messages.js';

/** Size of a management datagram in bytes. */
export const MAD_BYTES = 256;
/** Size of its header. */
export const HEADER_BYTES = 24;

/** Layout of the header (IBTA 13.4.2). */
export const HEADER = {
  baseVersion: uint(0, 8),
  managementClass: uint(1, 8),
  classVersion: uint(2, 8),
  method: uint(3, 8),
  status: uint(4, 16),
  classSpecific: uint(6, 16),
  tid: uint64(8),
  attribute: uint(16, 16),
  modifier: uint(20, 32),
};

/** Header fields with fixed values in messages of the communication manager (IBTA 16.7.1). */
export const CONSTANT = { baseVersion: 1, managementClass: 7, classVersion: 2, method: 3 };

/** The part of the header that all messages have in common. */
const COMMON_HEADER = new Uint8Array(HEADER_BYTES);
writeFields(HEADER, new DataView(COMMON_HEADER.buffer), CONSTANT);

const NAME_OF = new Map(Object.entries(ATTRIBUTE).map(([name, id]) => [id, name as MessageName]));

/** Reasons why a datagram is no message of the communication manager, in the order of the checks. */
export const MAD_FAULTS = ['length', 'base_version', 'class', 'class_version', 'method', 'attribute'] as const;
/** The check that a datagram has failed. */
export type MadFault = (typeof MAD_FAULTS)[number];

/** The header of a message. */
export interface MadHeader {
  readonly name: MessageName;
  readonly tid: bigint;
  readonly modifier: number;
  /** The message behind the header, which is not parsed yet. */
  readonly body: DataView;
}

/** Parses the header of a datagram. Never throws. @returns the header, or the check that failed */
export function parseHeader(bytes: Uint8Array): MadHeader | MadFault {
  if (bytes.length !== MAD_BYTES) return 'length';
  const header = new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES);
  const fault = faultOf(header);
  if (fault !== undefined) return fault;
  const name = NAME_OF.get(HEADER.attribute.read(header));
  if (name === undefined) return 'attribute';
  const body = new DataView(bytes.buffer, bytes.byteOffset + HEADER_BYTES, MAD_BYTES - HEADER_BYTES);
  return { name, tid: HEADER.tid.read(header), modifier: HEADER.modifier.read(header), body };
}

/** Parses the message behind a header. Never throws. */
export function parseBody({ name, tid, modifier, body }: MadHeader): Message {
  return Object.assign(readFields<Layout>(LAYOUTS[name], body), { name, tid, modifier }) as unknown as Message;
}

/** Parses a datagram. Never throws. @returns the message, or the check that failed */
export function parseMad(bytes: Uint8Array): Message | MadFault {
  const header = parseHeader(bytes);
  return typeof header === 'string' ? header : parseBody(header);
}

/** Reads the header of a datagram of 24 bytes or more. */
export function readHeader(bytes: Uint8Array): Values<typeof HEADER> {
  return readFields(HEADER, new DataView(bytes.buffer, bytes.byteOffset, bytes.length));
}

/** The content of a message: fields of its layout, and the attribute modifier of the header. */
export type Content<N extends MessageName> = Partial<Fields<N>> & { readonly modifier?: number };

/**
 * Returns the bytes of a message. Fields that no part has are zero.
 * @param parts the content, in as many objects as the caller has it in
 * @throws RangeError when a value does not fit its field
 */
export function encodeMad<N extends MessageName>(name: N, tid: bigint, ...parts: readonly Content<N>[]): Uint8Array {
  const bytes = new Uint8Array(MAD_BYTES);
  bytes.set(COMMON_HEADER);
  const header = new DataView(bytes.buffer);
  writeFields(HEADER, header, { tid, attribute: ATTRIBUTE[name] });
  const body = new DataView(bytes.buffer, HEADER_BYTES);
  for (const part of parts) {
    writeFields<Layout>(LAYOUTS[name], body, part as Values<Layout>);
    if (part.modifier !== undefined) HEADER.modifier.write(header, part.modifier);
  }
  return bytes;
}

function faultOf(header: DataView): MadFault | undefined {
  if (HEADER.baseVersion.read(header) !== CONSTANT.baseVersion) return 'base_version';
  if (HEADER.managementClass.read(header) !== CONSTANT.managementClass) return 'class';
  if (HEADER.classVersion.read(header) !== CONSTANT.classVersion) return 'class_version';
  return HEADER.method.read(header) === CONSTANT.method ? undefined : 'method';
}
