/**
 * The partitions of connections. Who asks does so in the default partition, as Linux does; a device that is no member of it asks
 * in its first. Who is asked uses the partition that the REQ names.
 */
import type { Device } from '../verbs/context.js';

/** A full member of the default partition. */
const DEFAULT_PKEY = 0xffff;
const isFull = (pkey: number) => (pkey & 0x8000) !== 0;

export class Partitions {
  readonly #pkeys: readonly number[];
  /** Index of the P_Key in which this device asks. */
  readonly ownIndex: number;

  /** @param pkeys a port's table */
  constructor(pkeys: readonly number[] = [DEFAULT_PKEY]) {
    this.#pkeys = pkeys;
    this.ownIndex = this.indexOf(DEFAULT_PKEY) ?? 0;
  }

  static of(device: Device): Partitions {
    const { pkeyTableLength } = device.queryPort();
    return new Partitions(Array.from({ length: pkeyTableLength }, (_, index) => device.queryPkey(index)));
  }

  get ownPkey(): number {
    return this.#pkeys[this.ownIndex] as number;
  }

  /** Index of an entry that can talk to a P_Key; undefined = there is none. */
  indexOf(pkey: number): number | undefined {
    const find = (own: number) => {
      const index = this.#pkeys.indexOf(own);
      return index < 0 ? undefined : index;
    };
    const limited = pkey & 0x7fff;
    return find(limited | 0x8000) ?? (isFull(pkey) ? find(limited) : undefined);
  }
}
