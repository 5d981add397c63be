/** Multicast groups: membership of queue pairs, and joining groups on the link. */

import { ipBytes, isMulticast } from '../../base/address.js';
import { gidAddress, gidBytes } from '../../base/gid.js';
import { wrongType } from '../../base/options.js';
import type { Card } from '../../device/card.js';
import { Errno, nameOf } from '../../device/codes.js';
import { invalidValue, VerbsError } from '../../errors.js';
import { joinGroup, type Link } from '../../link/link.js';

/** Destination queue pair number of multicast datagrams (IBTA 10.5.1): 0xffffff. */
export const MULTICAST_QPN = 0xffffff;

/** Tracks the members of each group. The link joins a group with the first member and leaves it with the last. */
export class MulticastGroups {
  readonly #members = new Map<string, Set<number>>();

  constructor(
    readonly card: Card,
    readonly link: Link,
  ) {}

  /**
   * Adds a queue pair to a group.
   * @throws TypeError; VerbsError EINVAL, ENOMEM; EOPNOTSUPP and other errors of the link
   */
  attach(qp: number, label: string, group: string): void {
    const address = parseGroup(group);
    const refused = this.#callCard('mcastAttach', qp, address);
    if (refused === Errno.ENOMEM) throw new VerbsError('ENOMEM', `no memory to add ${label} to ${address}`);
    if (refused !== 0)
      throw new VerbsError('EINVAL', `${label} is a member of ${address} already, or its type is not UD`);
    const members = this.#members.get(address);
    if (members !== undefined) {
      members.add(qp);
      return;
    }
    try {
      joinGroup(this.link, address);
    } catch (error) {
      this.#callCard('mcastDetach', qp, address);
      throw error;
    }
    this.#members.set(address, new Set([qp]));
  }

  /** Removes a queue pair from a group. @throws TypeError; VerbsError ENOENT when it is no member */
  detach(qp: number, label: string, group: string): void {
    const address = parseGroup(group);
    const refused = this.#callCard('mcastDetach', qp, address);
    if (refused !== 0)
      throw new VerbsError('ENOENT', `${label} is no member of ${address} (${nameOf(Errno, refused)})`);
    this.#leave(qp, address);
  }

  /** Forgets a destroyed queue pair, which the card has removed from its groups already. */
  removeQp(qp: number): void {
    for (const address of [...this.#members.keys()]) this.#leave(qp, address);
  }

  #leave(qp: number, address: string): void {
    const members = this.#members.get(address);
    if (!members?.delete(qp) || members.size > 0) return;
    this.#members.delete(address);
    this.link.leaveGroup?.(address);
  }

  #callCard(what: 'mcastAttach' | 'mcastDetach', qp: number, address: string): number {
    const { bytes, exports } = this.card;
    bytes.set(gidBytes(address), exports.scratch());
    return exports[what](qp);
  }
}

/** @throws TypeError */
function parseGroup(group: string): string {
  if (typeof group !== 'string') throw wrongType('the group', group, 'an address as text');
  const address = gidAddress(group);
  if (isMulticast(ipBytes(address))) return address;
  throw invalidValue(`${group} is no multicast group, must be in 224.0.0.0/4 or ff00::/8`);
}
