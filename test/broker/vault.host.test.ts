// The sockets that outlive the broker. Each test looks at the file descriptors that it gets back.
import { fstatSync } from 'node:fs';
import { afterEach, beforeEach, expect } from 'vitest';
import { Vault } from '../../src/broker/vault.js';
import { native } from '../../src/native.js';
import { addonPrivilege, testIf } from '../kit/privileges.js';

interface Description {
  readonly name: string;
}

let fd: number;
beforeEach(() => {
  fd = native().unix.queue();
});
afterEach(() => native().closeFd(fd));

const openVault = () => new Vault<Description>(native().dupFd(fd));
const descriptors = (count: number) => Array.from({ length: count }, () => native().eventfdOpen());
const entriesOf = (fds: readonly number[], name: string) =>
  fds.map((each, i) => ({ fd: each, is: { name: `${name}${i}` } }));
/** Whether two file descriptors are duplicates: an eventfd that is signalled by one is readable by the other. */
const inode = (each: number) => fstatSync(each).ino;
const close = (fds: readonly number[]) => {
  for (const each of fds) native().closeFd(each);
};

testIf(addonPrivilege(), 'a vault returns the sockets of its last state, as often as it is read', () => {
  const vault = openVault();
  const [first, second] = [descriptors(2), descriptors(600)];
  expect(vault.write(entriesOf(first, 'old'))).toBe(0);
  expect(vault.write(entriesOf(second, 'new'))).toBe(0);
  for (let k = 0; k < 2; k++) {
    const other = openVault();
    const read = other.read();
    expect(read.map(({ is }) => is.name)).toEqual(second.map((_, i) => `new${i}`));
    expect(new Set(read.map((entry) => entry.fd)).size).toBe(600);
    expect(inode(read[599]?.fd as number)).toBe(inode(second[599] as number));
    close(read.map((entry) => entry.fd));
    other.close();
  }
  close([...first, ...second]);
  vault.close();
});

testIf(addonPrivilege(), 'a state that was not written to its end is left out, and the one before it is whole', () => {
  const vault = openVault();
  const fds = descriptors(3);
  vault.write(entriesOf(fds, 'whole'));
  const part = { generation: 2, part: 0, parts: 2, entries: [{ name: 'part' }] };
  native().unix.send(fd, Buffer.from(JSON.stringify(part)), [fds[0] as number]);
  const read = openVault().read();
  expect(read.map(({ is }) => is.name)).toEqual(['whole0', 'whole1', 'whole2']);
  close([...fds, ...read.map((entry) => entry.fd)]);
  vault.close();
});

testIf(addonPrivilege(), 'a vault that was killed while it was read has each socket once', () => {
  const vault = openVault();
  const fds = descriptors(600);
  vault.write(entriesOf(fds, 'is'));
  // the first message was copied to the end, and not yet removed from the head
  const head = native().unix.receive(fd, true);
  if (typeof head !== 'object') throw new Error('the vault is empty');
  native().unix.send(fd, head.bytes, head.fds);
  const read = openVault().read();
  expect(read.map(({ is }) => is.name)).toEqual(fds.map((_, i) => `is${i}`));
  close([...fds, ...head.fds, ...read.map((entry) => entry.fd)]);
  vault.close();
});

testIf(addonPrivilege(), 'a vault reads what is no state of it as none', () => {
  const vault = openVault();
  for (const text of ['', '[', 'null', '{}', '{"generation":1,"part":0,"parts":1,"entries":7}'])
    native().unix.send(fd, Buffer.from(text), []);
  expect(vault.read()).toEqual([]);
  const fds = descriptors(1);
  expect(vault.write(entriesOf(fds, 'is'))).toBe(0);
  expect(vault.read().map(({ is }) => is.name)).toEqual(['is0']);
  close(fds);
  vault.close();
});
