/**
 * The partitions of connections. Requests of this device use the partition that the application chooses; by default the
 * default partition, as in Linux, or the first of the table when the device is not a member of it. Connections of peers
 * use the partition that the REQ names.
 */

/** A full member of the default partition. */
const DEFAULT_PKEY = 0xffff;
const isFull = (pkey: number) => (pkey & 0x8000) !== 0;

export class Partitions {
  readonly #pkeys: readonly number[];
  /** Index of the P_Key that requests of this device use by default. */
  readonly defaultIndex: number;

  /** @param pkeys P_Key table of a port */
  constructor(pkeys: readonly number[] = [DEFAULT_PKEY]) {
    this.#pkeys = pkeys;
    this.defaultIndex = this.indexOf(DEFAULT_PKEY) ?? 0;
  }

  /** Returns an entry of the table. @param index default: that of `defaultIndex` */
  at(index = this.defaultIndex): number {
    return this.#pkeys[index] as number;
  }

  /** Returns the index of an entry that can communicate with a P_Key, or undefined when there is none. */
  indexOf(pkey: number): number | undefined {
    const find = (own: number) => {
      const index = this.#pkeys.indexOf(own);
      return index < 0 ? undefined : index;
    };
    const limited = pkey & 0x7fff;
    return find(limited | 0x8000) ?? (isFull(pkey) ? find(limited) : undefined);
  }
}
