/** Habits of particular peers that break the rules, and that a queue pair can be told to share. */
import { Quirk } from '../device/codes.js';
import { checkFlags } from './check.js';

/**
 * `rxeFlushIcrc`: Linux rxe (6.12 at least) gives a FLUSH a wrong ICRC. With this one the queue pair sends its FLUSHes like
 * that, and takes such ones as well as right ones.
 */
export type QuirkName = 'rxeFlushIcrc';

const QUIRKS: Readonly<Record<QuirkName, number>> = { rxeFlushIcrc: Quirk.RXE_FLUSH_ICRC };

/** The bits of these names. @throws TypeError */
export function quirkBits(names: readonly QuirkName[]): number {
  return checkFlags('quirks', names, QUIRKS);
}
