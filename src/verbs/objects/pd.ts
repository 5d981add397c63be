/** Protection domains. */

import type { WaitOptions } from '../../base/waiting.js';
import { VerbsError } from '../../errors.js';
import type { AhAttr, ResolvedAddress } from '../address/resolvedaddress.js';
import type { Wc } from '../work/wc.js';
import { AddressHandle, resolveAhAttr } from './ah.js';
import type { DeviceBase } from './devicebase.js';
import { FastMr } from './fastmr.js';
import type { MemorySource } from './memorysource.js';
import { Mr, type MrOptions } from './mr.js';
import { Mw } from './mw.js';
import { Qp } from './qp.js';
import type { QpOptions } from './qpoptions.js';
import { Resource } from './resource.js';
import { Srq, type SrqOptions } from './srq.js';

/**
 * A protection domain (ibv_pd): queue pairs access only the memory regions of their own domain. `device.allocPd`
 * creates it.
 *
 * @example
 * ```ts
 * const pd = await device.allocPd();
 * const mr = await pd.regMr(65536, { access: ['localWrite', 'remoteRead'] });
 * const qp = await pd.createQp({ sendCq: cq, maxSendWr: 128 });
 * console.log(mr.remote, qp.endpoint());
 * ```
 */
export class Pd extends Resource {
  /** Always `pd`. */
  readonly kind = 'pd';
  /** Number of the domain on its device. */
  readonly label: string;
  readonly #handle: number;

  /** @internal Use `device.allocPd`. */
  constructor(
    /** Device of the domain. */
    readonly device: DeviceBase,
    number: number,
  ) {
    super([device]);
    this.label = String(number);
    this.#handle = device.card.exports.pdAlloc();
    if (this.#handle === 0) throw new VerbsError('ENOMEM', 'no protection domain left');
    this.addToParents();
  }

  /** @internal */
  get handle(): number {
    return this.#handle;
  }

  /**
   * Registers memory (ibv_reg_mr), of at most 4,294,967,295 bytes.
   * @param source a number of bytes to allocate, zeroed, in the card's memory; or memory of the program, which is not
   * copied: a Buffer or another view, an ArrayBuffer or a SharedArrayBuffer, also of a WebAssembly memory; or a region.
   * Memory may be registered repeatedly, in parts, with other rights or another `iova`
   * @throws TypeError, RangeError for wrong arguments, such as a resizable ArrayBuffer, which could become shorter;
   * VerbsError ENOMEM when memory or regions are exhausted, EINVAL for an invalid combination of rights, EOPNOTSUPP for
   * an ArrayBuffer in a runtime whose V8 does not let the addon keep its memory
   */
  async regMr(source: number | MemorySource | Mr, options: MrOptions = {}): Promise<Mr> {
    this.assertOpen();
    return new Mr(this, this.#handle, this.device.memory, source, options);
  }

  /**
   * Allocates a fast memory region, which has no memory until a REG_MR work request.
   * @throws VerbsError ENOMEM when no region is left
   */
  async allocMr(): Promise<FastMr> {
    this.assertOpen();
    return new FastMr(this);
  }

  /**
   * Allocates a memory window, not bound yet (ibv_alloc_mw).
   * @param type 1 or 2. Default 2
   * @throws TypeError for another type; VerbsError ENOMEM when no window is left
   */
  async allocMw(type: 1 | 2 = 2): Promise<Mw> {
    this.assertOpen();
    return new Mw(this, type);
  }

  /**
   * Creates a queue pair in state RESET (ibv_create_qp).
   * @throws TypeError, RangeError for wrong arguments; VerbsError ENOMEM when memory or queue pairs are exhausted
   */
  async createQp(options: QpOptions): Promise<Qp> {
    this.assertOpen();
    return new Qp(this, options);
  }

  /**
   * Creates a shared receive queue (ibv_create_srq).
   * @throws TypeError, RangeError for wrong arguments; VerbsError ENOMEM when memory is exhausted
   */
  async createSrq(options: SrqOptions = {}): Promise<Srq> {
    this.assertOpen();
    return new Srq(this, this.device.nextNumber(), options);
  }

  /**
   * Creates an address handle for datagrams of this domain's UD queue pairs (ibv_create_ah). Multicast addresses need
   * no look-up.
   * @param address the destination, or the result of `device.resolveAddress`
   * @param wait limits the time to resolve the destination
   * @throws as `device.resolveAddress`; VerbsError ENOMEM when memory is exhausted
   */
  async createAh(address: AhAttr | ResolvedAddress, wait: WaitOptions = {}): Promise<AddressHandle> {
    this.assertOpen();
    const resolved = await resolveAhAttr(this.device, address, wait);
    this.assertOpen();
    return new AddressHandle(this, resolved);
  }

  /**
   * Creates an address handle for the sender of a datagram (ibv_create_ah_from_wc), from the attributes of
   * `device.ahAttrFromWc`. The sender's queue pair number is `wc.srcQp`.
   * @param wc the datagram's completion
   * @param buffer start of the receive's memory, at least 40 bytes
   * @param wait limits the time to resolve the destination
   * @throws as `createAh` and `device.ahAttrFromWc`
   */
  async createAhFromWc(wc: Wc, buffer: Uint8Array, wait: WaitOptions = {}): Promise<AddressHandle> {
    return this.createAh(this.device.ahAttrFromWc(wc, buffer), wait);
  }

  /** @internal */
  protected free(): void {
    const refused = this.device.card.exports.pdFree(this.#handle);
    if (refused !== 0) throw new VerbsError('EBUSY', `${this} is in use`);
  }
}
