/** What this machine lets tests do; what it does not, skips them and says why. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { describe, test } from 'vitest';
import { xdpUnavailable } from '../../src/device/links.js';

export interface Privilege {
  ok: boolean;
  /** Why not; empty when ok. */
  reason: string;
}

/**
 * Whether tests run in a network namespace of their own, where they may make interfaces, open raw sockets and change
 * routes: scripts/test.mjs makes it and says so in WASM_ROCE_NET ("private", or "none:" and the reason).
 */
export function netPrivilege(): Privilege {
  const said = process.env.WASM_ROCE_NET;
  if (said === 'private') return { ok: true, reason: '' };
  const reason = said?.startsWith('none:') ? said.slice('none:'.length) : 'no private network namespace: use npm test';
  return { ok: false, reason };
}

/** Whether a program is on the PATH. */
export function programPrivilege(name: string): Privilege {
  const found = (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, name), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
  return found ? { ok: true, reason: '' } : { ok: false, reason: `${name} is not installed` };
}

/** Whether XDP programs may be attached in the tests' network namespace, and libbpf and our program are there. */
export function xdpPrivilege(): Privilege {
  const reason = xdpUnavailable();
  return all(netPrivilege(), { ok: reason === undefined, reason: reason ?? '' });
}

/** The first that is missing, or ok. */
export function all(...privileges: Privilege[]): Privilege {
  return privileges.find((privilege) => !privilege.ok) ?? { ok: true, reason: '' };
}

const title = (name: string, { ok, reason }: Privilege) => (ok ? name : `${name} [skipped: ${reason}]`);

/** `describe` that is skipped, with the reason in its name, without the privilege. Its hooks do not run then. */
export function describeIf(privilege: Privilege, name: string, body: () => void): void {
  describe.skipIf(!privilege.ok)(title(name, privilege), body);
}

/** `test` likewise. */
export function testIf(privilege: Privilege, name: string, body: () => unknown, timeout?: number): void {
  test.skipIf(!privilege.ok)(title(name, privilege), async () => void (await body()), timeout);
}
