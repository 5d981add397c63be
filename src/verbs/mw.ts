/** Memory windows: keys for a part of a region, given and taken back without registering anything. */
import { MwType } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import { hex, show } from './check.js';
import type { Pd } from './pd.js';
import { Resource } from './resource.js';

/**
 * A memory window (ibv_mw). A BIND_MW work request opens it on a part of a region that has the right `mwBind`.
 * - Type 1 is open to all queue pairs of its domain, and may be bound anew at any time; with length 0 it is closed.
 * - Type 2 (2B of the specification) is open to the queue pair alone over which it was bound. LOCAL_INV there, or the peer's
 *   SEND_WITH_INV, closes it, and only then is it bound again. It is closed with its queue pair as well.
 *
 * A region cannot be closed while windows are bound to it.
 */
export class Mw extends Resource {
  readonly kind = 'mw';
  readonly #handle: number;
  #rkey: number;

  /** @internal Use `pd.allocMw`. */
  constructor(
    readonly pd: Pd,
    readonly type: 1 | 2,
  ) {
    super([pd]);
    if (type !== MwType.TYPE_1 && type !== MwType.TYPE_2)
      throw new TypeError(`type is ${show(type)}, must be 1 or 2, as memory windows have it`);
    const { card } = pd.device;
    this.#handle = card.exports.mwAlloc(pd.handle, type);
    if (this.#handle === 0)
      throw new VerbsError('ENOMEM', `no memory window left; the device has ${card.options.maxMr} with its regions`);
    this.#rkey = card.exports.mrRkey(this.#handle);
    this.opened();
  }

  get label(): string {
    return `rkey ${hex(this.#rkey)}`;
  }

  /** For the peer: the key that the last BIND_MW that was posted gives it. */
  get rkey(): number {
    return this.#rkey;
  }

  /** Whether its key opens anything now: the bind has been carried out, and not been taken back. */
  get isBound(): boolean {
    this.assertOpen();
    return this.pd.device.card.exports.mrIsValid(this.#handle);
  }

  /** @internal A bind with this key is posted. */
  announce(rkey: number): void {
    this.#rkey = rkey;
  }

  protected free(): void {
    this.pd.device.card.exports.mwFree(this.#handle);
  }
}
