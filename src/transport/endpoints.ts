/** The open endpoints of a device, by `connect`, `listen` and `createSocket`: all end before the device closes. */

import { NumberMap } from '../base/numbermap.js';
import { clearTimeout, setTimeout } from '../base/timers.js';
import { VerbsError } from '../errors.js';
import type { Context } from '../verbs/objects/context.js';
import type { DeviceBase } from '../verbs/objects/devicebase.js';

/** A server, a request that waits for its answer, a connection, an attempt to connect, or a datagram socket. */
export interface Endpoint {
  /** Ends it in order. */
  close(): Promise<unknown>;
  /** Ends it at once, and notifies everything that waits for it. */
  destroy(): void;
}

/** Time for everything to end in order when the device is closed (ms). What is left then is destroyed. */
const CLOSE_TIMEOUT = 5000;

const byDevice = new WeakMap<DeviceBase, Endpoints>();

export class Endpoints {
  readonly #device: Context;
  readonly #all = new NumberMap<Endpoint>();
  #isClosing = false;

  private constructor(device: Context) {
    this.#device = device;
  }

  /** Returns the endpoints of a device. */
  static of(device: Context): Endpoints {
    const endpoints = byDevice.get(device) ?? new Endpoints(device);
    byDevice.set(device, endpoints);
    return endpoints;
  }

  /** @throws VerbsError EINVAL when the device is closed or closing, EIO when it has failed */
  assertOpen(): void {
    this.#device.assertOpen();
    if (this.#isClosing) throw new VerbsError('EINVAL', `${this.#device} is closing`);
  }

  /** @returns the number of the endpoint, for `delete` */
  add(endpoint: Endpoint): number {
    return this.#all.add(endpoint);
  }

  delete(number: number): void {
    this.#all.delete(number);
  }

  /** Ends everything in order; what takes too long is destroyed. */
  async closeAll(): Promise<void> {
    this.#isClosing = true;
    // A request that was answered in the meantime has become a connection.
    while (this.#all.size > 0) await Promise.all(Array.from(this.#all, (entry) => this.#close(...entry)));
    this.#isClosing = false;
  }

  /** Ends everything at once. */
  destroyAll(): void {
    for (const endpoint of this.#all.values()) endpoint.destroy();
    this.#all.clear();
  }

  async #close(number: number, endpoint: Endpoint): Promise<void> {
    const late = setTimeout(() => endpoint.destroy(), CLOSE_TIMEOUT);
    try {
      await endpoint.close();
    } catch {
      // Objects of the application are still in use: closing the device names them.
    } finally {
      clearTimeout(late);
      this.#all.delete(number);
    }
  }
}
