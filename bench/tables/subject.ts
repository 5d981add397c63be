/** A subject: a measurement, and the sheets that show it. */
import type { Ours } from '../contenders/ours.js';
import type { Sheet } from '../report/sheet.js';
import type { Target } from '../report/targets.js';
import type { GuestRig } from '../rig/guest.js';
import type { HostRig } from '../rig/host.js';
import type { NoiseMeter } from '../rig/noise.js';
import type { RoundsOptions } from '../rig/rounds.js';

export interface Settings {
  readonly rounds: number;
  /** Milliseconds of one measurement, and of the warm-up before it. */
  readonly ms: number;
  readonly warmMs: number;
  readonly isQuick: boolean;
}

export interface Context {
  readonly settings: Settings;
  /** Returns two ends on this machine. @throws Unavailable */
  host(): Promise<HostRig>;
  /** Returns two ends in the virtual machine with rxe. @throws Unavailable */
  guest(): Promise<GuestRig>;
  /** Returns our links in all modes, restricted by the options `--link` and `--mode`. */
  ours(): Ours[];
  /** Returns the same and, with the option `--before`, those of another build after each. */
  oursOfBuilds(): Ours[];
  progress(what: string): void;
  /** Watches the machine while a table is measured. */
  readonly noise: NoiseMeter;
}

/** Returns the options of the rounds of a table. */
export function roundsOf({ settings: { rounds }, progress, noise }: Context): RoundsOptions {
  return { rounds, onProgress: progress, noise };
}

/** Thrown for a table that cannot be measured here; the message is the reason. */
export class Unavailable extends Error {}

export interface Subject<Data = unknown> {
  readonly name: string;
  readonly title: string;
  /** Whether it measures `oursOfBuilds`. */
  readonly comparesBuilds?: true;
  measure(context: Context): Promise<Data>;
  sheets(data: Data): Sheet[];
  readonly targets?: readonly Target<Data>[];
}
