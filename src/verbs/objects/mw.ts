/** Memory windows: remote keys for parts of a region, granted and revoked without registration. */

import { show } from '../../base/options.js';
import { MwType } from '../../device/codes.js';
import { hex } from '../../device/decode.js';
import { invalidValue, VerbsError } from '../../errors.js';
import type { Description } from '../diagnose/describe.js';
import type { Domain } from './domain.js';
import { Resource } from './resource.js';

/**
 * A memory window (ibv_mw). A BIND_MW work request binds it to a part of a region that has the right `mwBind`.
 * - Type 1 is valid for all queue pairs of its domain and may be rebound at any time; binding with length 0 unbinds it.
 * - Type 2 (type 2B, IBTA 10.6.7) is valid only for the queue pair on which it was bound. LOCAL_INV there, or the
 *   peer's SEND_WITH_INV, unbinds it; only then can it be bound again. Closing its queue pair unbinds it as well.
 *
 * A region cannot be closed while windows are bound to it.
 *
 * @example
 * ```ts
 * const mw = await pd.allocMw(2);
 * const rkey = qp.bindMw(mw, { mr, offset: 0, length: 1024, access: ['remoteRead'], signaled: true });
 * throwIfFailed(await cq.next());
 * console.log('the peer may now READ with', rkey);
 * qp.postSend({ opcode: 'LOCAL_INV', invalidateRkey: rkey });
 * ```
 */
export class Mw extends Resource {
  /** Always `mw`. */
  readonly kind = 'mw';
  readonly #handle: number;
  #rkey: number;

  /** @internal Use `pd.allocMw`. */
  constructor(
    /** Protection domain of the window. */
    readonly pd: Domain,
    /** Type of the window, 1 or 2. */
    readonly type: 1 | 2,
  ) {
    super([pd]);
    if (type !== MwType.TYPE_1 && type !== MwType.TYPE_2) throw invalidValue(`type is ${show(type)}, must be 1 or 2`);
    const { card } = pd.device;
    this.#handle = card.exports.mwAlloc(pd.handle, type);
    if (this.#handle === 0)
      throw new VerbsError('ENOMEM', `no memory window left: the device has ${card.options.maxMr} regions and windows`);
    this.#rkey = card.exports.mrRkey(this.#handle);
    this.addToParents();
  }

  /** The window's remote key. */
  get label(): string {
    return `rkey ${hex(this.#rkey)}`;
  }

  /** Remote key for the peer, as of the last posted BIND_MW. */
  get rkey(): number {
    return this.#rkey;
  }

  /**
   * Whether the window is bound: its BIND_MW has been executed and not invalidated.
   * @throws VerbsError EINVAL after close
   */
  get isBound(): boolean {
    this.assertOpen();
    return this.pd.device.card.exports.mrIsValid(this.#handle);
  }

  /** @internal A BIND_MW with this key was posted. */
  onBindPosted(rkey: number): void {
    this.#rkey = rkey;
  }

  /** @internal */
  protected override describe(): Description {
    const { type, isBound } = this;
    return { type, isBound };
  }

  /** @internal */
  protected free(): void {
    this.pd.device.card.exports.mwFree(this.#handle);
  }
}
