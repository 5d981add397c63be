// The option `peer` of openDevice: the interface by which a peer is reached.
import { expect, test } from 'vitest';
import { openHostLink } from '../../src/device/chooselink.js';
import { openDevice } from '../../src/index.js';
import { addressTowards } from '../../src/link/peer.js';
import { addonPrivilege, testIf } from '../kit/privileges.js';

test('the kernel’s source address towards a host is returned', async () => {
  expect(await addressTowards('127.47.92.2')).toBe('127.0.0.1');
});

test('an unknown name and an address without a route are refused', async () => {
  await expect(openDevice({ peer: 'no.such.host.invalid' })).rejects.toMatchObject({
    code: 'EHOSTUNREACH',
    syscall: 'getaddrinfo',
    address: 'no.such.host.invalid',
  });
  await expect(addressTowards('0.0.0.0.0')).rejects.toMatchObject({ code: 'EHOSTUNREACH' });
});

testIf(
  addonPrivilege(),
  'the device is on the interface of that address, on loopback with this address alone',
  async () => {
    const { link, notes } = await openHostLink({ kind: 'udp', towards: { peer: 'localhost', from: '127.47.92.1' } });
    expect(link.interface).toMatchObject({ name: 'lo', addresses: ['127.47.92.1'] });
    expect(notes).toEqual(['interface lo, by which localhost is reached']);
    link.close();
  },
);
