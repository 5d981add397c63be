/** An NVM subsystem of a target: its namespaces, the hosts that may use it, and its controllers. */
import { createHash } from 'node:crypto';
import type { Controller } from './controller.js';
import type { Namespace } from './namespace.js';

/** Ids of controllers: 1 to 0xffef (0xfff0 and above are reserved). */
const MAX_CNTLID = 0xffef;

export class Subsystem {
  readonly #controllers = new Map<number, Controller>();
  #lastCntlid = 0;

  constructor(
    readonly nqn: string,
    /** Namespaces by their id, in ascending order. */
    readonly namespaces: ReadonlyMap<number, Namespace>,
    /** NQNs of the hosts that may connect; undefined: any. */
    readonly hosts?: ReadonlySet<string>,
  ) {}

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
