// Which queue pairs want the datagrams of which multicast group (IBTA 10.5). Few in number: a list, searched from the start.
import { Card } from '../host/card';
import { allocate, release } from '../host/pool';
import { Errno } from '../limits';
import { Qp } from './qp';

/** One queue pair in one group. */
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

/** First membership, or the one after `last`, of the group at `mgid`; null when there is no more. */
export function member(mgid: usize, last: Membership): Membership {
  let at = changetype<usize>(last) == 0 ? Card.get().memberships : last.next;
  while (at != 0 && memory.compare(changetype<Membership>(at).mgid, mgid, 16) != 0)
    at = changetype<Membership>(at).next;
  return changetype<Membership>(at);
}

/** EINVAL when it is a member already, ENOMEM when memory is short. */
export function attach(qp: Qp, mgid: usize): Errno {
  for (let m = member(mgid, changetype<Membership>(0)); changetype<usize>(m) != 0; m = member(mgid, m))
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

/** ENOENT when it is no member. */
export function detach(qp: Qp, mgid: usize): Errno {
  return remove(qp, mgid) ? Errno.OK : Errno.ENOENT;
}

/** The queue pair goes away: out of all groups. */
export function detachAll(qp: Qp): void {
  while (remove(qp, 0)) {}
}

/** Removes one membership of the queue pair, of this group or with `mgid` 0 of any. */
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
