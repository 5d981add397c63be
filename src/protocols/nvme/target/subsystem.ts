/** An NVM subsystem of a target: its namespaces, the hosts that may use it, and its controllers. */
import { createHash } from 'node:crypto';
import type { Controller } from './controller.js';
import type { Namespace } from './namespace.js';

/** Ids of controllers: 1 to 0xffef (0xfff0 and above are reserved). */
const MAX_CNTLID = 0xffef;
/** Highest id of a namespace. As many fit into the log of changed namespaces. */
export const MAX_NSID = 1024;

export class Subsystem {
  readonly #controllers = new Map<number, Controller>();
  readonly #namespaces = new Map<number, Namespace>();
  #lastCntlid = 0;

  constructor(
    readonly nqn: string,
    /** NQNs of the hosts that may connect; undefined: any. */
    readonly hosts?: ReadonlySet<string>,
  ) {}

  /** Namespaces by their id. */
  get namespaces(): ReadonlyMap<number, Namespace> {
    return this.#namespaces;
  }

  /** Adds a namespace, and tells the hosts. */
  addNamespace(namespace: Namespace): void {
    this.#namespaces.set(namespace.nsid, namespace);
    this.#tell(namespace);
  }

  /** Takes a namespace away from the hosts. @returns it, whose last commands may be under way */
  removeNamespace(nsid: number): Namespace | undefined {
    const namespace = this.#namespaces.get(nsid);
    if (namespace === undefined) return undefined;
    this.#namespaces.delete(nsid);
    this.#tell(namespace);
    return namespace;
  }

  #tell({ nsid }: Namespace): void {
    for (const { events } of this.#controllers.values()) events.namespaceChanged(nsid);
  }

  /** 20 characters that are the same each time a subsystem of this name is served. */
  get serialNumber(): string {
    return createHash('sha256').update(this.nqn).digest('hex').slice(0, 20).toUpperCase();
  }

  /** Whether a host may connect. */
  admits(hostNqn: string): boolean {
    return this.hosts?.has(hostNqn) ?? true;
  }

  controller(cntlid: number): Controller | undefined {
    return this.#controllers.get(cntlid);
  }

  /** Adds a controller. @returns its id, which was not used lately; undefined when there is none */
  add(make: (cntlid: number) => Controller): Controller | undefined {
    for (let tries = 0; tries < MAX_CNTLID; tries++) {
      this.#lastCntlid = (this.#lastCntlid % MAX_CNTLID) + 1;
      if (this.#controllers.has(this.#lastCntlid)) continue;
      const controller = make(this.#lastCntlid);
      this.#controllers.set(this.#lastCntlid, controller);
      return controller;
    }
    return undefined;
  }

  remove({ cntlid }: Controller): void {
    this.#controllers.delete(cntlid);
  }
}
