/** Address handles (ibv_ah): destinations of datagrams. */

import type { WaitOptions } from '../../base/waiting.js';
import { invalidValue, VerbsError } from '../../errors.js';
import type { Link } from '../../link/link.js';
import { type AhAttr, maxPathMtu, ResolvedAddress } from '../address/resolvedaddress.js';
import { sourcePortOf } from '../address/sourceport.js';
import type { Description } from '../diagnose/describe.js';
import type { DeviceBase } from './devicebase.js';
import type { Domain } from './domain.js';
import { Resource } from './resource.js';

/**
 * An address handle (ibv_ah): the destination of datagrams of its protection domain's UD queue pairs. `pd.createAh`
 * creates it; `qp.modify({ahAttr})` accepts it as well.
 *
 * @example
 * ```ts
 * const ah = await pd.createAh({ grh: { dgid: '10.0.0.2' } });
 * qp.postSend({ opcode: 'SEND', sgList: mr.sge(0, 64), ah, remoteQpn: 0x11, remoteQkey: 0x1234 });
 * ```
 */
export class AddressHandle extends Resource {
  /** Always `ah`. */
  readonly kind = 'ah';
  /** The destination's IP address. */
  readonly label: string;
  /** Largest payload of a datagram to this address, in bytes: the path MTU. */
  readonly maxMessage: number;
  readonly #handle: number;
  /** Handles for the same destination with another UDP source port, by port. */
  #byPort: Map<number, number> | undefined;
  /** The handle of the last datagram, and its destination: most go to the same queue pair. */
  #lastHandle = 0;
  #lastQpn = -1;
  readonly #pathNumber: number;
  #address: ResolvedAddress;
  readonly #pd: Domain;
  readonly #link: Link;

  /** @internal Use `pd.createAh`. */
  constructor(
    /** Protection domain of the handle. */
    readonly pd: Domain,
    address: ResolvedAddress,
  ) {
    super([pd]);
    this.#pd = pd;
    this.#link = pd.device.link;
    this.#address = address;
    const { paths } = pd.device;
    const { activeMtu } = pd.device.queryPort();
    this.label = address.destination;
    this.maxMessage = Math.min(activeMtu, address.pathMtu === undefined ? activeMtu : maxPathMtu(address.pathMtu));
    this.#handle = this.#create(sourcePortOf(this.#link, address, 0, 0));
    this.addToParents();
    this.#pathNumber = paths.add(this);
  }

  /** The resolved address, by its present next hop. */
  get address(): ResolvedAddress {
    return this.#address;
  }

  /** @internal */
  reroute(address: ResolvedAddress): void {
    const { card } = this.pd.device;
    const link = this.#link;
    this.#address = address;
    // the source ports are others if the destination was an address of this host, or is one now
    this.#lastQpn = -1;
    card.exclusively(() => {
      // Without queue pair numbers, the source port follows from the flow label alone, as in Linux.
      address.write(card, sourcePortOf(link, address, 0, 0));
      card.exports.ahReroute(this.#handle);
      for (const [port, handle] of this.#byPort ?? []) {
        address.write(card, port);
        card.exports.ahReroute(handle);
      }
    });
  }

  #create(sourcePort: number): number {
    const { card } = this.pd.device;
    this.#address.write(card, sourcePort);
    const handle = card.exports.ahCreate(this.pd.handle);
    if (handle === 0) throw new VerbsError('ENOMEM', 'no memory for an address handle');
    return handle;
  }

  /** Returns the card's handle with the source port for a queue pair. */
  #handleTo(remoteQpn: number): number {
    if (remoteQpn === this.#lastQpn) return this.#lastHandle;
    this.#lastHandle = this.#handleBy(remoteQpn);
    this.#lastQpn = remoteQpn;
    return this.#lastHandle;
  }

  #handleBy(remoteQpn: number): number {
    const link = this.#link;
    if (link.sourcePortTo === undefined) return this.#handle;
    const port = sourcePortOf(link, this.#address, 0, remoteQpn);
    if (port === sourcePortOf(link, this.#address, 0, 0)) return this.#handle;
    this.#byPort ??= new Map();
    const handle = this.#byPort.get(port) ?? this.#create(port);
    this.#byPort.set(port, handle);
    return handle;
  }

  /** @internal Whether a value is an address handle, and not merely an object like one. */
  static isOne(value: unknown): value is AddressHandle {
    return typeof value === 'object' && value !== null && #handle in value;
  }

  /**
   * @internal Returns the card's handle of an address handle, for a datagram of a queue. Reads nothing that a program
   * can replace.
   * @param remoteQpn the destination queue pair; 0: the source port of the frame is set apart
   * @throws TypeError in another domain than the queue's; VerbsError EINVAL after close, ENOMEM
   */
  static handleFor(ah: AddressHandle, queue: { readonly pd: Domain; toString(): string }, remoteQpn: number): number {
    Resource.prototype.assertOpen.call(ah);
    if (ah.#pd !== queue.pd) throw invalidValue(`ah belongs to ${ah.#pd}, ${queue} to ${queue.pd}`);
    return ah.#handleTo(remoteQpn);
  }

  /** @internal */
  protected override describe(): Description {
    const { destination, source, sgidIndex, pathMtu } = this.address;
    return { destination, source, sgidIndex, pathMtu };
  }

  /** @internal */
  protected free(): void {
    const { exports } = this.pd.device.card;
    const destroy = (handle: number) => {
      if (exports.ahDestroy(handle) !== 0)
        throw new VerbsError('EBUSY', `${this} is in use: a datagram to it has not been sent yet`);
    };
    for (const [port, handle] of this.#byPort ?? []) {
      destroy(handle);
      this.#byPort?.delete(port);
    }
    this.#lastQpn = -1;
    destroy(this.#handle);
    this.pd.device.paths.remove(this.#pathNumber);
  }
}

/** @internal Resolves the `ahAttr` of a queue pair. @throws as `device.resolveAddress` */
export async function resolveAhAttr(
  device: DeviceBase,
  attr: AhAttr | ResolvedAddress | AddressHandle,
  wait: WaitOptions,
): Promise<ResolvedAddress> {
  if (attr instanceof AddressHandle) return attr.address;
  return attr instanceof ResolvedAddress ? attr : await device.resolveAddress(attr, wait);
}
