// What the responder keeps of the newest READ and atomic requests, so that a lost answer can be given again (IBTA 9.7.5.1.4):
// a ring of max_dest_rd_atomic entries. An entry is active while answers of it are still to be sent.
import { allocate, release } from '../host/pool';
import { psnDiff } from '../wire/psn';
import { Qp } from './qp';

@unmanaged
@final
export class Result {
  va: u64;
  /** The value that an atomic found. */
  original: u64;
  /** PSNs of the whole answer, and of the part that is being sent. */
  firstPsn: u32;
  lastPsn: u32;
  jobFirst: u32;
  jobNext: u32;
  jobLast: u32;
  length: u32;
  jobVa: u64;
  jobLength: u32;
  rkey: u32;
  isAtomic: bool;
  /** Answered without data. */
  isBlank: bool;
  isActive: bool;
  /** What is to be sent has been sent before. */
  isRepeated: bool;
}
const RESULT_BYTES: u32 = 80;

/** Half of what tells one PSN from another (IBTA 9.7.2): one packet moves the expected PSN on by no more than the other half. */
const OLDEST_AGE: u32 = 1 << 22;

/**
 * Replaces the ring by one for `depth` requests, a power of two or more; false when memory is short. What is kept goes along,
 * the newest first; what is still to be answered does so in any case.
 */
export function resizeResults(qp: Qp, depth: u32): bool {
  let needed = qp.resultsActive == 0 ? 0 : qp.resultHead - firstActive(qp);
  let entries: u32 = 1;
  while (entries < max(depth, needed)) entries <<= 1;
  let ring = allocate(entries * RESULT_BYTES);
  if (ring == 0) return false;
  qp.resultsKept = min(qp.resultsKept, entries);
  for (let n = oldest(qp); n != qp.resultHead; n++)
    memory.copy(placeIn(ring, entries - 1, n), changetype<usize>(resultAt(qp, n)), RESULT_BYTES);
  releaseResults(qp);
  qp.results = ring;
  qp.resultMask = entries - 1;
  return true;
}

export function releaseResults(qp: Qp): void {
  if (qp.results) release(qp.results);
  qp.results = 0;
}

export function forgetResults(qp: Qp): void {
  qp.resultHead = 0;
  qp.resultsKept = 0;
  qp.resultsActive = 0;
}

function resultAt(qp: Qp, n: u32): Result {
  return changetype<Result>(placeIn(qp.results, qp.resultMask, n));
}

function placeIn(ring: usize, mask: u32, n: u32): usize {
  return ring + <usize>(n & mask) * RESULT_BYTES;
}

/** A place for the next request; null when the answer of the one that has it is not out yet: the peer has more
 * requests outstanding than it may. One that is being repeated does not count: the peer asks for more, so it has got it. */
export function newResult(qp: Qp): Result {
  let result = resultAt(qp, qp.resultHead);
  if (qp.resultsKept > qp.resultMask) {
    if (result.isActive && !result.isRepeated) return changetype<Result>(0);
    if (result.isActive) deactivate(qp, result);
  } else {
    qp.resultsKept++;
  }
  memory.fill(changetype<usize>(result), 0, RESULT_BYTES);
  qp.resultHead++;
  return result;
}

/** First entry that is still kept. */
function oldest(qp: Qp): u32 {
  return qp.resultHead - qp.resultsKept;
}

/** The kept request that this PSN is part of; null when there is none. */
export function findResult(qp: Qp, psn: u32): Result {
  for (let n = oldest(qp); n != qp.resultHead; n++) {
    let result = resultAt(qp, n);
    if (psnDiff(psn, result.firstPsn) >= 0 && psnDiff(psn, result.lastPsn) <= 0) return result;
  }
  return changetype<Result>(0);
}

/** PSN of the oldest kept request behind `psn`, or `otherwise`. */
export function firstResultBehind(qp: Qp, psn: u32, otherwise: u32): u32 {
  for (let n = oldest(qp); n != qp.resultHead; n++) {
    let result = resultAt(qp, n);
    if (psnDiff(result.firstPsn, psn) > 0) return result.firstPsn;
  }
  return otherwise;
}

/** Its answer is to be sent, or sent again. */
export function activate(qp: Qp, result: Result): void {
  if (result.isActive) return;
  result.isActive = true;
  qp.resultsActive++;
}

export function deactivate(qp: Qp, result: Result): void {
  result.isActive = false;
  qp.resultsActive--;
}

/**
 * Lets go of requests that came so long ago that their PSNs are about to mean others: a peer that has sent so much since has
 * their answers. To be called whenever the expected PSN has moved on.
 */
export function forgetAged(qp: Qp): void {
  while (qp.resultsKept != 0) {
    let result = resultAt(qp, oldest(qp));
    if (result.isActive || ((qp.ePsn - result.lastPsn) & 0xffffff) <= OLDEST_AGE) return;
    qp.resultsKept--;
  }
}

function firstActive(qp: Qp): u32 {
  let n = oldest(qp);
  while (!resultAt(qp, n).isActive) n++;
  return n;
}

/** The oldest request with answers to send; there must be one. */
export function oldestActive(qp: Qp): Result {
  return resultAt(qp, firstActive(qp));
}
