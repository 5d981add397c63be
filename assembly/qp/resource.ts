// Response resources (rxe's resp_res): what the responder keeps of the newest READ and atomic requests so that it can
// replay a lost response (IBTA 9.7.5.1.4). They form a ring of max_dest_rd_atomic entries. An entry is active while
// packets of its response are still to be sent.
import { allocate, release } from '../host/pool';
import { psnDiff } from '../wire/psn';
import { Qp } from './qp';

@unmanaged
@final
export class RespResource {
  va: u64;
  /** The original value of an atomic operation. */
  original: u64;
  /** PSNs of the whole response, and of the part that is being sent. */
  firstPsn: u32;
  lastPsn: u32;
  responseFirstPsn: u32;
  responsePsn: u32;
  responseLastPsn: u32;
  length: u32;
  responseVa: u64;
  responseLength: u32;
  rkey: u32;
  isAtomic: bool;
  /** The response has no data. */
  isEmptyResponse: bool;
  isActive: bool;
  /** The response is sent again, after it was sent completely. */
  isReplay: bool;
}
const RESOURCE_BYTES: u32 = 80;

/**
 * Half of the PSNs that count as older than the expected one (IBTA 9.7.2); one packet advances the expected PSN by no
 * more than the other half.
 */
const MAX_AGE: u32 = 1 << 22;

/**
 * Replaces the ring by one for `depth` requests, rounded up to a power of two; false when memory is short. The newest
 * entries are kept, and active ones in any case.
 */
export function resizeResources(qp: Qp, depth: u32): bool {
  let needed = qp.activeResources == 0 ? 0 : qp.resourceHead - firstActive(qp);
  let entries: u32 = 1;
  while (entries < max(depth, needed)) entries <<= 1;
  let ring = allocate(entries * RESOURCE_BYTES);
  if (ring == 0) return false;
  qp.resourceCount = min(qp.resourceCount, entries);
  for (let n = oldest(qp); n != qp.resourceHead; n++)
    memory.copy(entryIn(ring, entries - 1, n), changetype<usize>(resourceAt(qp, n)), RESOURCE_BYTES);
  releaseResources(qp);
  qp.resources = ring;
  qp.resourceMask = entries - 1;
  return true;
}

export function releaseResources(qp: Qp): void {
  if (qp.resources) release(qp.resources);
  qp.resources = 0;
}

export function resetResources(qp: Qp): void {
  qp.resourceHead = 0;
  qp.resourceCount = 0;
  qp.activeResources = 0;
}

function resourceAt(qp: Qp, n: u32): RespResource {
  return changetype<RespResource>(entryIn(qp.resources, qp.resourceMask, n));
}

function entryIn(ring: usize, mask: u32, n: u32): usize {
  return ring + <usize>(n & mask) * RESOURCE_BYTES;
}

/**
 * Returns an entry for a new request. Returns null when the response in that entry is not sent yet: the peer has more
 * requests outstanding than allowed. A replay does not count: the peer has sent a new request, so it has the response.
 */
export function allocateResource(qp: Qp): RespResource {
  let resource = resourceAt(qp, qp.resourceHead);
  if (qp.resourceCount > qp.resourceMask) {
    if (resource.isActive && !resource.isReplay) return changetype<RespResource>(0);
    if (resource.isActive) deactivate(qp, resource);
  } else {
    qp.resourceCount++;
  }
  memory.fill(changetype<usize>(resource), 0, RESOURCE_BYTES);
  qp.resourceHead++;
  return resource;
}

/** Index of the oldest entry. */
function oldest(qp: Qp): u32 {
  return qp.resourceHead - qp.resourceCount;
}

/** Returns the entry of the request that this PSN belongs to; null when there is none. */
export function findResource(qp: Qp, psn: u32): RespResource {
  for (let n = oldest(qp); n != qp.resourceHead; n++) {
    let resource = resourceAt(qp, n);
    if (psnDiff(psn, resource.firstPsn) >= 0 && psnDiff(psn, resource.lastPsn) <= 0) return resource;
  }
  return changetype<RespResource>(0);
}

/** Returns the first PSN of the oldest request after `psn`, or `otherwise`. */
export function firstResourcePsnAfter(qp: Qp, psn: u32, otherwise: u32): u32 {
  for (let n = oldest(qp); n != qp.resourceHead; n++) {
    let resource = resourceAt(qp, n);
    if (psnDiff(resource.firstPsn, psn) > 0) return resource.firstPsn;
  }
  return otherwise;
}

/** The response is requested again. While it was never sent completely, this is no replay. Goes before `activate`. */
export function noteReplay(resource: RespResource): void {
  if (!resource.isActive) resource.isReplay = true;
}

/** Its response is to be sent, or replayed. */
export function activate(qp: Qp, resource: RespResource): void {
  if (resource.isActive) return;
  resource.isActive = true;
  qp.activeResources++;
}

export function deactivate(qp: Qp, resource: RespResource): void {
  resource.isActive = false;
  qp.activeResources--;
}

/**
 * Drops requests so old that their PSNs are about to be used again: a peer that has sent so much since has received
 * their responses. Must be called whenever the expected PSN has advanced.
 */
export function dropAgedResources(qp: Qp): void {
  while (qp.resourceCount != 0) {
    let resource = resourceAt(qp, oldest(qp));
    if (resource.isActive || ((qp.ePsn - resource.lastPsn) & 0xffffff) <= MAX_AGE) return;
    qp.resourceCount--;
  }
}

function firstActive(qp: Qp): u32 {
  let n = oldest(qp);
  while (!resourceAt(qp, n).isActive) n++;
  return n;
}

/** Returns the oldest request with response packets to send; there must be one. */
export function oldestActive(qp: Qp): RespResource {
  return resourceAt(qp, firstActive(qp));
}
