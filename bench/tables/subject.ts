/** What a table is: something that is measured, and sheets that show it. */
import type { Ours } from '../contenders/ours.js';
import type { Sheet } from '../report/sheet.js';
import type { GuestRig } from '../rig/guest.js';
import type { Rig } from '../rig/program.js';

export interface Settings {
  readonly rounds: number;
  /** How long one measurement lasts, and what goes before it. */
  readonly ms: number;
  readonly warmMs: number;
  readonly isQuick: boolean;
}

export interface Context {
  readonly settings: Settings;
  /** Two ends on this machine. @throws Unavailable */
  host(): Promise<Rig>;
  /** Two ends in the virtual machine that has rxe. @throws Unavailable */
  guest(): Promise<GuestRig>;
  /** All our links in all modes, or those that were asked for. */
  ours(): Ours[];
  progress(what: string): void;
}

/** A table that cannot be measured here; the message says why. */
export class Unavailable extends Error {}

export interface Subject<Data = unknown> {
  readonly name: string;
  readonly title: string;
  measure(context: Context): Promise<Data>;
  sheets(data: Data): Sheet[];
}
