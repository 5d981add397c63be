/** What all verbs objects have in common: a name, users that must be closed first, and an end. */
import { EventEmitter } from 'node:events';
import { VerbsError } from '../errors.js';
import type { ResourceEvents } from './events.js';

export type ResourceKind = 'cm' | 'cm id' | 'device' | 'pd' | 'mr' | 'mw' | 'cq' | 'qp' | 'srq' | 'ah';

/** The order in which a forced close frees: nothing before what uses it. */
const CLOSE_ORDER: readonly ResourceKind[] = ['cm id', 'cm', 'qp', 'srq', 'ah', 'mw', 'mr', 'cq', 'pd', 'device'];

export abstract class Resource extends EventEmitter<ResourceEvents> {
  abstract readonly kind: ResourceKind;
  /** @internal Of a device: why nothing works any more. */
  protected failure: string | undefined;
  /** The device that it belongs to in the end. */
  readonly #root: Resource;
  #parents: readonly Resource[];
  readonly #users = new Set<Resource>();
  readonly #attendants = new Set<Resource>();
  #closed = false;

  constructor(parents: readonly Resource[]) {
    super();
    for (const parent of parents) parent.assertOpen();
    this.#root = parents[0] ? parents[0].#root : this;
    this.#parents = [...new Set(parents)];
  }

  /** What tells this object from others of its kind, e.g. the queue pair's number. */
  abstract get label(): string;

  get isClosed(): boolean {
    return this.#closed;
  }

  /** @internal Not closed, nor of a device that has failed: it can be used. */
  get isAlive(): boolean {
    return !this.#closed && this.#root.failure === undefined;
  }

  /**
   * Frees the object. A second call does nothing.
   * @throws VerbsError EBUSY when others still use it; the message names them
   */
  async close(): Promise<void> {
    this.closeNow();
  }

  [Symbol.dispose](): void {
    this.closeNow();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  override toString(): string {
    return `${this.kind} ${this.label}`;
  }

  /** @internal Gives back what the card holds for it. May refuse by throwing. */
  protected abstract free(): void;

  /** @internal To be called once the card holds something for it. */
  protected opened(): void {
    for (const parent of this.#parents) parent.#users.add(this);
  }

  /** @internal From now on it is nobody's business: it does not keep its parents open, and closes with them. */
  attend(): this {
    for (const parent of this.#parents) {
      parent.#users.delete(this);
      parent.#attendants.add(this);
    }
    return this;
  }

  /** @internal From now on it belongs to others. */
  protected moveTo(parents: readonly Resource[]): void {
    for (const parent of this.#parents) parent.#users.delete(this);
    this.#parents = [...new Set(parents)];
    this.opened();
  }

  /** @internal */
  protected closeNow(): void {
    if (this.#closed) return;
    if (this.#users.size > 0) throw new VerbsError('EBUSY', `${this} has ${listOf(this.#users)}; close these first`);
    for (const attendant of this.#attendants) attendant.closeWithUsers();
    this.free();
    this.#closed = true;
    for (const parent of this.#parents) {
      parent.#users.delete(this);
      parent.#attendants.delete(this);
    }
  }

  /** @internal Frees all that uses it, then itself. */
  protected closeWithUsers(): void {
    const rank = (resource: Resource) => CLOSE_ORDER.indexOf(resource.kind);
    for (const resource of this.#withUsers().sort((a, b) => rank(a) - rank(b))) resource.closeNow();
  }

  /** @internal Of a device: from now on nothing works, and all that use it are told. */
  protected fail(why: string): void {
    this.failure = why;
    const error = new VerbsError('EIO', why);
    for (const resource of this.#withUsers()) resource.onDeviceFailure(error);
  }

  /** @internal For those who wait for what will not come any more. Must not throw. */
  protected onDeviceFailure(_error: VerbsError): void {}

  /** @internal @throws VerbsError EINVAL after close, EIO when the device has failed */
  assertOpen(): void {
    if (this.#closed) throw new VerbsError('EINVAL', `${this} is closed`);
    const { failure } = this.#root;
    if (failure !== undefined) throw new VerbsError('EIO', failure);
  }

  #withUsers(): Resource[] {
    const all = new Set<Resource>([this]);
    for (const resource of all) for (const user of resource.#users) all.add(user);
    return [...all];
  }
}

/** `2 qps (0x1a2b3c, 0x1a2b3d) and 1 mr (0x100)` */
function listOf(resources: Iterable<Resource>): string {
  const byKind = new Map<ResourceKind, string[]>();
  for (const resource of resources) {
    const labels = byKind.get(resource.kind) ?? [];
    labels.push(resource.label);
    byKind.set(resource.kind, labels);
  }
  return [...byKind]
    .sort(([a], [b]) => CLOSE_ORDER.indexOf(a) - CLOSE_ORDER.indexOf(b))
    .map(([kind, labels]) => {
      const shown = labels.length > 8 ? [...labels.slice(0, 8), '...'] : labels;
      return `${labels.length} ${kind}${labels.length > 1 ? 's' : ''} (${shown.join(', ')})`;
    })
    .join(' and ');
}
