/** Habits of particular peers that break the rules, and that a queue pair can be told to share. */
import { Quirk } from '../device/codes.js';
import { checkFlags } from './check.js';

/**
 * Of Linux rxe, 6.12 at least:
 * - `rxeFlushIcrc`: it gives a FLUSH a wrong ICRC. With this the queue pair sends its FLUSHes like that, and takes such ones as
 *   well as right ones.
 * - `rxeFlushAddress`: a FLUSH that it has to send again says address 0. With this such a one is taken for one of the whole
 *   region, whose key must have the right all the same.
 *
 * Of some adapters:
 * - `migReqZero`: MigReq is 0 in what the queue pair sends, else 1. What comes is taken either way.
 */
export type QuirkName = 'rxeFlushIcrc' | 'rxeFlushAddress' | 'migReqZero';

const QUIRKS: Readonly<Record<QuirkName, number>> = {
  rxeFlushIcrc: Quirk.RXE_FLUSH_ICRC,
  rxeFlushAddress: Quirk.RXE_FLUSH_ADDRESS,
  migReqZero: Quirk.MIG_REQ_ZERO,
};

/** The bits of these names. @throws TypeError */
export function quirkBits(names: readonly QuirkName[]): number {
  return checkFlags('quirks', names, QUIRKS);
}
