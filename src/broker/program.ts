/** A device of a program that uses sockets of the broker. */

import type { BrokerConnection } from '../link/broker/connection.js';
import { openPoller } from '../link/poller.js';
import { type NativePoller, native } from '../native.js';

/**
 * See the head of this file. The program holds the other end of the lease as long as it lives, whether or not it is
 * connected: one whose event loop is busy keeps its slot when the broker is replaced.
 */
export class Program {
  /** Undefined while the program is not connected. */
  connection: BrokerConnection | undefined;
  /** Keys of the addresses that it has asked for. */
  readonly addresses = new Set<string>();
  isAgent = false;
  /**
   * Addresses of the GID table of a program of the library, in its order: the broker serves its controllers. Undefined:
   * the program does.
   */
  gidAddresses: readonly string[] | undefined;
  readonly #poller: NativePoller;

  /**
   * @param number another one for each program of the broker
   * @param lease the broker's end, which the program owns from now on
   * @param onEnd the program has ended, or has closed the device
   * @throws VerbsError EIO
   */
  constructor(
    readonly number: number,
    readonly slot: number,
    readonly secret: string,
    /** Whether it takes its packets from the interfaces itself. */
    readonly onlyLocal: boolean,
    readonly lease: number,
    onEnd: () => void,
  ) {
    const onReadable = () => {
      // nothing is ever sent on a lease, so this is its end
      if (native().unix.receive(lease, false) === undefined) return onEnd();
      this.#poller.start(-1, false);
    };
    try {
      this.#poller = openPoller([lease], onReadable);
    } catch (error) {
      native().closeFd(lease);
      throw error;
    }
    this.#poller.start(-1, false);
  }

  close(): void {
    this.#poller.close();
    native().closeFd(this.lease);
    this.connection?.close();
  }
}
