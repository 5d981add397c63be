/** What a target serves: the options of its subsystems and namespaces, and the checks of them. */
import { outOfRange } from '../../errors.js';
import { checkNqn, uuidBytes, uuidOf } from '../names.js';
import { DISCOVERY_NQN } from '../wire.js';
import { Namespace } from './namespace.js';
import type { Storage } from './storage.js';
import { MAX_NSID, Subsystem } from './subsystem.js';

/** A namespace of a subsystem. */
export interface NamespaceOptions {
  /** Id of the namespace, 1 to 1024. Default: the first that is free. */
  readonly nsid?: number;
  /** Name that stands for the namespace in its UUID. Default: its id. */
  readonly name?: string;
  /** Its bytes, such as a `fileStorage`. The target closes it. */
  readonly storage: Storage;
  /** Bytes of a block: 512 or 4096. Default 512. */
  readonly blockBytes?: number;
  /**
   * UUID of the namespace. Hosts take namespaces of one UUID for the same disk. Default: one that depends on the NQN
   * and the name, so that it is the same each time.
   */
  readonly uuid?: string;
}

/** A subsystem of a target. */
export interface SubsystemOptions {
  /** NVMe qualified name, such as `nqn.2026-01.com.example:disks`; at most 223 bytes. */
  readonly nqn: string;
  /** Its disks. */
  readonly namespaces: readonly NamespaceOptions[];
  /** NQNs of the hosts that may connect. Default: any host. */
  readonly hosts?: readonly string[];
}

const DIFFERENT = 'different in each namespace';

/**
 * Returns the subsystems by their names, that of discovery included.
 * @throws TypeError, RangeError for wrong options
 */
export function subsystemsOf(all: readonly SubsystemOptions[]): Map<string, Subsystem> {
  const subsystems = new Map([[DISCOVERY_NQN, new Subsystem(DISCOVERY_NQN)]]);
  for (const { nqn, namespaces, hosts } of all) {
    checkNqn('nqn', nqn);
    if (subsystems.has(nqn)) throw outOfRange('nqn', nqn, 'different in each subsystem');
    const subsystem = new Subsystem(nqn, hosts && new Set(hosts));
    subsystems.set(nqn, subsystem);
    // first those that have an id: the others get what is left
    for (const hasId of [true, false])
      for (const options of namespaces)
        if ((options.nsid !== undefined) === hasId) subsystem.addNamespace(newNamespace(subsystem, options));
  }
  return subsystems;
}

/** Returns a namespace that the subsystem may add. @throws TypeError, RangeError for wrong options */
export function newNamespace({ nqn, namespaces }: Subsystem, options: NamespaceOptions): Namespace {
  const { nsid = firstFree(namespaces), name, storage, blockBytes = 512 } = options;
  if (!Number.isInteger(nsid) || nsid < 1 || nsid > MAX_NSID) throw outOfRange('nsid', nsid, `1 to ${MAX_NSID}`);
  if (namespaces.has(nsid)) throw outOfRange('nsid', nsid, DIFFERENT);
  if (blockBytes !== 512 && blockBytes !== 4096) throw outOfRange('blockBytes', blockBytes, '512 or 4096');
  if (storage.bytes < blockBytes) throw outOfRange('storage.bytes', storage.bytes, `at least ${blockBytes}`);
  const uuid = options.uuid === undefined ? uuidOf(`${nqn} ${name ?? nsid}`) : uuidBytes('uuid', options.uuid);
  if ([...namespaces.values()].some((other) => other.uuid.equals(uuid)))
    throw options.uuid === undefined
      ? outOfRange('name', name ?? nsid, DIFFERENT)
      : outOfRange('uuid', options.uuid, DIFFERENT);
  return new Namespace({ nsid, storage, blockBytes, uuid });
}

function firstFree(taken: ReadonlyMap<number, unknown>): number {
  let nsid = 1;
  while (taken.has(nsid)) nsid++;
  return nsid;
}
