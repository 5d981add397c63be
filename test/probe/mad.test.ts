// The datagrams of the probe against the codec of the connection manager: two tables of the same specification.
import { expect, test } from 'vitest';
import { gidBytes, gidText } from '../../src/base/gid.js';
import { withCmaHdr } from '../../src/cm/core/cmahdr.js';
import * as codec from '../../src/cm/core/mad.js';
import {
  cmaHeader,
  decodeMad,
  encodeMad,
  gidOf,
  type Mad,
  type MadName,
  Method,
  madText,
} from '../../src/probe/packet/mad.js';
import { Random } from '../kit/random.js';

/** Names that differ from those of the connection manager's own table. */
const OTHER: Readonly<Record<string, string>> = {
  ...{ subject: 'message', failover: 'failoverAccepted' },
  ...{ retryCount: 'retryCnt', rnrRetryCount: 'rnrRetry' },
};
/** Fields of a REQ that are part of its primary path. */
const PATH = ['localLid', 'remoteLid', 'localGid', 'remoteGid', 'flowLabel', 'trafficClass', 'hopLimit', 'ackTimeout'];

/** Returns the value that the connection manager reads for a field of ours. */
function theirs(message: Record<string, unknown>, name: string): unknown {
  if (PATH.includes(name)) return (message.primary as Record<string, unknown>)[name];
  if (name === 'subject') return message.messageMraed ?? message.messageRejected;
  return message[OTHER[name] ?? name];
}

const NAMES: readonly MadName[] = ['REQ', 'MRA', 'REJ', 'REP', 'RTU', 'DREQ', 'DREP', 'SIDR_REQ', 'SIDR_REP'];

test.each(NAMES)('%s: each field is where the connection manager has it', (name) => {
  const random = new Random(5);
  for (let round = 0; round < 20; round++) {
    // anything is a message
    const noise = Uint8Array.from({ length: 232 }, () => random.below(256));
    const blank = encodeMad(name, {}, { tid: BigInt(random.below(2 ** 32)) });
    blank.set(noise, 24);
    const read = decodeMad(blank);
    const message = codec.parseMad(blank) as unknown as Record<string, unknown>;
    expect(message.tid).toBe(read?.header.tid);
    for (const [field, value] of Object.entries(read?.fields ?? {})) {
      if (field === 'reserved') continue;
      expect([field, theirs(message, field)]).toEqual([field, value]);
    }
    // what was read can be written
    expect(decodeMad(encodeMad(name, read?.fields as never))?.fields).toEqual(read?.fields);
  }
});

test('values that do not fit are refused, and shorter bytes are padded', () => {
  expect(() => encodeMad('REQ', { startingPsn: 2 ** 24 })).toThrow(/^startingPsn: the field has 24 bits$/);
  expect(() => encodeMad('REP', { targetAckDelay: -1 })).toThrow(/^targetAckDelay: /);
  const mad = decodeMad(encodeMad('RTU', { privateData: Uint8Array.of(1, 2) }));
  expect(mad?.name === 'RTU' && [...mad.fields.privateData.subarray(0, 4)]).toEqual([1, 2, 0, 0]);
});

test('bytes of another kind are no message of the connection manager', () => {
  const whole = encodeMad('DREQ', {});
  expect(decodeMad(whole.subarray(0, 255))).toBeUndefined();
  expect(decodeMad(encodeMad('DREQ', {}, { managementClass: 4 }))).toBeUndefined();
  expect(decodeMad(encodeMad('DREQ', {}, { attribute: 0x7ff }))).toBeUndefined();
});

test.each([
  ['10.0.0.1', '10.0.0.2'],
  ['fd00::1', 'fd00::2'],
])('the header of rdma_cm has the GID of %s', (source, destination) => {
  const expected = withCmaHdr({ source, destination, sourcePort: 0x8123 }, new Uint8Array(0));
  expect(cmaHeader(source, destination, 0x8123)).toEqual(expected);
  expect(gidOf(source)).toEqual(Uint8Array.from(gidBytes(gidText(source))));
});

test('a message is shown as text', () => {
  const texts = [
    encodeMad('REQ', { localCommId: 0x51, localQpn: 0x11, startingPsn: 7, serviceId: 0x1061d30n }),
    encodeMad('REP', { localCommId: 0x61, remoteCommId: 0x51, localQpn: 0x12, startingPsn: 9 }),
    encodeMad('REJ', { remoteCommId: 0x51, reason: 8 }),
    encodeMad('REJ', { remoteCommId: 0x51, reason: 35 }),
    encodeMad('SIDR_REP', { requestId: 0x51, status: 1, serviceId: 5n }),
    encodeMad('CLASS_PORT_INFO', {}, { method: Method.GET_RESP, status: 12 }),
  ].map((bytes) => madText(decodeMad(bytes) as Mad));
  expect(texts).toEqual([
    'REQ, id 0x51, qp 0x11, psn 7, service 0x1061d30',
    'REP, id 0x61, peer 0x51, qp 0x12, psn 9',
    'REJ, reason 8 (invalid service id), id 0x0, peer 0x51',
    'REJ, reason 35, id 0x0, peer 0x51',
    'SIDR_REP, status 1, id 0x51, service 0x5',
    'response to CLASS_PORT_INFO, status 12',
  ]);
});
