/**
 * Data that two threads share about an xdp link: the thread that opened it writes `maxFrame` and the groups, and the
 * thread that moves its frames writes the counters.
 */

/** Counters in their order in the shared memory. */
const COUNTERS = [
  ...(['tx_frames', 'tx_bytes', 'tx_busy', 'tx_too_long', 'tx_invalid', 'tx_errors', 'tx_last_errno'] as const),
  ...(['rx_frames', 'rx_bytes', 'rx_truncated', 'rx_dropped'] as const),
];
type Counter = (typeof COUNTERS)[number];

/** Index of each counter in `XdpShared.counts`. */
export const COUNT = Object.fromEntries(COUNTERS.map((name, i) => [name, i])) as Record<Counter, number>;

/** Number of groups whose frames return to a card that sends them. */
const MAX_GROUPS = 1024;
const MAX_FRAME_AT = COUNTERS.length;
const GROUPS_AT = MAX_FRAME_AT + 1;

/** A view of the shared data. */
export class XdpShared {
  readonly counts: Float64Array;
  readonly #all: Float64Array;
  readonly #groups: Float64Array;

  /** @param buffer memory of another XdpShared, which then shares its data. Default: new */
  constructor(readonly buffer = new SharedArrayBuffer(8 * (GROUPS_AT + MAX_GROUPS))) {
    this.#all = new Float64Array(buffer);
    this.counts = this.#all.subarray(0, COUNTERS.length);
    this.#groups = this.#all.subarray(GROUPS_AT);
  }

  /** Bytes of the longest frame that the link sends, with a tag. */
  get maxFrame(): number {
    return this.#all[MAX_FRAME_AT] as number;
  }

  set maxFrame(bytes: number) {
    this.#all[MAX_FRAME_AT] = bytes;
  }

  /**
   * Adds a group's MAC address (`macNumber`): frames to it also return to their sender. Ignored if the table is full.
   */
  addGroup(mac: number): void {
    const free = this.#groups.indexOf(0);
    if (free >= 0) this.#groups[free] = mac;
  }

  removeGroup(mac: number): void {
    const at = this.#groups.indexOf(mac);
    if (at >= 0) this.#groups[at] = 0;
  }

  hasGroup(mac: number): boolean {
    return this.#groups.includes(mac);
  }

  counters(): Record<Counter, number> {
    return Object.fromEntries(COUNTERS.map((name, i) => [name, this.counts[i]])) as Record<Counter, number>;
  }
}
