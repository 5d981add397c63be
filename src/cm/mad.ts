/** Management datagrams: 24 bytes of header in front of every message (IBTA 13.4.3), 256 bytes in all. */
import { type Layout, readFields, uint, uint64, type Values, writeFields } from './fields.js';
import { ATTRIBUTE, type Fields, LAYOUTS, type Message, type MessageName } from './messages.js';

/** Bytes of a management datagram, always. */
export const MAD_BYTES = 256;
const HEADER_BYTES = 24;

const HEADER = {
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

/** What is fixed in the header of a communication manager's message (IBTA 16.7.1). */
const CONSTANT = { baseVersion: 1, managementClass: 7, classVersion: 2, method: 3 };

const NAMES = new Map(Object.entries(ATTRIBUTE).map(([name, id]) => [id, name as MessageName]));

/** Why a datagram is no message of the communication manager, in the order in which it is looked at. */
export const MAD_FAULTS = ['length', 'base_version', 'class', 'class_version', 'method', 'attribute'] as const;
export type MadFault = (typeof MAD_FAULTS)[number];

/** Parses a datagram: a message, or what is wrong with it. Never throws. */
export function parseMad(bytes: Uint8Array): Message | MadFault {
  if (bytes.length !== MAD_BYTES) return 'length';
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const header = readFields(HEADER, view);
  const fault = faultOf(header);
  if (fault !== undefined) return fault;
  const name = NAMES.get(header.attribute);
  if (name === undefined) return 'attribute';
  const fields = readFields(LAYOUTS[name], new DataView(bytes.buffer, bytes.byteOffset + HEADER_BYTES));
  return { name, tid: header.tid, modifier: header.modifier, ...fields } as Message;
}

/** A message with the fields named; all others are zero. */
export function message<N extends MessageName>(name: N, tid: bigint, fields: Partial<Fields<N>>): Message<N> {
  return parseMad(encodeMad({ name, tid, modifier: 0, ...fields })) as unknown as Message<N>;
}

/** @throws RangeError when a value does not fit its field */
export function encodeMad<N extends MessageName>(
  of: { readonly name: N; readonly tid: bigint; readonly modifier: number } & Partial<Fields<N>>,
): Uint8Array {
  const { name, tid, modifier, ...fields } = of;
  const bytes = new Uint8Array(MAD_BYTES);
  writeFields(HEADER, new DataView(bytes.buffer), { ...CONSTANT, tid, attribute: ATTRIBUTE[name], modifier });
  writeFields<Layout>(LAYOUTS[name], new DataView(bytes.buffer, HEADER_BYTES), fields as Values<Layout>);
  return bytes;
}

function faultOf(header: Values<typeof HEADER>): MadFault | undefined {
  if (header.baseVersion !== CONSTANT.baseVersion) return 'base_version';
  if (header.managementClass !== CONSTANT.managementClass) return 'class';
  if (header.classVersion !== CONSTANT.classVersion) return 'class_version';
  return header.method === CONSTANT.method ? undefined : 'method';
}
