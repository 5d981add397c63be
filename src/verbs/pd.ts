/** Protection domains: queue pairs reach only the memory regions of their own domain. */
import { VerbsError } from '../errors.js';
import { AddressHandle, type AhAttr } from './ah.js';
import type { Device } from './context.js';
import { FastMr } from './fastmr.js';
import { Mr, type MrOptions } from './mr.js';
import { Mw } from './mw.js';
import { Qp } from './qp.js';
import type { QpOptions } from './qpoptions.js';
import { Resource } from './resource.js';
import { Srq, type SrqOptions } from './srq.js';
import { Ah } from './udah.js';
import type { Wc } from './wc.js';

export class Pd extends Resource {
  readonly kind = 'pd';
  readonly label: string;
  readonly #handle: number;

  /** @internal Use `device.allocPd`. */
  constructor(
    readonly device: Device,
    number: number,
  ) {
    super([device]);
    this.label = String(number);
    this.#handle = device.card.exports.pdAlloc();
    if (this.#handle === 0) throw new VerbsError('ENOMEM', 'no protection domain left');
    this.opened();
  }

  /** @internal */
  get handle(): number {
    return this.#handle;
  }

  /**
   * Registers memory. A number allocates so many zeroed bytes in the card; a Buffer that lies in a region's memory
   * (`mr.buffer`, a part of it), or a region, registers the same bytes once more, with other rights or another `iova`.
   * @throws TypeError, RangeError for wrong arguments; VerbsError ENOMEM when memory or regions are used up, EINVAL for
   * rights that do not go together
   */
  async regMr(source: number | Uint8Array | Mr, options: MrOptions = {}): Promise<Mr> {
    this.assertOpen();
    return new Mr(this, this.#handle, this.device.memory, source, options);
  }

  /** Allocates a region for fast registration: it has no memory until a REG_MR gives it some. @throws VerbsError ENOMEM */
  async allocMr(): Promise<FastMr> {
    this.assertOpen();
    return new FastMr(this);
  }

  /** Allocates a memory window of type 1 or 2 (ibv_alloc_mw), not bound yet. @throws TypeError, VerbsError ENOMEM */
  async allocMw(type: 1 | 2 = 2): Promise<Mw> {
    this.assertOpen();
    return new Mw(this, type);
  }

  /**
   * Creates a queue pair in state RESET.
   * @throws TypeError, RangeError for wrong arguments; VerbsError ENOMEM
   */
  async createQp(options: QpOptions): Promise<Qp> {
    this.assertOpen();
    return new Qp(this, options);
  }

  /**
   * Creates a shared receive queue.
   * @throws TypeError, RangeError for wrong arguments; VerbsError ENOMEM
   */
  async createSrq(options: SrqOptions = {}): Promise<Srq> {
    this.assertOpen();
    return new Srq(this, this.device.nextNumber(), options);
  }

  /**
   * An address handle for the datagrams of this domain's queue pairs. For a group nothing is looked up.
   * @param address where to, or what `device.createAh` has looked up already
   * @throws as `device.createAh`; VerbsError ENOMEM
   */
  async createAh(address: AhAttr | AddressHandle): Promise<Ah> {
    this.assertOpen();
    const resolved = address instanceof AddressHandle ? address : await this.device.createAh(address);
    this.assertOpen();
    return new Ah(this, resolved);
  }

  /**
   * An address handle to whom a datagram came from (ibv_create_ah_from_wc); `device.ahAttrFromWc` shows what it is made
   * from. Its queue pair number is `wc.srcQp`.
   * @param buffer the start of the memory in which the datagram arrived
   * @throws as `createAh` and `device.ahAttrFromWc`
   */
  async createAhFromWc(wc: Wc, buffer: Uint8Array): Promise<Ah> {
    return this.createAh(this.device.ahAttrFromWc(wc, buffer));
  }

  protected free(): void {
    const refused = this.device.card.exports.pdFree(this.#handle);
    if (refused !== 0) throw new VerbsError('EBUSY', `${this} is in use`);
  }
}
