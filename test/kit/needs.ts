/** Needs of tests and fuzz targets of the host, without a test runner. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

export interface Privilege {
  ok: boolean;
  /** The reason why not; empty when ok. */
  reason: string;
}

/**
 * Returns whether the tests run in a private network namespace, where they can create interfaces, open raw sockets and
 * change routes. scripts/test-forks.mjs creates it. WASM_ROCE_NET is "private", or "none:" and the reason.
 */
export function netPrivilege(): Privilege {
  const said = process.env.WASM_ROCE_NET;
  if (said === 'private') return { ok: true, reason: '' };
  const reason = said?.startsWith('none:') ? said.slice('none:'.length) : 'no private network namespace: use npm test';
  return { ok: false, reason };
}

/** Returns whether a program is on the PATH. */
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

/** Returns the first missing privilege, or ok. */
export function all(...privileges: Privilege[]): Privilege {
  return privileges.find((privilege) => !privilege.ok) ?? { ok: true, reason: '' };
}
