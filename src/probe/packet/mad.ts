/**
 * Management datagrams of the communication manager (IBTA 12.6 to 12.11, 13.4.3): 24 bytes of header, and a message. A
 * table has each field by its first byte and its first bit, counted from the most significant one. Fields that are not
 * given are zero, and any field can be given any value that fits, so that a datagram can be what no manager sends.
 */
import { ipBytes } from './address.js';
import { numberHex } from './hex.js';

/** Bytes of a management datagram, of its header, and of the header of rdma_cm before private data. */
export const MAD_BYTES = 256;
const HEADER_BYTES = 24;
/** Q_Key of queue pair 1 (IBTA 10.2.5). */
export const GSI_QKEY = 0x8001_0000;

/** A number of at most 32 bits, one of 64 bits, or bytes. */
type Value = number | bigint | Uint8Array;
interface FieldOffset<V extends Value> {
  readonly bits: number;
  read(bytes: Uint8Array): V;
  /** @param value fits into the field */
  write(bytes: Uint8Array, value: V): void;
}
type Table = Readonly<Record<string, FieldOffset<number> | FieldOffset<bigint> | FieldOffset<Uint8Array>>>;
type ValuesOf<T extends Table> = { readonly [K in keyof T]: T[K] extends FieldOffset<infer V> ? V : never };

function number(byte: number, bits: number, bit = 0): FieldOffset<number> {
  const from = 8 * byte + bit;
  return {
    bits,
    read: (bytes) => {
      let value = 0;
      for (let at = from; at < from + bits; at++) value = 2 * value + (((bytes[at >> 3] ?? 0) >> (7 - (at & 7))) & 1);
      return value;
    },
    write: (bytes, value) => {
      for (let at = from + bits - 1, rest = value; at >= from; at--, rest = Math.floor(rest / 2)) {
        const mask = 0x80 >> (at & 7);
        bytes[at >> 3] = ((bytes[at >> 3] ?? 0) & ~mask) | (rest % 2 === 1 ? mask : 0);
      }
    },
  };
}

const viewOf = ({ buffer, byteOffset, length }: Uint8Array) => new DataView(buffer, byteOffset, length);
const wide = (byte: number): FieldOffset<bigint> => ({
  bits: 64,
  read: (bytes) => viewOf(bytes).getBigUint64(byte),
  write: (bytes, value) => viewOf(bytes).setBigUint64(byte, value),
});
const octets = (byte: number, length: number): FieldOffset<Uint8Array> => ({
  bits: 8 * length,
  read: (bytes) => bytes.slice(byte, byte + length),
  write: (bytes, value) => bytes.set(value, byte),
});

const HEADER = {
  baseVersion: number(0, 8),
  managementClass: number(1, 8),
  classVersion: number(2, 8),
  method: number(3, 8),
  status: number(4, 16),
  tid: wide(8),
  attribute: number(16, 16),
  modifier: number(20, 32),
};
const IDS = { localCommId: number(0, 32), remoteCommId: number(4, 32) };

/** The fields of each message. */
const MESSAGES = {
  REQ: {
    localCommId: number(0, 32),
    serviceId: wide(8),
    localCaGuid: wide(16),
    localQkey: number(28, 32),
    localQpn: number(32, 24),
    responderResources: number(35, 8),
    initiatorDepth: number(39, 8),
    remoteResponseTimeout: number(43, 5),
    transport: number(43, 2, 5),
    flowControl: number(43, 1, 7),
    startingPsn: number(44, 24),
    localResponseTimeout: number(47, 5),
    retryCount: number(47, 3, 5),
    pkey: number(48, 16),
    pathMtu: number(50, 4),
    rnrRetryCount: number(50, 3, 5),
    maxCmRetries: number(51, 4),
    localLid: number(52, 16),
    remoteLid: number(54, 16),
    localGid: octets(56, 16),
    remoteGid: octets(72, 16),
    flowLabel: number(88, 20),
    trafficClass: number(92, 8),
    hopLimit: number(93, 8),
    ackTimeout: number(95, 5),
    privateData: octets(140, 92),
  },
  MRA: { ...IDS, subject: number(8, 2), serviceTimeout: number(9, 5) },
  REJ: {
    ...IDS,
    subject: number(8, 2),
    infoLength: number(9, 7),
    reason: number(10, 16),
    info: octets(12, 72),
    privateData: octets(84, 148),
  },
  REP: {
    ...IDS,
    localQkey: number(8, 32),
    localQpn: number(12, 24),
    startingPsn: number(20, 24),
    responderResources: number(24, 8),
    initiatorDepth: number(25, 8),
    targetAckDelay: number(26, 5),
    failover: number(26, 2, 5),
    flowControl: number(26, 1, 7),
    rnrRetryCount: number(27, 3),
    srq: number(27, 1, 3),
    reserved: number(27, 4, 4),
    localCaGuid: wide(28),
    privateData: octets(36, 196),
  },
  RTU: { ...IDS, privateData: octets(8, 224) },
  DREQ: { ...IDS, remoteQpn: number(8, 24), privateData: octets(12, 220) },
  DREP: { ...IDS, privateData: octets(8, 224) },
  SIDR_REQ: { requestId: number(0, 32), pkey: number(4, 16), serviceId: wide(8), privateData: octets(16, 216) },
  SIDR_REP: {
    requestId: number(0, 32),
    status: number(4, 8),
    qpn: number(8, 24),
    serviceId: wide(12),
    qkey: number(20, 32),
    privateData: octets(96, 136),
  },
  CLASS_PORT_INFO: {
    baseVersion: number(0, 8),
    classVersion: number(1, 8),
    capabilities: number(2, 16),
    responseTime: number(7, 5, 3),
  },
} as const;

const ATTRIBUTES: Readonly<Record<MadName, number>> = {
  ...{ CLASS_PORT_INFO: 0x01, REQ: 0x10, MRA: 0x11, REJ: 0x12, REP: 0x13, RTU: 0x14, DREQ: 0x15, DREP: 0x16 },
  ...{ SIDR_REQ: 0x17, SIDR_REP: 0x18 },
};
const NAMES = new Map(Object.entries(ATTRIBUTES).map(([name, id]) => [id, name as MadName]));

/** Name of a message. */
export type MadName = keyof typeof MESSAGES;
/** Fields of a message. */
export type MadFields<N extends MadName> = ValuesOf<(typeof MESSAGES)[N]>;
/** Fields of the header. */
export type MadHeader = ValuesOf<typeof HEADER>;
/** A message with its header. */
export type Mad<N extends MadName = MadName> = {
  readonly [K in N]: { readonly name: K; readonly header: MadHeader; readonly fields: MadFields<K> };
}[N];

/** Methods of management datagrams (IBTA 13.4.5). */
export const Method = { GET: 0x01, SEND: 0x03, GET_RESP: 0x81 } as const;

/** Transport service types of a REQ. */
export const TransportType = { RC: 0, UC: 1, RD: 2 } as const;

/** The message that an MRA or a REJ is about. */
export const MadSubject = { REQ: 0, REP: 1, OTHER: 2 } as const;

/** Returns the bytes of a message. Its header is that of a message of the communication manager, but for `header`. */
export function encodeMad<N extends MadName>(
  name: N,
  fields: Partial<MadFields<N>>,
  header: Partial<MadHeader> = {},
): Uint8Array {
  const bytes = new Uint8Array(MAD_BYTES);
  const usual = { baseVersion: 1, managementClass: 7, classVersion: 2, method: Method.SEND };
  write(HEADER, bytes.subarray(0, HEADER_BYTES), { ...usual, attribute: ATTRIBUTES[name], ...header });
  write(MESSAGES[name], bytes.subarray(HEADER_BYTES), fields as Readonly<Record<string, Value>>);
  return bytes;
}

/** Returns the message of a datagram, or undefined if it is none of the communication manager. */
export function decodeMad(bytes: Uint8Array): Mad | undefined {
  if (bytes.length !== MAD_BYTES) return undefined;
  const header = read(HEADER, bytes);
  const name = NAMES.get(header.attribute);
  if (header.managementClass !== 7 || name === undefined) return undefined;
  return { name, header, fields: read(MESSAGES[name] as Table, bytes.subarray(HEADER_BYTES)) } as Mad;
}

/** Names of the reasons of a REJ that managers give most (IBTA 12.6.7.2). */
const REASONS: Readonly<Record<number, string>> = {
  ...{ 1: 'no queue pair', 3: 'no resources', 4: 'timeout', 6: 'invalid communication id', 8: 'invalid service id' },
  ...{
    9: 'invalid transport',
    10: 'stale connection',
    12: 'invalid GID',
    26: 'invalid path MTU',
    28: 'by the program',
  },
};

/** Returns a message in one line: its name, its ids, and what matters most of it. */
export function madText({ name, header, fields }: Mad): string {
  const parts: string[] = [header.method === Method.GET_RESP ? `response to ${name}` : name];
  const add = (of: string, value: number | bigint | undefined) => {
    if (value !== undefined) parts.push(`${of} ${numberHex(value)}`);
  };
  const all: Readonly<Record<string, Value | undefined>> = fields;
  const of = (field: string) => all[field] as number | undefined;
  const reason = of('reason');
  if (reason !== undefined) parts.push(`reason ${reason}${reason in REASONS ? ` (${REASONS[reason]})` : ''}`);
  if (name === 'SIDR_REP' || header.status !== 0) parts.push(`status ${header.status || of('status')}`);
  add('id', of('localCommId') ?? of('requestId'));
  add('peer', of('remoteCommId'));
  add('qp', of('localQpn') ?? of('remoteQpn'));
  if (of('startingPsn') !== undefined) parts.push(`psn ${of('startingPsn')}`);
  add('service', all.serviceId as bigint | undefined);
  return parts.join(', ');
}

/** Returns the header of rdma_cm, which goes before the private data of REQ and SIDR_REQ (IBTA annex A11). */
export function cmaHeader(from: string, to: string, port: number, version = 0, ipVersion?: number): Uint8Array {
  const family = ipVersion ?? (from.includes(':') ? 6 : 4);
  const bytes = new Uint8Array(36);
  bytes.set([version, family << 4, port >> 8, port & 255]);
  for (const [i, address] of [from, to].entries()) {
    const ip = ipBytes(address);
    bytes.set(ip, 4 + 16 * (i + 1) - ip.length);
  }
  return bytes;
}

/** Returns the GID of an address: IPv4 addresses are mapped (RFC 4291 2.5.5.2). */
export function gidOf(address: string): Uint8Array {
  const ip = ipBytes(address);
  return ip.length === 16 ? ip : Uint8Array.of(...new Uint8Array(10), 255, 255, ...ip);
}

function read<T extends Table>(table: T, bytes: Uint8Array): ValuesOf<T> {
  const values: Record<string, Value> = {};
  for (const [name, place] of Object.entries(table)) values[name] = place.read(bytes);
  return values as ValuesOf<T>;
}

function write(table: Table, bytes: Uint8Array, values: Readonly<Record<string, Value>>): void {
  for (const [name, value] of Object.entries(values)) {
    const { bits, write } = table[name] as FieldOffset<Value>;
    const fits =
      value instanceof Uint8Array ? 8 * value.length <= bits : value >= 0 && BigInt(value) >> BigInt(bits) === 0n;
    if (!fits) throw new RangeError(`${name}: the field has ${bits} bits`);
    write(bytes, value);
  }
}
