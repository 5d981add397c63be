/** Ways between pairs of addresses, as the kernel's tables have them, looked up anew now and then: neighbours change. */
import { VerbsError } from '../errors.js';
import { gidText } from '../verbs/gid.js';
import type { Pd } from '../verbs/pd.js';
import type { Ah } from '../verbs/udah.js';
import type { Route } from './manager.js';
import { OldAhs } from './oldahs.js';

/** A way is taken for good so long (ms). */
const FRESH = 1000;
/** One that nobody has used so long is forgotten (ms). */
const IDLE = 600_000;

interface Way {
  /** Once it is looked up. */
  ah: Ah | undefined;
  readonly lookup: Promise<Ah>;
  readonly until: number;
  used: number;
}

export class Ways {
  readonly #ways = new Map<string, Way>();
  readonly #old: OldAhs;

  constructor(readonly pd: Pd) {
    this.#old = OldAhs.of(pd.device);
  }

  /** Looks a way up; calls `onFound`, at once if it is known, or `onLost` when there is none. @param now milliseconds */
  find(route: Route, now: number, onFound: () => void, onLost: (error: unknown) => void): void {
    this.#old.close();
    const way = this.#fresh(route, now);
    way.used = now;
    if (way.ah !== undefined) onFound();
    else way.lookup.then(onFound, onLost);
  }

  /** The way as it was last known, however long ago; to be used at once. */
  last(route: Route): Ah | undefined {
    return this.#ways.get(keyOf(route))?.ah;
  }

  #fresh(route: Route, now: number): Way {
    const key = keyOf(route);
    const known = this.#ways.get(key);
    if (known !== undefined && known.until > now) return known;
    const lookup = this.#lookUp(route);
    // the old one serves until the new one is known
    const way: Way = { ah: known?.ah, lookup, until: now + FRESH, used: now };
    this.#ways.set(key, way);
    this.#sweep(now);
    lookup.then(
      (ah) => {
        way.ah = ah;
        if (known?.ah !== undefined) this.#old.add(known.ah);
      },
      () => {
        this.#ways.delete(key);
        if (known?.ah !== undefined) this.#old.add(known.ah);
      },
    );
    return way;
  }

  async #lookUp({ local, remote }: Route): Promise<Ah> {
    const { gids } = this.pd.device;
    const sgidIndex = gids.findIndex(({ gid }) => gid === gidText(local));
    if (sgidIndex < 0) throw new VerbsError('EADDRNOTAVAIL', `${local} is no address of ours (any more)`);
    return this.pd.createAh({ grh: { dgid: remote, sgidIndex } });
  }

  #sweep(now: number): void {
    for (const [key, { ah, used }] of this.#ways) {
      if (ah === undefined || now - used < IDLE) continue;
      this.#ways.delete(key);
      this.#old.add(ah);
    }
  }

  /** Those to which nothing goes any more. */
  closeOld(): void {
    this.#old.close();
  }
}

function keyOf({ local, remote }: Route): string {
  return `${local} ${remote}`;
}
