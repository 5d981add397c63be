// The network namespace in which tests may create interfaces and open raw sockets. It has no name, and ends with its
// last process.
import { spawnSync } from 'node:child_process';
import { onPath } from './setup/run.mjs';

/**
 * Mounts /sys, to show the interfaces of this namespace, and /run/netns, so that `ip netns add` leaves no names behind.
 */
const ENTER = `
  mkdir -p /run/netns && mount -t tmpfs none /run/netns
  mount -t sysfs none /sys
  ip link set lo up`;

const allows = (flags) => spawnSync('unshare', [...flags, 'true']).status === 0;

/**
 * Returns how to start a program in a new private namespace.
 * @returns `prefix`: the words before its command line; `net`: the value of WASM_ROCE_NET in its environment
 */
export function privateNet() {
  const none = (reason) => ({ prefix: [], net: `none:${reason}` });
  for (const command of ['unshare', 'ip']) if (!onPath(command)) return none(`${command} is not installed`);
  const flags = process.getuid?.() === 0 ? ['--net', '--mount'] : ['--user', '--map-root-user', '--net', '--mount'];
  if (!allows(flags)) return none(`unshare ${flags.join(' ')} is not permitted here`);
  return { prefix: ['unshare', ...flags, 'sh', '-c', `{ ${ENTER}; } 2>/dev/null; exec "$@"`, 'sh'], net: 'private' };
}
