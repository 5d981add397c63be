// Members of multicast groups (IBTA 10.5). They are few: a list, searched from the start.

import { Errno } from '../codes';
import { Card } from '../host/card';
import { allocate, release } from '../host/pool';
import { Qp } from './qp';

/** A queue pair attached to a group. */
@unmanaged
@final
export class Membership {
  next: usize;
  qp: usize;

  get mgid(): usize {
    return changetype<usize>(this) + MEMBERSHIP_BYTES;
  }
}
const MEMBERSHIP_BYTES: usize = 16;

/** Returns the first membership of the group at `mgid`, or the one after `last`; null when there is none. */
export function nextMember(mgid: usize, last: Membership): Membership {
  let at = changetype<usize>(last) == 0 ? Card.get().memberships : last.next;
  while (at != 0 && memory.compare(changetype<Membership>(at).mgid, mgid, 16) != 0)
    at = changetype<Membership>(at).next;
  return changetype<Membership>(at);
}

/** EINVAL when the queue pair is attached already, ENOMEM when memory is short. */
export function attach(qp: Qp, mgid: usize): Errno {
  for (let m = nextMember(mgid, changetype<Membership>(0)); changetype<usize>(m) != 0; m = nextMember(mgid, m))
    if (m.qp == qp.ptr) return Errno.EINVAL;
  let added = changetype<Membership>(allocate(MEMBERSHIP_BYTES + 16));
  if (changetype<usize>(added) == 0) return Errno.ENOMEM;
  let card = Card.get();
  added.next = card.memberships;
  added.qp = qp.ptr;
  memory.copy(added.mgid, mgid, 16);
  card.memberships = changetype<usize>(added);
  return Errno.OK;
}

/** ENOENT when the queue pair is not attached. */
export function detach(qp: Qp, mgid: usize): Errno {
  return remove(qp, mgid) ? Errno.OK : Errno.ENOENT;
}

/** Detaches a queue pair that is being destroyed from all groups. */
export function detachAll(qp: Qp): void {
  while (remove(qp, 0)) {}
}

/** Removes one membership of the queue pair, in this group or, with `mgid` 0, in any. */
function remove(qp: Qp, mgid: usize): bool {
  let card = Card.get();
  let previous: usize = 0;
  for (let at = card.memberships; at != 0; at = changetype<Membership>(at).next) {
    let found = changetype<Membership>(at);
    if (found.qp == qp.ptr && (mgid == 0 || memory.compare(found.mgid, mgid, 16) == 0)) {
      if (previous) changetype<Membership>(previous).next = found.next;
      else card.memberships = found.next;
      release(at);
      return true;
    }
    previous = at;
  }
  return false;
}
