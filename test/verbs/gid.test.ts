// GIDs are IPv6 or IPv4-mapped addresses; a choice among them gives its reason.
import { describe, expect, test } from 'vitest';
import { gidAddress, gidBytes, gidText, gidToHex } from '../../src/base/gid.js';
import { chooseGid, gidTable } from '../../src/verbs/address/gid.js';

describe('GIDs as text and as bytes', () => {
  test.each([
    ['10.0.0.1', '::ffff:10.0.0.1', '00000000000000000000ffff0a000001', '10.0.0.1'],
    ['::ffff:10.0.0.1', '::ffff:10.0.0.1', '00000000000000000000ffff0a000001', '10.0.0.1'],
    ['::ffff:a00:1', '::ffff:10.0.0.1', '00000000000000000000ffff0a000001', '10.0.0.1'],
    ['00000000000000000000ffffc0a80102', '::ffff:192.168.1.2', '00000000000000000000ffffc0a80102', '192.168.1.2'],
    ['fe80::1%eth0', 'fe80::1', 'fe800000000000000000000000000001', 'fe80::1'],
    ['FD00:0:0:1::/64', 'fd00:0:0:1::', 'fd000000000000010000000000000000', 'fd00:0:0:1::'],
    ['2001:db8:0:1:0:0:0:5', '2001:db8:0:1::5', '20010db8000000010000000000000005', '2001:db8:0:1::5'],
    ['1:2:3:4:5:6:7:8', '1:2:3:4:5:6:7:8', '00010002000300040005000600070008', '1:2:3:4:5:6:7:8'],
    ['::', '::', '0'.repeat(32), '::'],
    ['1:0:2:0:3:0:4:0', '1:0:2:0:3:0:4:0', '00010000000200000003000000040000', '1:0:2:0:3:0:4:0'],
  ])('%s', (from, gid, hex, address) => {
    expect(gidText(from)).toBe(gid);
    expect(gidToHex(from)).toBe(hex);
    expect(gidAddress(from)).toBe(address);
    expect(gidBytes(hex)).toEqual(gidBytes(from));
  });

  test('gidBytes returns bytes that the caller may change', () => {
    const before = gidBytes('10.1.2.3');
    before.fill(0);
    expect([gidAddress('10.1.2.3'), gidBytes('10.1.2.3')[15]]).toEqual(['10.1.2.3', 3]);
    // a Buffer's `slice` is no copy
    for (const bytes of [gidBytes('fd00::7'), Buffer.from(gidBytes('fd00::7'))]) {
      expect(gidText(bytes)).toBe('fd00::7');
      bytes[15] = 8;
      expect([gidText(bytes), gidText('fd00::7')]).toEqual(['fd00::8', 'fd00::7']);
      bytes[15] = 7;
      expect(gidText(bytes)).toBe('fd00::7');
    }
  });

  test.each(['', 'eth0', '10.0.0', '10.0.0.256', 'fe80:::1', 'ffff', '10.0.0.1:4791'])('%j is no GID', (text) => {
    expect(() => gidBytes(text)).toThrow(`'${text}' is no GID`);
  });
});

const table = gidTable(['10.0.0.1', '192.168.7.1', 'fd00:1::1', 'fe80::a', 'fd00:2::1']);

test('the GID table has link-local addresses first, then IPv4, then other IPv6', () => {
  expect(table.map(({ index, gid }) => [index, gid])).toEqual([
    [0, 'fe80::a'],
    [1, '::ffff:10.0.0.1'],
    [2, '::ffff:192.168.7.1'],
    [3, 'fd00:1::1'],
    [4, 'fd00:2::1'],
  ]);
  expect(table.map(({ linkLocal }) => linkLocal)).toEqual([true, false, false, false, false]);
});

describe('the choice of a GID', () => {
  test('without a peer is IPv4, else global IPv6, else link-local', () => {
    expect(chooseGid(table)).toMatchObject({ index: 1, reason: expect.stringContaining('first IPv4') });
    expect(chooseGid(gidTable(['fe80::a', 'fd00::1']))).toMatchObject({ index: 1, gid: 'fd00::1' });
    expect(chooseGid(gidTable(['fe80::a']))).toMatchObject({ index: 0, reason: expect.stringContaining('link-local') });
    expect(chooseGid([])).toBeUndefined();
  });

  test('for a peer is the address of its family with the longest common prefix', () => {
    expect(chooseGid(table, '192.168.7.9')).toMatchObject({ index: 2, reason: expect.stringContaining('28 bits') });
    expect(chooseGid(table, '10.200.0.9')).toMatchObject({ index: 1 });
    expect(chooseGid(table, 'fd00:2::9')).toMatchObject({ index: 4 });
  });

  test('is link-local for a link-local peer only', () => {
    expect(chooseGid(table, 'fe80::b')).toMatchObject({ index: 0, reason: expect.stringContaining('link-local') });
    expect(chooseGid(gidTable(['fe80::a']), 'fd00::1')).toBeUndefined();
    expect(chooseGid(gidTable(['10.0.0.1']), 'fe80::b')).toBeUndefined();
  });

  test('is refused without an address of the family', () => {
    expect(chooseGid(gidTable(['10.0.0.1']), 'fd00::1')).toBeUndefined();
  });
});
