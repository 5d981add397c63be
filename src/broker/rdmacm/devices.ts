/**
 * The devices by which the broker speaks the CM for programs whose queue pairs are their own: one for all programs of
 * the same addresses. It is a device of this process, and shares the addresses as theirs do.
 */
import type { Context } from '../../verbs/objects/context.js';
import { openDevice } from '../../verbs/open.js';

/** Queue pair 1, its buffers, and what the card needs itself. */
const MEMORY_BYTES = 2 ** 26;

interface Shared {
  readonly device: Promise<Context>;
  users: number;
}

/** See the head of this file. */
export class CmDevices {
  readonly #shared = new Map<string, Shared>();

  /**
   * Returns the device of some addresses, which is opened if there is none. Each call is followed by `release`.
   * @throws as `openDevice`
   */
  async use(name: string, addresses: readonly string[]): Promise<Context> {
    const key = keyOf(name, addresses);
    let shared = this.#shared.get(key);
    if (shared === undefined) {
      const options = { link: 'udp', interface: name, addresses, broker: true, memoryBytes: MEMORY_BYTES } as const;
      shared = { device: openDevice(options), users: 0 };
      this.#shared.set(key, shared);
    }
    shared.users++;
    try {
      return await shared.device;
    } catch (error) {
      this.release(name, addresses);
      throw error;
    }
  }

  /** Ends a use. The last one closes the device. */
  release(name: string, addresses: readonly string[]): void {
    const key = keyOf(name, addresses);
    const shared = this.#shared.get(key);
    if (shared === undefined || --shared.users > 0) return;
    this.#shared.delete(key);
    shared.device.then(
      (device) => device.close({ force: true }),
      () => {},
    );
  }
}

const keyOf = (name: string, addresses: readonly string[]) => [name, ...addresses].join(' ');
