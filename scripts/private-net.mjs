// Where tests may make interfaces and open raw sockets: a network namespace without a name, gone with its last process.
import { spawnSync } from 'node:child_process';
import { onPath } from './setup/run.mjs';

/** Mounts show this namespace's interfaces, and keep `ip netns add` from leaving names behind. */
const ENTER = `
  mkdir -p /run/netns && mount -t tmpfs none /run/netns
  mount -t sysfs none /sys
  ip link set lo up`;

const allows = (flags) => spawnSync('unshare', [...flags, 'true']).status === 0;

/** How to start a program there: words to put in front of it, and WASM_ROCE_NET for its environment. */
export function privateNet() {
  const none = (reason) => ({ prefix: [], net: `none:${reason}` });
  for (const command of ['unshare', 'ip']) if (!onPath(command)) return none(`${command} is not installed`);
  const flags = process.getuid?.() === 0 ? ['--net', '--mount'] : ['--user', '--map-root-user', '--net', '--mount'];
  if (!allows(flags)) return none(`unshare ${flags.join(' ')} is not permitted here`);
  return { prefix: ['unshare', ...flags, 'sh', '-c', `{ ${ENTER}; } 2>/dev/null; exec "$@"`, 'sh'], net: 'private' };
}
