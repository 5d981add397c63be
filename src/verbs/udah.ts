/** Address handles of the card (ibv_ah): where datagrams go. */
import { VerbsError } from '../errors.js';
import { AddressHandle, type AhAttr, mtuWithin, udpSourcePort } from './ah.js';
import type { Device } from './context.js';
import type { Pd } from './pd.js';
import { Resource } from './resource.js';

/**
 * An address handle of a protection domain: a resolved address that the card holds, for the datagrams of the domain's
 * queue pairs. `pd.createAh` makes it. `qp.modify({ahAttr})` takes it as well.
 */
export class Ah extends Resource {
  readonly kind = 'ah';
  readonly label: string;
  /** Bytes that a datagram on this way may carry. */
  readonly maxMessage: number;
  readonly #handle: number;

  /** @internal Use `pd.createAh`. */
  constructor(
    readonly pd: Pd,
    readonly address: AddressHandle,
  ) {
    super([pd]);
    const { card, link } = pd.device;
    const { activeMtu } = pd.device.queryPort();
    this.label = address.destination;
    this.maxMessage = Math.min(activeMtu, address.pathMtu === undefined ? activeMtu : mtuWithin(address.pathMtu));
    // no queue pair numbers to derive a port from: the flow label alone, or the first port, as Linux has it
    address.write(card, link.features.sourcePort || udpSourcePort(address.flowLabel, 0, 0));
    this.#handle = card.exports.ahCreate(pd.handle);
    if (this.#handle === 0) throw new VerbsError('ENOMEM', 'no memory for an address handle');
    this.opened();
  }

  /** @internal */
  get handle(): number {
    return this.#handle;
  }

  protected free(): void {
    const refused = this.pd.device.card.exports.ahDestroy(this.#handle);
    if (refused !== 0) throw new VerbsError('EBUSY', `${this}: a datagram that is to go there has not left yet`);
  }
}

/** @internal The address that an attribute of a queue pair names. @throws as `device.createAh` */
export async function addressOf(device: Device, attr: AhAttr | AddressHandle | Ah): Promise<AddressHandle> {
  if (attr instanceof Ah) return attr.address;
  return attr instanceof AddressHandle ? attr : await device.createAh(attr);
}
