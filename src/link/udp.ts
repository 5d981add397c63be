/**
 * The `udp` link: an ordinary UDP socket on port 4791 for each local address. Needs no privilege. The card's frames are
 * taken apart on the way out and put together again on the way in; what a socket cannot see is said in the features.
 */
import { type NativeUdpSockets, native } from '../native.js';
import { ipBytes, isLinkLocal } from './address.js';
import { refusal } from './errno.js';
import { ETHERNET_BYTES } from './hostlink.js';
import { chooseInterface, type HostInterface } from './interfaces.js';
import type { LinkFeatures, Resolved } from './link.js';
import { resolveRoute } from './resolve.js';
import { DEFAULT_BUFFER_BYTES, ROCE_PORT, SocketLink } from './sockets.js';

export interface UdpLinkOptions {
  /** Name of the interface; by default the one that has the first of `addresses`. */
  readonly interface?: string;
  /** Local addresses that the card uses; by default all of the interface. */
  readonly addresses?: readonly string[];
  /** Bytes of the receive and send buffers of a socket; without CAP_NET_ADMIN the system's limit caps it. */
  readonly bufferBytes?: number;
}

export class UdpLink extends SocketLink {
  readonly kind = 'udp';
  readonly #sockets: NativeUdpSockets;
  readonly #bufferBytes: number;
  readonly #segments: boolean;

  /** @throws VerbsError EADDRINUSE when rxe or another card has the port, ENODEV, EADDRNOTAVAIL, EOPNOTSUPP */
  static open(options: UdpLinkOptions): UdpLink {
    const only = (options.addresses?.length ?? 0) > 0;
    return new UdpLink(chooseInterface(options), options.bufferBytes ?? DEFAULT_BUFFER_BYTES, only);
  }

  private constructor(end: HostInterface, bufferBytes: number, only: boolean) {
    const sockets = new (native().UdpSockets)();
    for (const address of end.addresses) {
      const bytes = ipBytes(address);
      const refused = sockets.add(bytes, ROCE_PORT, isLinkLocal(bytes) ? end.index : 0, bufferBytes, end.index);
      if (refused === 0) continue;
      sockets.close();
      throw refusal(refused, `UDP port ${ROCE_PORT} of ${address} cannot be opened`, {
        EADDRINUSE: `UDP port ${ROCE_PORT} of ${address} is taken: by an rxe device of this host, or by another card`,
        EADDRNOTAVAIL: `${address} is no address of this host any more`,
        EPERM: `opening UDP port ${ROCE_PORT} of ${address} is forbidden`,
      });
    }
    super(end, sockets, sockets.fds(), only);
    this.#sockets = sockets;
    this.#bufferBytes = bufferBytes;
    this.#segments = sockets.segments();
  }

  get features(): LinkFeatures {
    return {
      maxFrame: this.interface.mtu + ETHERNET_BYTES,
      ipHeaderVisible: false,
      sourcePort: ROCE_PORT,
      ipIdentification: 'zero',
      ...this.offload,
      ...(this.#segments && this.together),
    };
  }

  async resolve(destination: string, source: string): Promise<Resolved> {
    return resolveRoute(this.interface, destination, source);
  }

  /** @throws VerbsError EADDRINUSE when rxe has the port */
  joinGroup(group: string): void {
    const { index } = this.interface;
    const fd = this.#sockets.addGroup(ipBytes(group), ROCE_PORT, index, this.#bufferBytes, index);
    if (fd < 0)
      throw this.cannotJoin(fd, group, {
        EADDRINUSE: `UDP port ${ROCE_PORT} of ${group} is taken, by an rxe device of this host perhaps`,
      });
    this.watch(fd);
  }

  leaveGroup(group: string): void {
    this.#sockets.removeGroup(ipBytes(group));
  }

  /** A port that somebody else has stays theirs: frames from that address are counted as invalid. */
  protected addAddress(_address: string, bytes: Uint8Array): void {
    const { index } = this.interface;
    const refused = this.#sockets.add(bytes, ROCE_PORT, isLinkLocal(bytes) ? index : 0, this.#bufferBytes, index);
    if (refused === 0) this.watch(this.#sockets.fds().at(-1) as number);
  }

  protected removeAddress(_address: string, bytes: Uint8Array): void {
    this.#sockets.remove(bytes);
  }
}
