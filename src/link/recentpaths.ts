/**
 * Paths that the kernel has given a moment ago. A program that opens a thousand connections a second asks for the same
 * path several times for each, and an answer takes two exchanges with the kernel and some 50 us. A path is forgotten
 * when the kernel notifies of a change in any of the tables that it comes from (rtnetlink(7)). The notifications are
 * read before each use and not in the event loop, so that no path is used after a change.
 */
import { constants } from 'node:os';
import { native } from '../native.js';
import type { Resolved } from './link.js';

/** RTMGRP_LINK, _NEIGH, _IPV4_IFADDR, _IPV4_ROUTE, _IPV4_RULE, _IPV6_IFADDR and _IPV6_ROUTE; RTNLGRP_IPV6_RULE. */
const GROUPS = 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 0x40000;
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
  /** Negative if the kernel has refused the socket, and after `close`. Unread notifications fill its buffer at most. */
  #fd = native().netlinkListen(GROUPS);
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
    // What has changed meanwhile may have changed this path.
    if (this.#countChanges() === changes && this.#fd >= 0) this.#add(key, path);
    return path;
  }

  /** From now on no path is kept. */
  close(): void {
    if (this.#fd >= 0) native().closeFd(this.#fd);
    this.#fd = -1;
    this.#paths.clear();
  }

  #add(key: string, path: Resolved): void {
    if (this.#paths.size === MAX_PATHS) this.#paths.clear();
    this.#paths.set(key, { path, until: performance.now() + LIFETIME_MS });
  }

  /** Reads the notifications. @returns how often there were any */
  #countChanges(): number {
    if (this.#fd >= 0 && this.#hasChanged(this.#fd)) {
      this.#changes++;
      this.#paths.clear();
    }
    return this.#changes;
  }

  #hasChanged(fd: number): boolean {
    for (let hasChanged = false; ; hasChanged = true) {
      const received = native().netlinkReceive(fd);
      if (typeof received === 'number' && received !== -constants.errno.ENOBUFS) return hasChanged;
    }
  }
}
