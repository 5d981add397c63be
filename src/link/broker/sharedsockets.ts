/**
 * The UDP sockets of a link whose addresses other programs share: the broker lends one for each address, and packets to
 * each of the programs leave from another source port, as far as there are sockets.
 */
import { ipBytes, isLinkLocal } from '../../base/address.js';
import { type NativeUdpSockets, native } from '../../native.js';
import { errnoError } from '../errno.js';
import { ROCE_PORT } from '../headers.js';
import type { LinkFeatures, SharedPort } from '../link.js';
import { BrokerClient } from './client.js';
import type { HostAddress } from './protocol.js';

/**
 * Source ports of an address. Programs whose slots are so far apart have the same one: GRO may join packets for two of
 * them, and the one that does not get its packets asks for them again.
 */
const SOURCE_PORTS = 16;

/** Options of `SharedSockets.open`. */
export interface SharedSocketsOptions {
  /** Index of the link's interface, by which datagrams to groups leave. */
  readonly ifindex: number;
  readonly addresses: readonly string[];
  /** Bytes of the receive buffer and of the send buffer of each socket. */
  readonly bufferBytes: number;
  /** Whether the link takes its packets from the interface itself, except for requests of the CM. */
  readonly onlyLocal: boolean;
}

/** Returns an address as its sockets are bound to it. */
export function hostAddress(address: string, ifindex: number): HostAddress {
  return { address, scope: isLinkLocal(ipBytes(address)) ? ifindex : 0 };
}

/** See the head of this file. */
export class SharedSockets {
  readonly port: SharedPort;
  readonly #broker: BrokerClient;
  readonly #sockets: NativeUdpSockets;
  readonly #ifindex: number;
  readonly #bufferBytes: number;
  /** Sockets that the broker has been asked for, by address. */
  readonly #requested = new Map<string, Promise<number | undefined>>();
  /** By local address and program. They stay when the address goes: it may come back to the same peers. */
  readonly #sourcePorts = new Map<string, number>();

  /**
   * Joins the broker, and adds its socket for each address.
   * @param sockets closed if that fails
   * @throws VerbsError as `BrokerClient.join`; EADDRINUSE if rxe or a program without the broker has the port;
   * EADDRNOTAVAIL
   */
  static async open(sockets: NativeUdpSockets, options: SharedSocketsOptions): Promise<SharedSockets> {
    const { addresses, ifindex, onlyLocal } = options;
    let shared: SharedSockets | undefined;
    try {
      const on = addresses.map((address) => hostAddress(address, ifindex));
      shared = new SharedSockets(sockets, options, await BrokerClient.join(on, onlyLocal));
      for (const address of addresses) await shared.add(address);
      return shared;
    } catch (error) {
      sockets.close();
      shared?.close();
      throw error;
    }
  }

  private constructor(sockets: NativeUdpSockets, { ifindex, bufferBytes }: SharedSocketsOptions, broker: BrokerClient) {
    this.#sockets = sockets;
    this.#ifindex = ifindex;
    this.#bufferBytes = bufferBytes;
    this.#broker = broker;
    broker.onControl = (fd) => this.port.onControl(fd);
    this.port = {
      slot: broker.slot,
      onLost: () => {},
      onControl: (fd) => native().closeFd(fd),
      handleMads: () => broker.handleMads(),
      listen: async (id, address) => {
        await this.#requested.get(address)?.catch(() => {});
        return broker.listen({ id, ...hostAddress(address, ifindex) });
      },
    };
  }

  /** The features of a link with the sockets: it gets packets to the queue pairs of its slot. */
  get features(): Pick<LinkFeatures, 'flowSteering'> {
    return { flowSteering: { mask: 0xff0000, value: this.port.slot << 16 } };
  }

  /** @param onLost closes the link, because its sockets may receive what is for another program */
  onLost(onLost: () => void): void {
    this.#broker.onLost = ({ message }) => {
      onLost();
      this.port.onLost(message);
    };
  }

  /**
   * Adds the socket of an address.
   * @param isWanted says whether the link still has the address when the broker has replied
   * @returns the socket; undefined if it is not wanted
   */
  add(address: string, isWanted: () => boolean = () => true): Promise<number | undefined> {
    const added = this.#adopt(address, isWanted);
    this.#requested.set(address, added);
    return added;
  }

  async #adopt(address: string, isWanted: () => boolean): Promise<number | undefined> {
    const at = hostAddress(address, this.#ifindex);
    const fd = await this.#broker.socketOf(at);
    const bytes = ipBytes(address);
    const result = isWanted()
      ? this.#sockets.adopt(fd, bytes, ROCE_PORT, at.scope, this.#bufferBytes, this.#ifindex)
      : undefined;
    native().closeFd(fd);
    if (result === 0) return this.#sockets.fdOf(bytes);
    this.#broker.release(at);
    if (result === undefined) return undefined;
    throw errnoError(result, `the socket of ${address} cannot be used`, {});
  }

  /** Closes the socket of an address. */
  remove(address: string): void {
    this.#sockets.remove(ipBytes(address));
    this.#requested.delete(address);
    this.#broker.release(hostAddress(address, this.#ifindex));
  }

  /** As `Link.sourcePortTo`. */
  sourcePortTo(source: string, program: number | 'any'): number {
    if (program === 0) return ROCE_PORT;
    const key = `${source} ${program === 'any' ? program : program % SOURCE_PORTS}`;
    const known = this.#sourcePorts.get(key);
    if (known !== undefined) return known;
    const { scope } = hostAddress(source, this.#ifindex);
    const port = this.#sockets.addSender(ipBytes(source), 0, scope, this.#bufferBytes, program !== 'any');
    // without a socket GRO may join packets for two programs, which costs retransmissions
    if (port < 0) return ROCE_PORT;
    this.#sourcePorts.set(key, port);
    return port;
  }

  /** Returns the result of a function that opens a link with the sockets. If it throws, they are closed. */
  closedUnless<T>(open: () => T): T {
    try {
      return open();
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Closes the sockets and leaves the broker. A second call does nothing. */
  close(): void {
    this.#sockets.close();
    // after them: it lends them to others
    this.#broker.close();
  }
}
