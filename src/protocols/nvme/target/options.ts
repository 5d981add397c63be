/** The subsystems and namespaces of a target: their options, and the checks of these. */
import {
  array,
  type Checks,
  checkInteger,
  checkOptions,
  integer,
  object,
  oneOf,
  required,
  text,
  texts,
  wrongNumber,
} from '../../../base/options.js';
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

const SUBSYSTEM_CHECKS: Checks<SubsystemOptions> = {
  nqn: required(checkNqn),
  namespaces: required(array),
  hosts: texts,
};
const NAMESPACE_CHECKS: Checks<NamespaceOptions> = {
  nsid: integer(1, MAX_NSID),
  name: text,
  storage: required(object),
  blockBytes: oneOf(512, 4096),
  uuid: uuidBytes,
};

const DIFFERENT = 'different in each namespace';

/**
 * Returns the subsystems by their names, that of discovery included.
 * @throws TypeError, RangeError for wrong options
 */
export function subsystemsOf(all: readonly SubsystemOptions[]): Map<string, Subsystem> {
  const subsystems = new Map([[DISCOVERY_NQN, new Subsystem(DISCOVERY_NQN)]]);
  for (const options of all) {
    const { nqn, namespaces, hosts } = checkOptions('a subsystem', options, SUBSYSTEM_CHECKS);
    if (subsystems.has(nqn)) throw wrongNumber('nqn', nqn, 'different in each subsystem');
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
  const checked = checkOptions('a namespace', options, NAMESPACE_CHECKS);
  const { nsid = firstFree(namespaces), name, storage, blockBytes = 512 } = checked;
  checkInteger('nsid', nsid, 1, MAX_NSID);
  if (namespaces.has(nsid)) throw wrongNumber('nsid', nsid, DIFFERENT);
  if (storage.bytes < blockBytes) throw wrongNumber('storage.bytes', storage.bytes, `at least ${blockBytes}`);
  const uuid = checked.uuid === undefined ? uuidOf(`${nqn} ${name ?? nsid}`) : uuidBytes('uuid', checked.uuid);
  if ([...namespaces.values()].some((other) => other.uuid.equals(uuid)))
    throw checked.uuid === undefined
      ? wrongNumber('name', name ?? nsid, DIFFERENT)
      : wrongNumber('uuid', checked.uuid, DIFFERENT);
  return new Namespace({ nsid, storage, blockBytes, uuid });
}

function firstFree(taken: ReadonlyMap<number, unknown>): number {
  let nsid = 1;
  while (taken.has(nsid)) nsid++;
  return nsid;
}
