/** rdma_cm for those programs of the broker that have no CM of their own: C programs with librdmacm. */

import { gidText } from '../../base/gid.js';
import type { Message } from '../../base/message.js';
import { text, texts } from '../../base/options.js';
import { VerbsError } from '../../errors.js';
import { CmDevices } from './devices.js';
import { CmProgram } from './program.js';

/** A program as the broker knows it. */
export interface Client {
  /** Bits 16 to 23 of its queue pair numbers. */
  readonly slot: number;
}

/** A program that has opened rdma_cm. */
interface Opened {
  readonly program: CmProgram;
  readonly release: () => void;
}

const GUID_DIGITS = /^[0-9a-f]{16}$/;

/** See the head of this file. */
export class RdmaCm {
  readonly #devices = new CmDevices();
  readonly #opened = new Map<Client, Promise<Opened>>();

  /**
   * Opens a file of rdma_cm for a program.
   * @param message see src/link/broker/protocol.ts
   * @returns number and file descriptors of the file; the caller closes them
   * @throws TypeError for a wrong message; as `openDevice`
   */
  async open(client: Client, message: Message): Promise<{ readonly number: number; readonly fds: readonly number[] }> {
    let opened = this.#opened.get(client);
    if (opened === undefined) {
      opened = this.#start(client, message);
      this.#opened.set(client, opened);
      opened.catch(() => this.#opened.delete(client));
    }
    return (await opened).program.open();
  }

  /** A program has ended, or has closed its device. */
  end(client: Client): void {
    const opened = this.#opened.get(client);
    this.#opened.delete(client);
    opened?.then(
      ({ program, release }) => {
        program.close();
        release();
      },
      () => {},
    );
  }

  close(): void {
    for (const client of [...this.#opened.keys()]) this.end(client);
  }

  async #start({ slot }: Client, message: Message): Promise<Opened> {
    const { interface: name, addresses, guid } = message;
    text('interface', name);
    texts('addresses', addresses);
    if (typeof guid !== 'string' || !GUID_DIGITS.test(guid)) throw new TypeError('no GUID');
    const own = addresses as readonly string[];
    const device = await this.#devices.use(name as string, own);
    const table = own.map((address) => gidText(address));
    const program = new CmProgram({
      device,
      guid: Buffer.from(guid, 'hex'),
      gidIndexOf: (address) => {
        const index = table.indexOf(gidText(address));
        if (index >= 0) return index;
        throw new VerbsError('EADDRNOTAVAIL', `${address} is not an address of the program`);
      },
      ownsQpn: (qpNum) => qpNum >>> 16 === slot,
    });
    return { program, release: () => this.#devices.release(name as string, own) };
  }
}
