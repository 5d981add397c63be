/** Quirks: deviations of particular peers from the specification that a queue pair can accommodate. */

import { checkFlags } from '../base/options.js';
import { Quirk } from '../device/codes.js';

/**
 * Name of a quirk of a peer, see `QpOptions.quirks`.
 *
 * For Linux rxe, at least 6.12:
 * - `rxeFlushIcrc`: rxe computes a wrong ICRC for FLUSH. The queue pair sends its FLUSHes with that ICRC, and accepts
 *   both.
 * - `rxeFlushAddress`: rxe retransmits a FLUSH with address 0. The queue pair treats such a FLUSH as one of the whole
 *   region, whose key must still have the right.
 *
 * For some adapters:
 * - `migReqZero`: sends packets with MigReq 0 instead of 1. Received packets are accepted with either value.
 */
export type QuirkName = 'rxeFlushIcrc' | 'rxeFlushAddress' | 'migReqZero';

const QUIRKS: Readonly<Record<QuirkName, number>> = {
  rxeFlushIcrc: Quirk.RXE_FLUSH_ICRC,
  rxeFlushAddress: Quirk.RXE_FLUSH_ADDRESS,
  migReqZero: Quirk.MIG_REQ_ZERO,
};

/** Returns the bits of quirk names. @throws TypeError for an unknown name */
export function quirkBits(names: readonly QuirkName[]): number {
  return checkFlags('quirks', names, QUIRKS);
}
