/**
 * Follows the paths of a device: when the MAC address of a peer or of a gateway changes, or a route, the packets of all
 * queue pairs and address handles go the new way. The kernel does the same for its sockets.
 *
 * The kernel notifies of changes that it learns. It learns of most when the neighbour announces its new address. It
 * verifies an address that stays silent only while the address is used, and packets of the card are no use that it
 * sees: while packets remain unacknowledged, the paths are looked up again, which makes the kernel verify them.
 */

import { NumberMap } from '../../base/numbermap.js';
import { clearInterval, performance, setInterval, setTimeout } from '../../base/timers.js';
import type { Link } from '../../link/link.js';
import type { ResolvedAddress } from './resolvedaddress.js';

/** Time between two look-ups of all paths (ms). */
const LEAST_INTERVAL_MS = 100;
/** Interval at which unacknowledged packets are noticed (ms). */
const CHECK_INTERVAL_MS = 1000;
/** Look-ups at a time. */
const MAX_LOOKUPS = 64;

/** An object whose packets take a path. */
export interface PathUser {
  /** The peer's address, with the next hop; undefined: none now. */
  readonly address: ResolvedAddress | undefined;
  /** Whether the library learns by other means that the peer is gone. Undefined for what is not acknowledged. */
  readonly isPostedByLibrary?: boolean;
  /** Takes another next hop to the same peer. */
  reroute(address: ResolvedAddress): void;
}

export class PathFollower {
  /** Called after packets of some objects go another way. */
  onRerouted: () => void = () => {};
  /** Called when the next hop of a program's packets that remain unacknowledged is not found. */
  onUnreachable: (destination: string, error: Error) => void = () => {};
  readonly #link: Link;
  readonly #timeouts: () => number;
  readonly #users = new NumberMap<PathUser>();
  #timer: NodeJS.Timeout | undefined;
  #lastTimeouts = 0;
  /** Packets have remained unacknowledged since the last check. */
  #isUnacknowledged = false;
  #isWanted = false;
  #isBusy = false;
  #lastUpdate = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  /** @param timeouts returns a count that grows while packets remain unacknowledged */
  constructor(link: Link, timeouts: () => number) {
    this.#link = link;
    this.#timeouts = timeouts;
    link.watchPaths?.(() => this.update());
  }

  /** Adds an object. @returns a number for `remove`; 0: the paths of this link never change */
  add(user: PathUser): number {
    if (this.#link.watchPaths === undefined) return 0;
    if (this.#timer === undefined) {
      this.#lastTimeouts = this.#timeouts();
      this.#timer = setInterval(() => this.#check(), CHECK_INTERVAL_MS);
      this.#timer.unref?.();
    }
    return this.#users.add(user);
  }

  /** Removes an object. */
  remove(number: number): void {
    this.#users.delete(number);
  }

  /** Looks up all paths again, soon. Calls that follow each other closely have one look-up. */
  update(): void {
    if (this.#isWanted || this.#isClosed || this.#users.size === 0) return;
    this.#isWanted = true;
    if (!this.#isBusy) void this.#run();
  }

  /** Follows no more. */
  close(): void {
    this.#isClosed = true;
    clearInterval(this.#timer);
    this.#users.clear();
  }

  #check(): void {
    if (this.#users.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      return;
    }
    const timeouts = this.#timeouts();
    this.#isUnacknowledged = timeouts !== this.#lastTimeouts;
    this.#lastTimeouts = timeouts;
    if (this.#isUnacknowledged) this.update();
  }

  async #run(): Promise<void> {
    this.#isBusy = true;
    while (this.#isWanted && !this.#isClosed) {
      const pause = this.#lastUpdate + LEAST_INTERVAL_MS - performance.now();
      if (pause > 0) await new Promise<void>((resolve) => setTimeout(resolve, pause).unref?.());
      this.#isWanted = false;
      this.#lastUpdate = performance.now();
      await this.#updateAll();
    }
    this.#isBusy = false;
  }

  async #updateAll(): Promise<void> {
    // by number, as an object may be removed meanwhile
    const byPath = new Map<string, { readonly address: ResolvedAddress; readonly users: number[] }>();
    for (const [number, { address }] of this.#users) {
      if (!address?.isLookedUp) continue;
      const key = keyOf(address);
      const same = byPath.get(key) ?? { address, users: [] };
      byPath.set(key, same);
      same.users.push(number);
    }
    const all = [...byPath.values()];
    let count = 0;
    for (let i = 0; i < all.length; i += MAX_LOOKUPS) {
      const some = all.slice(i, i + MAX_LOOKUPS);
      const counts = await Promise.all(some.map(({ address, users }) => this.#updateOne(address, users)));
      for (const each of counts) count += each;
    }
    if (count > 0 && !this.#isClosed) this.onRerouted();
  }

  /** A path that cannot be resolved now stays as it is. @returns the number of objects that go another way */
  async #updateOne(from: ResolvedAddress, numbers: readonly number[]): Promise<number> {
    const onError = (error: Error) => {
      const isOfProgram = numbers.some((number) => this.#users.get(number)?.isPostedByLibrary === false);
      if (isOfProgram && this.#isUnacknowledged && !this.#isClosed) this.onUnreachable(from.destination, error);
    };
    const found = await this.#link.resolve(from.destination, from.source).catch(onError);
    if (found === undefined || this.#isClosed) return 0;
    let count = 0;
    for (const number of numbers) {
      const user = this.#users.get(number);
      const address = user?.address;
      if (user === undefined || !address?.isLookedUp || keyOf(address) !== keyOf(from)) continue;
      const now = address.by(found, this.#link.interface.mac);
      if (now === address) continue;
      user.reroute(now);
      count++;
    }
    return count;
  }
}

const keyOf = ({ source, destination }: ResolvedAddress) => `${source} ${destination}`;
