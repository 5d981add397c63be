/** Protection domains: queue pairs reach only the memory regions of their own domain. */
import { VerbsError } from '../errors.js';
import type { Device } from './context.js';
import { Mr, type MrOptions } from './mr.js';
import { Qp, type QpOptions } from './qp.js';
import { Resource } from './resource.js';

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

  /**
   * Creates a queue pair in state RESET.
   * @throws TypeError, RangeError for wrong arguments; VerbsError ENOMEM
   */
  async createQp(options: QpOptions): Promise<Qp> {
    this.assertOpen();
    return new Qp(this, options);
  }

  protected free(): void {
    const refused = this.device.card.exports.pdFree(this.#handle);
    if (refused !== 0) throw new VerbsError('EBUSY', `${this} is in use`);
  }
}
