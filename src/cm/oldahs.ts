/** Address handles that have served, but to which a datagram may still be waiting to go: they are closed once none is. */
import type { Device } from '../verbs/context.js';
import type { Ah } from '../verbs/udah.js';

const known = new WeakMap<Device, OldAhs>();

export class OldAhs {
  readonly #ahs = new Set<Ah>();

  /** The device's. */
  static of(device: Device): OldAhs {
    const old = known.get(device) ?? new OldAhs();
    known.set(device, old);
    return old;
  }

  /** From now on it does not keep its domain open. */
  add(ah: Ah): void {
    if (!ah.isClosed) this.#ahs.add(ah.attend());
    this.close();
  }

  /** Those to which nothing goes any more. */
  close(): void {
    for (const ah of this.#ahs)
      ah.close().then(
        () => this.#ahs.delete(ah),
        () => {},
      );
  }
}
