/** Events of the host that rules of faults pretend: the program sees them, the host does not have them. */
import { gidBytes, gidText } from '../../base/gid.js';
import type { HostFault } from '../../probe/faults/hostfault.js';
import { type GidEntry, gidTable } from '../address/gid.js';

/** Whether no packet may pass any more: the port is down, or the device has failed. */
export const isCutOff = (faults: readonly HostFault[]): boolean =>
  faults.some(({ kind }) => kind === 'port down' || kind === 'device failure');

/** Whether a fault takes the port down. */
export const isPortDown = (faults: readonly HostFault[]): boolean => faults.some(({ kind }) => kind === 'port down');

/** Returns the GID table as the faults make it, one after the other. */
export function faultyGids(table: readonly GidEntry[], faults: readonly HostFault[]): readonly GidEntry[] {
  let gids = [...table];
  for (const fault of faults) {
    if (!('address' in fault)) continue;
    const gid = gidText(gidBytes(fault.address));
    const found = gids.find((entry) => entry.gid === gid);
    const others = gids.filter((entry) => entry !== found);
    if (fault.kind === 'gid remove') gids = others;
    else if (fault.kind === 'gid add') gids = found ? gids : [...gids, ...gidTable([fault.address])];
    else if (found) gids = [...others.slice(0, fault.index), found, ...others.slice(fault.index)];
  }
  return gids.map((entry, index) => ({ ...entry, index }));
}
