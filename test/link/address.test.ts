import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ipBytes, ipText, isLinkLocal, macBytes, macText, sameIp } from '../../src/base/address.js';

test('IPv6 text is the shortest form of RFC 5952', () => {
  const texts = { '0:0:0:0:0:0:0:0': '::', '0:0:0:0:0:0:0:1': '::1', '1:0:0:0:0:0:0:0': '1::' };
  const more = { '1:0:0:2:0:0:0:3': '1:0:0:2::3', '1:2:3:0:5:6:7:8': '1:2:3:0:5:6:7:8', '2001:0DB8::A': '2001:db8::a' };
  for (const [long, short] of Object.entries({ ...texts, ...more })) expect(ipText(ipBytes(long))).toBe(short);
  // The zeros of 10 are not a group.
  expect(ipText(ipBytes('10:0:0:10:1:1:1:1'))).toBe('10::10:1:1:1:1');
});

test('text of address bytes gives the same bytes again', () => {
  const zeros = fc.constantFrom(0, 0, 1, 0x10, 255);
  const address = fc.oneof(
    fc.uint8Array({ minLength: 4, maxLength: 4 }),
    fc.uint8Array({ minLength: 16, maxLength: 16 }),
    fc.array(zeros, { minLength: 16, maxLength: 16 }).map((bytes) => Uint8Array.from(bytes)),
  );
  fc.assert(
    fc.property(address, (bytes) => {
      expect([...ipBytes(ipText(bytes))]).toEqual([...bytes]);
    }),
  );
});

test('a zone is ignored, an IPv4 ending is read, and a wrong address is refused', () => {
  expect(sameIp('fe80::1%eth0', 'fe80:0::1')).toBe(true);
  expect(sameIp('::ffff:10.0.0.1', '::ffff:a00:1')).toBe(true);
  expect(isLinkLocal(ipBytes('fe80::1'))).toBe(true);
  expect(isLinkLocal(ipBytes('fd00::1'))).toBe(false);
  expect(() => ipBytes('10.0.0.256')).toThrow(/'10\.0\.0\.256' is not an IP address/);
  expect(() => ipText(new Uint8Array(5))).toThrow(/4 or 16 bytes, not 5/);
});

test('MAC addresses are read and written', () => {
  expect(macText(macBytes('02:AB:00:00:00:01'))).toBe('02:ab:00:00:00:01');
  expect(() => macBytes('02:ab')).toThrow(TypeError);
});
