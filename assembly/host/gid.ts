// The port's addresses, as GIDs: the valid destinations of a datagram. An IPv4 address is ::ffff:a.b.c.d (IBTA annex
// 17).
import { GIDS } from '../memorymap';

/** | count u32 | ... 16 | entries of 16 bytes | */
const MAX_GIDS: u32 = 63;

/** Copies `count` GIDs from `from`; false when there are too many. */
export function setGids(from: usize, count: u32): bool {
  if (count > MAX_GIDS) return false;
  store<u32>(GIDS, count);
  memory.copy(GIDS + 16, from, (<usize>count) << 4);
  return true;
}

/** Returns whether the GID at `gid` is an address of the port. */
export function isLocalGid(gid: usize): bool {
  let end = GIDS + 16 + ((<usize>load<u32>(GIDS)) << 4);
  for (let at: usize = GIDS + 16; at < end; at += 16) if (memory.compare(at, gid, 16) == 0) return true;
  return false;
}
