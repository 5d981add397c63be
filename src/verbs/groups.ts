/** Multicast groups: which queue pairs are in which, and for how long the link must listen. */
import type { Card } from '../device/card.js';
import { Errno, nameOf } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import { ipBytes, isMulticast } from '../link/address.js';
import { joinGroup, type Link } from '../link/link.js';
import { show } from './check.js';
import { gidAddress, gidBytes } from './gid.js';

/** The queue pair number to which datagrams for a group are sent (InfiniBand specification, 10.5.1). */
export const MULTICAST_QPN = 0xffffff;

/** Counts the members of each group, so that the link joins with the first and leaves with the last. */
export class Groups {
  readonly #members = new Map<string, Set<number>>();

  constructor(
    readonly card: Card,
    readonly link: Link,
  ) {}

  /** @throws TypeError, VerbsError EINVAL, ENOMEM; EOPNOTSUPP and others of the link */
  attach(qp: number, label: string, group: string): void {
    const address = groupAddress(group);
    const refused = this.#call('mcastAttach', qp, address);
    if (refused === Errno.ENOMEM) throw new VerbsError('ENOMEM', `no memory for ${label} in ${address}`);
    if (refused !== 0) throw new VerbsError('EINVAL', `${label} is in ${address} already, or has no datagrams`);
    const members = this.#members.get(address);
    if (members !== undefined) {
      members.add(qp);
      return;
    }
    try {
      joinGroup(this.link, address);
    } catch (error) {
      this.#call('mcastDetach', qp, address);
      throw error;
    }
    this.#members.set(address, new Set([qp]));
  }

  /** @throws TypeError, VerbsError ENOENT */
  detach(qp: number, label: string, group: string): void {
    const address = groupAddress(group);
    const refused = this.#call('mcastDetach', qp, address);
    if (refused !== 0) throw new VerbsError('ENOENT', `${label} is not in ${address} (${nameOf(Errno, refused)})`);
    this.#leave(qp, address);
  }

  /** The queue pair is gone, and the card has taken it out of its groups. */
  forget(qp: number): void {
    for (const address of [...this.#members.keys()]) this.#leave(qp, address);
  }

  #leave(qp: number, address: string): void {
    const members = this.#members.get(address);
    if (!members?.delete(qp) || members.size > 0) return;
    this.#members.delete(address);
    this.link.leaveGroup?.(address);
  }

  #call(what: 'mcastAttach' | 'mcastDetach', qp: number, address: string): number {
    const { bytes, exports } = this.card;
    bytes.set(gidBytes(address), exports.scratch());
    return exports[what](qp);
  }
}

/** @throws TypeError */
function groupAddress(group: string): string {
  if (typeof group !== 'string') throw new TypeError(`the group is ${show(group)}, must be an address as text`);
  const address = gidAddress(group);
  if (isMulticast(ipBytes(address))) return address;
  throw new TypeError(`${group} is no group; these are 224.0.0.0/4 and ff00::/8`);
}
