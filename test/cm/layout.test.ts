/** Byte offset and bit mask of every field of every message, from the tables of IBTA 12.6 to 12.11. */
import { expect, describe as group, test } from 'vitest';
import { encodeMad, MAD_BYTES, parseMad } from '../../src/cm/core/mad.js';
import { ATTRIBUTE, LAYOUTS, type Message, type MessageName, privateDataBytes } from '../../src/cm/core/messages.js';
import * as mads from './mads.js';

/** A field, its byte offset behind the MAD header, and its bytes with all bits set. */
type Row = readonly [field: string, byte: number, bits: string];

const bytes = (n: number) => 'ff'.repeat(n);

/** One of the two paths of a REQ, at byte `at`. */
const path = (name: string, at: number): Row[] => [
  [`${name}.localLid`, at, bytes(2)],
  [`${name}.remoteLid`, at + 2, bytes(2)],
  [`${name}.localGid`, at + 4, bytes(16)],
  [`${name}.remoteGid`, at + 20, bytes(16)],
  [`${name}.flowLabel`, at + 36, 'fffff0'],
  [`${name}.packetRate`, at + 39, '3f'],
  [`${name}.trafficClass`, at + 40, 'ff'],
  [`${name}.hopLimit`, at + 41, 'ff'],
  [`${name}.sl`, at + 42, 'f0'],
  [`${name}.subnetLocal`, at + 42, '08'],
  [`${name}.ackTimeout`, at + 43, 'f8'],
];

const ids: Row[] = [
  ['localCommId', 0, bytes(4)],
  ['remoteCommId', 4, bytes(4)],
];

const PLACES: Readonly<Record<MessageName, readonly Row[]>> = {
  REQ: [
    ['localCommId', 0, bytes(4)],
    ['vendorId', 5, bytes(3)],
    ['serviceId', 8, bytes(8)],
    ['localCaGuid', 16, bytes(8)],
    ['localQkey', 28, bytes(4)],
    ['localQpn', 32, bytes(3)],
    ['responderResources', 35, 'ff'],
    ['localEecn', 36, bytes(3)],
    ['initiatorDepth', 39, 'ff'],
    ['remoteEecn', 40, bytes(3)],
    ['remoteResponseTimeout', 43, 'f8'],
    ['transport', 43, '06'],
    ['flowControl', 43, '01'],
    ['startingPsn', 44, bytes(3)],
    ['localResponseTimeout', 47, 'f8'],
    ['retryCnt', 47, '07'],
    ['pkey', 48, bytes(2)],
    ['pathMtu', 50, 'f0'],
    ['rdcExists', 50, '08'],
    ['rnrRetry', 50, '07'],
    ['maxCmRetries', 51, 'f0'],
    ['srq', 51, '08'],
    ['extendedTransport', 51, '07'],
    ...path('primary', 52),
    ...path('alternate', 96),
    ['privateData', 140, bytes(92)],
  ],
  MRA: [...ids, ['messageMraed', 8, 'c0'], ['serviceTimeout', 9, 'f8'], ['privateData', 10, bytes(222)]],
  REJ: [
    ...ids,
    ['messageRejected', 8, 'c0'],
    ['infoLength', 9, 'fe'],
    ['reason', 10, bytes(2)],
    ['info', 12, bytes(72)],
    ['privateData', 84, bytes(148)],
  ],
  REP: [
    ...ids,
    ['localQkey', 8, bytes(4)],
    ['localQpn', 12, bytes(3)],
    ['vendorIdHigh', 15, 'ff'],
    ['localEecn', 16, bytes(3)],
    ['vendorIdMiddle', 19, 'ff'],
    ['startingPsn', 20, bytes(3)],
    ['vendorIdLow', 23, 'ff'],
    ['responderResources', 24, 'ff'],
    ['initiatorDepth', 25, 'ff'],
    ['targetAckDelay', 26, 'f8'],
    ['failoverAccepted', 26, '06'],
    ['flowControl', 26, '01'],
    ['rnrRetry', 27, 'e0'],
    ['srq', 27, '10'],
    ['localCaGuid', 28, bytes(8)],
    ['privateData', 36, bytes(196)],
  ],
  RTU: [...ids, ['privateData', 8, bytes(224)]],
  DREQ: [...ids, ['remoteQpn', 8, bytes(3)], ['privateData', 12, bytes(220)]],
  DREP: [...ids, ['privateData', 8, bytes(224)]],
  LAP: [
    ...ids,
    ['remoteQpn', 12, bytes(3)],
    ['remoteResponseTimeout', 15, 'f8'],
    ['localLid', 20, bytes(2)],
    ['remoteLid', 22, bytes(2)],
    ['localGid', 24, bytes(16)],
    ['remoteGid', 40, bytes(16)],
    ['flowLabel', 56, 'fffff0'],
    ['trafficClass', 59, 'ff'],
    ['hopLimit', 60, 'ff'],
    ['packetRate', 61, '3f'],
    ['sl', 62, 'f0'],
    ['subnetLocal', 62, '08'],
    ['ackTimeout', 63, 'f8'],
    ['privateData', 64, bytes(168)],
  ],
  APR: [...ids, ['infoLength', 8, 'ff'], ['status', 9, 'ff'], ['info', 12, bytes(72)], ['privateData', 84, bytes(148)]],
  SIDR_REQ: [
    ['requestId', 0, bytes(4)],
    ['pkey', 4, bytes(2)],
    ['serviceId', 8, bytes(8)],
    ['privateData', 16, bytes(216)],
  ],
  SIDR_REP: [
    ['requestId', 0, bytes(4)],
    ['status', 4, 'ff'],
    ['infoLength', 5, 'ff'],
    ['vendorIdHigh', 6, bytes(2)],
    ['qpn', 8, bytes(3)],
    ['vendorIdLow', 11, 'ff'],
    ['serviceId', 12, bytes(8)],
    ['qkey', 20, bytes(4)],
    ['info', 24, bytes(72)],
    ['privateData', 96, bytes(136)],
  ],
};

const NAMES = Object.keys(PLACES) as MessageName[];
const hex = (data: Uint8Array) => Buffer.from(data).toString('hex');

/** A message body in which only these bits are set. */
function body([, at, bits]: Row): string {
  return '00'.repeat(at) + bits + '00'.repeat(232 - at - bits.length / 2);
}

function partOf(of: object, name: string): unknown {
  return name.split('.').reduce((value, key) => (value as Record<string, unknown>)[key], of as unknown);
}

/** The same fields with one change. */
function changed(of: object, name: string, value: unknown): object {
  const [first = '', ...rest] = name.split('.');
  const inner = (of as Record<string, unknown>)[first];
  return { ...of, [first]: rest.length > 0 ? changed(inner as object, rest.join('.'), value) : value };
}

group.each(NAMES)('%s', (name) => {
  test('the table above has all fields of the message, and none overlap', () => {
    const names = PLACES[name].map(([field]) => field.split('.')[0]);
    expect(new Set(names)).toEqual(new Set(Object.keys(LAYOUTS[name])));
    const taken = PLACES[name].map((row) => BigInt(`0x${body(row)}`));
    expect(taken.reduce((sum, bits) => sum + bits)).toBe(taken.reduce((all, bits) => all | bits));
  });

  test.each(PLACES[name].map((row) => [row[0], row] as const))('%s', (field, row) => {
    const bytes = new mads.Mad(ATTRIBUTE[name], 5n).put(0, Buffer.from(body(row), 'hex')).bytes;
    const full = parseMad(bytes) as object;
    const empty = parseMad(encodeMad(name, 5n)) as Message;
    const value = partOf(full, field);
    // no other field is read from these bits
    expect(changed(empty, field, value)).toEqual(full);
    expect(value).not.toEqual(partOf(empty, field));
    // and no other bits are written
    expect(hex(encodeMad(name, 5n, changed(empty, field, value) as typeof empty))).toBe(hex(bytes));
  });

  test('private data ends with the datagram', () => {
    const [, at = 0] = PLACES[name].find(([field]) => field === 'privateData') ?? [];
    expect(at + privateDataBytes(name)).toBe(MAD_BYTES - 24);
  });
});

group('the header', () => {
  test('the header has the transaction id, the attribute and the modifier', () => {
    const bytes = encodeMad('RTU', 0x0102_0304_0506_0708n, { modifier: 0x0a0b0c0d });
    expect(hex(bytes.subarray(0, 24))).toBe('01070203' + '00000000' + '0102030405060708' + '00140000' + '0a0b0c0d');
    expect(parseMad(bytes)).toMatchObject({ name: 'RTU', tid: 0x0102_0304_0506_0708n, modifier: 0x0a0b0c0d });
  });

  test.each([
    ['length', (b: Uint8Array) => b.subarray(0, 255)],
    ['length', (b: Uint8Array) => Uint8Array.from([...b, 0])],
    ['length', () => new Uint8Array(0)],
    ['base_version', (b: Uint8Array) => b.fill(2, 0, 1)],
    ['class', (b: Uint8Array) => b.fill(3, 1, 2)],
    ['class_version', (b: Uint8Array) => b.fill(1, 2, 3)],
    ['method', (b: Uint8Array) => b.fill(1, 3, 4)],
    ['method', (b: Uint8Array) => b.fill(0x83, 3, 4)],
    ['attribute', (b: Uint8Array) => b.fill(1, 17, 18)],
    ['attribute', (b: Uint8Array) => b.fill(1, 16, 17)],
  ] as const)('a datagram that is no message is refused with the reason: %s', (fault, damage) => {
    expect(parseMad(damage(mads.req()))).toBe(fault);
  });
});

test('a value that does not fit its field is refused by the field’s name', () => {
  const write = (fields: object) => () => encodeMad('REQ', 0n, fields);
  expect(write({ retryCnt: 8 })).toThrow('retryCnt: 8 at byte 47: the field has 3 bits');
  expect(write({ startingPsn: 0x1000000 })).toThrow('startingPsn');
  expect(write({ localQpn: -1 })).toThrow(RangeError);
  expect(write({ serviceId: 1n << 64n })).toThrow('64 bits');
  expect(write({ privateData: new Uint8Array(93) })).toThrow(
    'privateData: 93 bytes at byte 140: the field has 92 bytes',
  );
});

test('the second encoder and ours agree on whole messages', () => {
  for (const bytes of [
    mads.req({ privateData: [1, 2, 3], transport: 1 }),
    mads.mra({ tid: 1n, id: 2, remote: 3, subject: 1, timeout: 24 }),
    mads.rej({ tid: 1n, id: 2, remote: 3, subject: 2, reason: 4, info: [1, 2], privateData: [9] }),
    mads.rep({ tid: 1n, id: 2, remote: 3 }),
    mads.rtu({ tid: 1n, id: 2, remote: 3 }),
    mads.dreq({ tid: 1n, id: 2, remote: 3, qpn: 4 }),
    mads.drep({ tid: 1n, id: 2, remote: 3 }),
    mads.sidrReq({ privateData: [7] }),
    mads.sidrRep({ tid: 1n, id: 2, status: 0, qpn: 3, qkey: 0x1234567, port: 5 }),
  ]) {
    const parsed = parseMad(bytes);
    if (typeof parsed === 'string') throw new Error(parsed);
    expect(hex(encodeMad(parsed.name, parsed.tid, parsed))).toBe(hex(bytes));
  }
  expect(parseMad(mads.rej({ tid: 1n, id: 2, remote: 3, subject: 2, reason: 4, info: [1, 2] }))).toMatchObject({
    messageRejected: 2,
    infoLength: 2,
    reason: 4,
  });
});
