import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { expect, test } from 'vitest';
import { all, netPrivilege, programPrivilege, testIf } from './privileges.js';

testIf(netPrivilege(), 'a private network namespace begins with loopback alone, and lets us make interfaces', () => {
  expect(readdirSync('/sys/class/net')).toContain('lo');
  expect(Object.keys(networkInterfaces())).toContain('lo');
  const [left, right] = [`kit${process.pid}`, `tik${process.pid}`];
  execFileSync('ip', ['link', 'add', left, 'type', 'veth', 'peer', 'name', right]);
  expect(readdirSync('/sys/class/net')).toEqual(expect.arrayContaining([left, right]));
  execFileSync('ip', ['link', 'del', left]);
});

test('the first missing privilege is named', () => {
  const missing = programPrivilege('no-such-program');
  expect(missing).toEqual({ ok: false, reason: 'no-such-program is not installed' });
  expect(programPrivilege('node').ok).toBe(true);
  expect(all({ ok: true, reason: '' }, missing, { ok: false, reason: 'other' })).toBe(missing);
  expect(all()).toEqual({ ok: true, reason: '' });
});
