/** Virtual time for devices in a page: time passes when the page says so, from one event to the next. */
import type { Card } from '../../src/device/card.js';
import { dispatchEvents, type Engine, setLinkFeatures } from '../../src/device/engine.js';
import { Turns } from '../../src/device/turns.js';
import type { Link } from '../../src/link/link.js';

/** Most rounds of turns at one time: more would mean that devices answer each other without any time passing. */
const MAX_ROUNDS = 10_000;

/** A clock and the devices that live by it. */
export class VirtualClock {
  /** Nanoseconds. Not 0, which means "never" to a card. */
  now = 1;
  readonly engines: VirtualEngine[] = [];

  /** When something happens next; undefined if nothing will. Now, if there is work to do. */
  get nextEvent(): number | undefined {
    const times = this.engines.flatMap((engine) => engine.nextDeadline ?? []);
    return times.length === 0 ? undefined : Math.max(this.now, Math.min(...times));
  }

  /**
   * Lets time pass, event by event.
   * @param until the time at which to stop. Time stands still once nothing more will happen
   * @param onEvent called after each event, at its time. @returns whether to go on
   */
  advance(until: number, onEvent: () => boolean): void {
    for (;;) {
      this.#takeTurns();
      if (!onEvent()) return;
      const next = this.nextEvent;
      if (next === undefined) return;
      if (next > until) {
        this.now = Math.max(this.now, until);
        return;
      }
      this.now = Math.max(next, this.now + 1);
    }
  }

  #takeTurns(): void {
    for (let round = 0; round < MAX_ROUNDS; round++)
      if (!this.engines.map((engine) => engine.turn()).includes(true)) return;
  }
}

/** Takes the turns of a device when its clock says so. */
export class VirtualEngine implements Engine {
  readonly mode = 'inline';
  readonly notes = ['the page lets time pass'];
  readonly trace = undefined;
  readonly failure = undefined;
  readonly ended = Promise.resolve();
  onEvent: (type: number, handle: number) => void = () => {};
  onFailure: (reason: string) => void = () => {};
  readonly #turns: Turns;
  #hasWork = true;

  constructor(
    readonly clock: VirtualClock,
    readonly card: Card,
    readonly link: Link,
  ) {
    link.attach(card.frames);
    this.#turns = new Turns(card, link);
    this.linkChanged();
    clock.engines.push(this);
  }

  /** Takes a turn. @returns whether anything moved */
  turn(): boolean {
    this.#hasWork = false;
    const moved = this.#turns.run(this.clock.now, true);
    dispatchEvents(this.card, this.onEvent);
    return moved > 0;
  }

  /** When the device has something to do; undefined if nothing. */
  get nextDeadline(): number | undefined {
    if (this.#hasWork) return this.clock.now;
    return this.#turns.nextDeadline(this.clock.now) || undefined;
  }

  posted(): void {
    this.#hasWork = true;
  }
  schedule(): void {
    this.#hasWork = true;
  }
  linkChanged(): void {
    setLinkFeatures(this.card, this.link.features);
  }
  /** The page injects faults by its wires. */
  setFaults(): Promise<void> {
    return Promise.reject(new Error('a page has no rules of faults'));
  }
  /** Only the clock takes turns. */
  poll(): void {}
  ref(): void {}
  unref(): void {}
  close(): void {
    this.link.close();
  }
}
