/**
 * Paths that the kernel has given a moment ago. A program that opens a thousand connections a second asks for the same
 * path several times for each, and an answer takes two exchanges with the kernel and some 50 us. A path is forgotten
 * when the kernel notifies of a change in any of the tables that it comes from. The notifications are read before each
 * use and not in the event loop, so that no path is used after a change.
 */
import { performance } from '../base/timers.js';
import type { Resolved } from './link.js';
import { Notifications, RTMGRP } from './notifications.js';

/** A path comes from all tables that the kernel notifies of. */
const GROUPS = Object.values(RTMGRP).reduce((all, group) => all | group, 0);
/** The kernel does not notify of a path MTU or redirect that it learns. */
const LIFETIME_MS = 1000;
/** Paths that are kept. */
const MAX_PATHS = 256;

interface Recent {
  readonly path: Resolved;
  /** By `performance.now`. */
  readonly until: number;
}

/** See the head of this file. */
export class RecentPaths {
  readonly #paths = new Map<string, Recent>();
  readonly #notifications = new Notifications(GROUPS);
  #changes = 0;

  /**
   * Returns a path.
   * @param destination IP address as text @param source the same
   * @param lookUp asks the kernel
   */
  async resolve(destination: string, source: string, lookUp: () => Promise<Resolved>): Promise<Resolved> {
    const changes = this.#countChanges();
    const key = `${source} ${destination}`;
    const recent = this.#paths.get(key);
    if (recent !== undefined && performance.now() < recent.until) return recent.path;
    const path = await lookUp();
    // A change in the meantime may have changed this path.
    if (this.#countChanges() === changes && this.#notifications.isOpen) this.#add(key, path);
    return path;
  }

  /** From now on no path is kept. */
  close(): void {
    this.#notifications.close();
    this.#paths.clear();
  }

  #add(key: string, path: Resolved): void {
    if (this.#paths.size === MAX_PATHS) this.#paths.clear();
    this.#paths.set(key, { path, until: performance.now() + LIFETIME_MS });
  }

  /** Reads the notifications. @returns the number of times that there were any */
  #countChanges(): number {
    if (this.#notifications.receive()?.length !== 0) {
      this.#changes++;
      this.#paths.clear();
    }
    return this.#changes;
  }
}
