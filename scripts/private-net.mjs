// The network namespaces in which tests and benchmarks may create interfaces and open raw sockets.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { onPath, ROOT } from './setup/run.mjs';

const PRIVATE_NET = join(ROOT, 'scripts/private-net.sh');

/**
 * Returns how to start a program in a new private namespace.
 * @returns `prefix`: the words before its command line; `net`: the value of WASM_ROCE_NET in its environment
 */
export function privateNet() {
  const none = (reason) => ({ prefix: [], net: `none:${reason}` });
  for (const command of ['unshare', 'ip']) if (!onPath(command)) return none(`${command} is not installed`);
  const { status, stderr } = spawnSync(PRIVATE_NET, ['true'], { encoding: 'utf8' });
  if (status !== 0) return none(`a private network namespace is not permitted here (${stderr.trim()})`);
  return { prefix: [PRIVATE_NET], net: 'private' };
}
