/** Base class of all verbs objects: label, closing, and the objects that must be closed first. */
import { EventEmitter } from 'node:events';
import { type InspectOptionsStylized, inspect } from 'node:util';
import { VerbsError } from '../../errors.js';
import { type Description, inspectAs } from '../diagnose/describe.js';

/** Kind of a verbs object, as it appears in error messages. */
export type ResourceKind = 'cm' | 'cm id' | 'device' | 'pd' | 'mr' | 'mw' | 'cq' | 'qp' | 'srq' | 'ah';

/** Order of a forced close: users before what they use. */
const CLOSE_ORDER: readonly ResourceKind[] = ['cm id', 'cm', 'qp', 'srq', 'ah', 'mw', 'mr', 'cq', 'pd', 'device'];

function Emitter(): void {}
Object.setPrototypeOf(Emitter, EventEmitter);
Object.setPrototypeOf(Emitter.prototype, EventEmitter.prototype);

/**
 * An `EventEmitter` that makes its table of listeners with the first listener. Node's constructor makes one for each
 * object, which takes more memory than a protection domain or an address handle has otherwise. It is not called: all
 * methods of `EventEmitter` accept an object without the table. The classes with events declare them.
 */
const SparseEmitter = Emitter as unknown as new () => object;

/** A verbs object. It belongs to its parents, which cannot be closed before it. */
export abstract class Resource extends SparseEmitter {
  /** Kind of the object, as in error messages. */
  abstract readonly kind: ResourceKind;
  /** @internal Of a device: the reason of its failure. */
  protected failure: string | undefined;
  /** The device that the object belongs to. */
  readonly #root: Resource;
  /** Without duplicates. */
  #parents: readonly Resource[];
  /** Index in the list of each parent. Empty: in none. */
  #places: number[] = [];
  #isInternal = false;
  /**
   * Most objects have none of the two. In no order, and not sets, whose closed objects would stay in memory for the
   * reason of `NumberMap`.
   */
  #users: Resource[] | undefined;
  #internals: Resource[] | undefined;
  #closed = false;
  #closesUnused = false;

  constructor(parents: readonly Resource[]) {
    super();
    for (const parent of parents) parent.assertOpen();
    this.#root = parents[0] ? parents[0].#root : this;
    this.#parents = withoutDuplicates(parents);
  }

  /** Distinguishes the object from others of its kind, e.g. the queue pair number. */
  abstract get label(): string;

  /** Whether the object was closed. */
  get isClosed(): boolean {
    return this.#closed;
  }

  /** @internal Whether the object can be used: not closed, and its device has not failed. */
  get isAlive(): boolean {
    return !this.#closed && this.#root.failure === undefined;
  }

  /**
   * Closes the object and frees its resources. A second call does nothing.
   * @throws VerbsError EBUSY when other objects still use it; the message names them
   */
  async close(): Promise<void> {
    this.closeNow();
  }

  /** Same as `close` without the promise, for `using`. @throws VerbsError EBUSY as `close` */
  [Symbol.dispose](): void {
    this.closeNow();
  }

  /** Same as `close`, for `await using`. @throws VerbsError EBUSY as `close` */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Returns kind and label, e.g. `qp 0x1a2b3c`. */
  override toString(): string {
    return `${this.kind} ${this.label}`;
  }

  /** Returns a short description as plain data, for `JSON.stringify` and `console.log`. */
  toJSON(): Record<string, unknown> {
    return { kind: this.kind, label: this.label, ...(this.isAlive ? this.describe() : { isClosed: this.isClosed }) };
  }

  /** @internal */
  [inspect.custom](depth: number, options: InspectOptionsStylized): string {
    return inspectAs(this, depth, options);
  }

  /** @internal The fields that `toJSON` adds to kind and label while the object can be used. */
  protected describe(): Description {
    return {};
  }

  /** @internal Frees the object's resources in the card. May throw to refuse. */
  protected abstract free(): void;

  /** @internal To be called once the card has allocated the object. */
  protected addToParents(): void {
    this.#places = this.#parents.map((parent) => parent.#add(this));
  }

  /** @internal Makes the object internal: it does not keep its parents open, and closes with them. */
  makeInternal(): this {
    this.#leaveParents();
    this.#isInternal = true;
    this.addToParents();
    return this;
  }

  /** @internal Moves the object to other parents. */
  protected changeParents(parents: readonly Resource[]): void {
    this.#leaveParents();
    this.#parents = withoutDuplicates(parents);
    this.addToParents();
  }

  /** @internal Closes the object now, or with the last of the objects that use it. */
  closeWhenUnused(): void {
    this.#closesUnused = true;
    this.#closeIfUnused();
  }

  #closeIfUnused(): void {
    if (this.#closesUnused && (this.#users === undefined || this.#users.length === 0)) this.closeNow();
  }

  /** @internal Closes the object synchronously. @throws VerbsError EBUSY as `close` */
  protected closeNow(): void {
    if (this.#closed) return;
    if (this.#users !== undefined && this.#users.length > 0)
      throw new VerbsError('EBUSY', `${this} has ${summarize(this.#users)}: close them first`);
    for (const internal of [...(this.#internals ?? [])]) internal.closeWithUsers();
    this.free();
    this.#closed = true;
    this.#leaveParents();
  }

  /** @internal Closes all users of the object, then the object. */
  protected closeWithUsers(): void {
    const rank = (resource: Resource) => CLOSE_ORDER.indexOf(resource.kind);
    for (const resource of this.#withUsers().sort((a, b) => rank(a) - rank(b))) resource.closeNow();
  }

  /** @internal Of a device: marks it as failed and notifies all its objects. */
  protected fail(why: string): void {
    this.failure = why;
    const error = new VerbsError('EIO', why);
    for (const resource of this.#withUsers()) resource.onDeviceFailure(error);
  }

  /** @internal Called when the device has failed, to reject pending waits. Must not throw. */
  protected onDeviceFailure(_error: VerbsError): void {}

  /** @internal @throws VerbsError EINVAL after close, EIO when the device has failed */
  assertOpen(): void {
    if (this.#closed) throw new VerbsError('EINVAL', `${this} is closed`);
    const { failure } = this.#root;
    if (failure !== undefined) throw new VerbsError('EIO', failure);
  }

  /** Adds an object to the list of its kind. @returns its index */
  #add(child: Resource): number {
    const list = child.#isInternal ? this.#internals : this.#users;
    if (list !== undefined) return list.push(child) - 1;
    if (child.#isInternal) this.#internals = [child];
    else this.#users = [child];
    return 0;
  }

  /** The last of each list takes the place of this object. */
  #leaveParents(): void {
    for (const [i, place] of this.#places.entries()) {
      const parent = this.#parents[i] as Resource;
      const list = (this.#isInternal ? parent.#internals : parent.#users) as Resource[];
      const last = list.pop() as Resource;
      if (last === this) continue;
      list[place] = last;
      last.#places[last.#parents.indexOf(parent)] = place;
    }
    this.#places = [];
    for (const parent of this.#parents) parent.#closeIfUnused();
  }

  #withUsers(): Resource[] {
    const all = new Set<Resource>([this]);
    for (const resource of all) for (const user of resource.#users ?? []) all.add(user);
    return [...all];
  }
}

function withoutDuplicates(parents: readonly Resource[]): readonly Resource[] {
  return parents.length > 1 ? parents.filter((parent, i) => parents.indexOf(parent) === i) : parents;
}

/** `2 qps (0x1a2b3c, 0x1a2b3d) and 1 mr (0x100)` */
function summarize(resources: Iterable<Resource>): string {
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
