/**
 * Names that are unique on an interface, among the processes of one user. A name is a lock on one byte of a file in a
 * folder that only the user can enter, so that no other user can take it. The kernel releases the lock when the process
 * ends, however it ends, and there is nothing stale to remove.
 */
import { createHash } from 'node:crypto';
import { readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { native } from '../native.js';
import type { HostNames } from './link.js';
import { userFolders } from './runtimefolder.js';

const EAGAIN = 11;
const FILE = 'names.lock';
/** Offsets in a file are below 2^63. With so many, two names do not have the same one. */
const OFFSET_BITS = 62;

/**
 * Returns the names of an interface. Interfaces of two network namespaces are different ones. An interface keeps its
 * index when its name changes.
 * @param folders returns those of the file, once a name is needed. Two processes need one of them in common
 */
export function interfaceNames(ifindex: number, folders: () => readonly string[] = userFolders): HostNames {
  let found: readonly string[] | undefined;
  const files = () => {
    found ??= folders().map((folder) => join(folder, FILE));
    return found;
  };
  const scope = `${readlinkSync('/proc/thread-self/ns/net')} ${ifindex}`;
  const offset = (name: string) =>
    BigInt.asUintN(OFFSET_BITS, createHash('sha256').update(`${scope} ${name}`).digest().readBigUInt64LE());
  return {
    bind(name) {
      const at = offset(name);
      const fds: number[] = [];
      const release = () => {
        // By the next call the numbers may belong to other files.
        for (const fd of fds.splice(0)) native().closeFd(fd);
      };
      for (const file of files()) {
        const fd = native().nameLockTake(file, at);
        if (fd >= 0) fds.push(fd);
        if (fd !== -EAGAIN) continue;
        release();
        return undefined;
      }
      return release;
    },
    isBound(name) {
      const at = offset(name);
      return files().some((file) => native().nameLockIsTaken(file, at));
    },
  };
}
