// The card's addresses, as GIDs: what a datagram must be addressed to. An IPv4 address is ::ffff:a.b.c.d (IBTA annex 17).
import { GIDS } from '../limits';

/** | count u32 | ... 16 | entries of 16 bytes | */
const MOST: u32 = 63;

/** Takes over `count` GIDs at `from`; false when they are too many. */
export function setGids(from: usize, count: u32): bool {
  if (count > MOST) return false;
  store<u32>(GIDS, count);
  memory.copy(GIDS + 16, from, (<usize>count) << 4);
  return true;
}

/** Whether the GID at `gid` is one of ours. */
export function isOurs(gid: usize): bool {
  let end = GIDS + 16 + ((<usize>load<u32>(GIDS)) << 4);
  for (let at: usize = GIDS + 16; at < end; at += 16) if (memory.compare(at, gid, 16) == 0) return true;
  return false;
}
