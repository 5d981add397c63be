// Packets of datagram rsockets: those of librdmacm's udpong, and whatever else may come.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  decodeHeader,
  decodeIntroduction,
  encodeHeader,
  encodeIntroduction,
  headerBytes,
} from '../../../src/protocols/rsocket/datagram/wire.js';

const bytes = (hex: string) => Buffer.from(hex.replaceAll(' ', ''), 'hex');

/** The login of udpong, 16 bytes, and its answer. */
const LOGIN = '00'.repeat(16);
const IPV4 = {
  login: bytes(`55555555 04 00 10 00 0000001c 0a4d0002 ${LOGIN}`),
  answer: bytes('55555555 04 07 10 00 0000001b 0a4d0003'),
  message: bytes(`04 08 1c06 0a4d0003 ${LOGIN}`),
};
/** librdmacm copies an IPv6 address from four bytes before it, except into the header of a message. */
const IPV6 = {
  login: bytes(`55555555 06 00 1c 00 0000001d 00000000 fd7700000000000000000000 ${LOGIN}`),
  answer: bytes('55555555 06 07 1c 00 0000001c 00000000 fd7700000000000000000000'),
  message: bytes(`06 18 1c06 00000000 fd770000000000000000000000000003 ${LOGIN}`),
};

test('packets of udpong are decoded', () => {
  expect(decodeIntroduction(IPV4.login, 4)).toEqual({ qpNum: 0x1c, message: bytes(LOGIN) });
  expect(decodeIntroduction(IPV4.answer, 4)).toEqual({ qpNum: 0x1b, message: undefined });
  expect(decodeHeader(IPV4.message, 4)).toEqual({ port: 7174, message: bytes(LOGIN) });
  expect(decodeIntroduction(IPV6.login, 6)).toEqual({ qpNum: 0x1d, message: bytes(LOGIN) });
  expect(decodeIntroduction(IPV6.answer, 6)).toEqual({ qpNum: 0x1c, message: undefined });
  expect(decodeHeader(IPV6.message, 6)).toEqual({ port: 7174, message: bytes(LOGIN) });
});

test('packets are encoded as udpong does, with the whole address of IPv6', () => {
  const login = { qpNum: 0x1c, message: bytes(LOGIN) };
  expect(encodeIntroduction('10.77.0.2', login)).toEqual(IPV4.login);
  expect(encodeIntroduction('10.77.0.3', { qpNum: 0x1b, message: undefined })).toEqual(IPV4.answer);
  expect(encodeHeader('10.77.0.3', 7174)).toEqual(IPV4.message.subarray(0, 8));
  expect(encodeHeader('fd77::3', 7174)).toEqual(IPV6.message.subarray(0, 24));
  const answer = encodeIntroduction('fd77::3', { qpNum: 0x1c, message: undefined });
  expect(answer).toEqual(bytes('55555555 06 07 1c 00 0000001c fd770000000000000000000000000003'));
});

test.each([
  ['too short', IPV4.answer.subarray(0, 15)],
  ['longer than a stock receiver takes', Buffer.concat([IPV4.login, Buffer.alloc(2048)])],
  ['another tag', changed(IPV4.login, 0)],
  ['another version', IPV6.login],
  ['another kind', changed(IPV4.login, 5)],
  ['another length', changed(IPV4.login, 6)],
])('%s is no introduction', (_, packet) => {
  expect(decodeIntroduction(packet, 4)).toBeUndefined();
});

test.each([
  ['too short', IPV4.message.subarray(0, 7)],
  ['another version', IPV6.message],
  ['another length', changed(IPV4.message, 1)],
  ['port 0', changed(changed(IPV4.message, 2, 0), 3, 0)],
])('%s is no message', (_, packet) => {
  expect(decodeHeader(packet, 4)).toBeUndefined();
});

test('any bytes are decoded or dropped, and nothing beyond them is read', () => {
  const version = fc.constantFrom<4 | 6>(4, 6);
  const start = fc.constantFrom(...[IPV4, IPV6].flatMap((packets) => Object.values(packets)));
  const packet = fc
    .tuple(start, fc.array(fc.tuple(fc.nat(47), fc.nat(255))), fc.nat(47))
    .map(([from, changes, length]) => {
      const copy = Buffer.from(from);
      for (const [at, value] of changes) if (at < copy.length) copy[at] = value;
      return copy.subarray(0, length);
    });
  fc.assert(
    fc.property(version, packet, (ip, data) => {
      const introduction = decodeIntroduction(data, ip);
      if (introduction?.message !== undefined) expect(introduction.message.length).toBeLessThan(data.length);
      const message = decodeHeader(data, ip);
      if (message !== undefined) expect(message.message.length).toBe(data.length - headerBytes(ip));
    }),
  );
});

function changed(packet: Buffer, at: number, value = 0x7e): Buffer {
  const copy = Buffer.from(packet);
  copy[at] = value;
  return copy;
}
