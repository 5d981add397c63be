// Private data that carries the size of messages: exact for our own peers, untouched for all others.
import { expect, test } from 'vitest';
import { decodePrivateData, encodePrivateData } from '../../../src/protocols/message/privatedata.js';

const LIMIT = 56;
const bytes = (length: number) => Buffer.from(Array.from({ length }, (_, i) => (i * 7 + 1) & 255));

test.each([0, 1, 39, 40])('%i bytes arrive as they were passed, with the size', (length) => {
  const sent = encodePrivateData(bytes(length), 65536, LIMIT);
  expect([sent.length, Buffer.from(sent).subarray(0, length).equals(bytes(length))]).toEqual([LIMIT, true]);
  expect(decodePrivateData(sent)).toEqual({ privateData: bytes(length), messageBytes: 65536 });
});

test.each([41, 56])('%i bytes leave no room, and are sent unchanged', (length) => {
  const sent = encodePrivateData(bytes(length), 65536, LIMIT);
  expect(Buffer.from(sent).equals(bytes(length))).toBe(true);
  const padded = Buffer.concat([sent, Buffer.alloc(LIMIT - length)]);
  expect(decodePrivateData(padded)).toEqual({ privateData: padded, messageBytes: undefined });
});

test.each([
  ['zeroes', Buffer.alloc(LIMIT)],
  ['nothing', Buffer.alloc(0)],
  ['a trailer at another place', Buffer.concat([encodePrivateData(bytes(5), 64, LIMIT), Buffer.alloc(140)])],
  ['all ones', Buffer.alloc(LIMIT, 255)],
])('%s is data of a stock peer', (_, data) => {
  expect(decodePrivateData(data)).toEqual({ privateData: data, messageBytes: undefined });
});

test('data with one changed byte is data of a stock peer', () => {
  const sent = Buffer.from(encodePrivateData(bytes(8), 16384, LIMIT));
  for (let at = 0; at < LIMIT; at++) {
    const changed = Buffer.from(sent);
    changed.writeUInt8(changed.readUInt8(at) ^ 1, at);
    expect(decodePrivateData(changed).messageBytes).toBeUndefined();
  }
});
