/** What two threads know of an xdp link: the one that has opened it, and the one that moves its frames. */

/** Counters, in the order in which they lie in the memory. */
const COUNTERS = [
  ...(['tx_frames', 'tx_bytes', 'tx_busy', 'tx_too_long', 'tx_invalid', 'tx_errors', 'tx_last_errno'] as const),
  ...(['rx_frames', 'rx_bytes', 'rx_truncated', 'rx_dropped'] as const),
];
type Counter = (typeof COUNTERS)[number];

/** Index of each counter in `XdpShared.counts`. */
export const COUNT = Object.fromEntries(COUNTERS.map((name, i) => [name, i])) as Record<Counter, number>;

/** Groups that a card can be in and hear itself. */
const MOST_GROUPS = 1024;
const LONGEST_AT = COUNTERS.length;
const GROUPS_AT = LONGEST_AT + 1;

export class XdpShared {
  readonly counts: Float64Array;
  readonly #all: Float64Array;
  readonly #groups: Float64Array;

  /** @param buffer of another XdpShared, which sees the same; zeroed for the first */
  constructor(readonly buffer = new SharedArrayBuffer(8 * (GROUPS_AT + MOST_GROUPS))) {
    this.#all = new Float64Array(buffer);
    this.counts = this.#all.subarray(0, COUNTERS.length);
    this.#groups = this.#all.subarray(GROUPS_AT);
  }

  /** Bytes of the longest frame that the interface carries. */
  get longest(): number {
    return this.#all[LONGEST_AT] as number;
  }

  set longest(bytes: number) {
    this.#all[LONGEST_AT] = bytes;
  }

  /** Frames to this MAC, as `macNumber` writes it, come back to who sends them. Those beyond the table do not. */
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
