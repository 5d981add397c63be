/** Address handles (ibv_ah): destinations of datagrams. */

import type { WaitOptions } from '../../base/waiting.js';
import { invalidValue, VerbsError } from '../../errors.js';
import { type AhAttr, maxPathMtu, ResolvedAddress, udpSourcePort } from '../address/resolvedaddress.js';
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
  readonly #pathNumber: number;
  #address: ResolvedAddress;
  readonly #pd: Domain;

  /** @internal Use `pd.createAh`. */
  constructor(
    /** Protection domain of the handle. */
    readonly pd: Domain,
    address: ResolvedAddress,
  ) {
    super([pd]);
    this.#pd = pd;
    this.#address = address;
    const { card, paths } = pd.device;
    const { activeMtu } = pd.device.queryPort();
    this.label = address.destination;
    this.maxMessage = Math.min(activeMtu, address.pathMtu === undefined ? activeMtu : maxPathMtu(address.pathMtu));
    this.#write();
    this.#handle = card.exports.ahCreate(pd.handle);
    if (this.#handle === 0) throw new VerbsError('ENOMEM', 'no memory for an address handle');
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
    this.#address = address;
    card.exclusively(() => {
      this.#write();
      card.exports.ahReroute(this.#handle);
    });
  }

  /** Without queue pair numbers, the source port follows from the flow label alone, as in Linux. */
  #write(): void {
    const { card, link } = this.pd.device;
    this.#address.write(card, link.features.sourcePort || udpSourcePort(this.#address.flowLabel, 0, 0));
  }

  /** @internal Whether a value is an address handle, and not merely an object like one. */
  static isOne(value: unknown): value is AddressHandle {
    return typeof value === 'object' && value !== null && #handle in value;
  }

  /**
   * @internal Returns the card's handle of an address handle, for a datagram of a queue. Reads nothing that a program
   * can replace.
   * @throws TypeError in another domain than the queue's; VerbsError EINVAL after close
   */
  static handleFor(ah: AddressHandle, queue: { readonly pd: Domain; toString(): string }): number {
    Resource.prototype.assertOpen.call(ah);
    if (ah.#pd !== queue.pd) throw invalidValue(`ah belongs to ${ah.#pd}, ${queue} to ${queue.pd}`);
    return ah.#handle;
  }

  /** @internal */
  protected override describe(): Description {
    const { destination, source, sgidIndex, pathMtu } = this.address;
    return { destination, source, sgidIndex, pathMtu };
  }

  /** @internal */
  protected free(): void {
    const refused = this.pd.device.card.exports.ahDestroy(this.#handle);
    if (refused !== 0) throw new VerbsError('EBUSY', `${this} is in use: a datagram to it has not been sent yet`);
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
