/** The privileges that tests need. Tests without their privilege are skipped with the reason. */
import { describe, test } from 'vitest';
import { xdpUnavailable } from '../../src/device/chooselink.js';
import { native } from '../../src/native.js';
import { all, netPrivilege, type Privilege } from './needs.js';

export { all, netPrivilege, type Privilege, programPrivilege } from './needs.js';

/**
 * Returns whether XDP programs can be attached in the tests' network namespace, with libbpf and our program present.
 */
export function xdpPrivilege(): Privilege {
  const reason = xdpUnavailable();
  return all(netPrivilege(), { ok: reason === undefined, reason: reason ?? '' });
}

/** Returns whether the native addon can be loaded, which the links of the kernel need. */
export function addonPrivilege(): Privilege {
  try {
    native();
    return { ok: true, reason: '' };
  } catch (error) {
    return { ok: false, reason: (error as Error).message };
  }
}

const title = (name: string, { ok, reason }: Privilege) => (ok ? name : `${name} [skipped: ${reason}]`);

/** `describe` that is skipped without the privilege, with the reason in its name. Its hooks do not run then. */
export function describeIf(privilege: Privilege, name: string, body: () => void): void {
  describe.skipIf(!privilege.ok)(title(name, privilege), body);
}

/** `test` that is skipped without the privilege. */
export function testIf(privilege: Privilege, name: string, body: () => unknown, timeout?: number): void {
  test.skipIf(!privilege.ok)(title(name, privilege), async () => void (await body()), timeout);
}
