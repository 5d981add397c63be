/** A link between a card and a strict peer model, in virtual time: it loses, doubles, delays and marks frames. */
import { decode, encode, underived } from '../../../src/probe/packet/packets.js';
import type { Random } from '../random.js';
import type { Rig } from '../rig.js';
import type { Adapter } from './rules.js';

/** Probabilities, per frame and direction. */
export interface Trouble {
  readonly drop?: number;
  readonly duplicate?: number;
  /** Of a frame that is up to 50 us late, so that others overtake it. */
  readonly reorder?: number;
  /** Of a congestion mark. */
  readonly mark?: number;
}

/** Nanoseconds: from one end to the other, the most that a frame is late, and of one turn. */
const DELAY = 5000;
const LATE = 50_000;
const TURN = 1000;
/** Nanoseconds after which a run hangs. */
const LIMIT = 60e9;

interface Flight {
  readonly time: number;
  readonly toCard: boolean;
  readonly bytes: Uint8Array;
}

export class AdapterLink {
  now = 1_000_000;
  /** Called every turn; returns whether it has done something. */
  application: () => boolean = () => false;
  /** Frames that either end has sent. */
  frames = 0;
  /** Sorted by time. */
  readonly #flights: Flight[] = [];

  constructor(
    readonly rig: Rig,
    readonly adapter: Adapter,
    readonly random: Random,
    readonly trouble: Trouble = {},
  ) {}

  /** Runs until nothing is in flight and no timer runs. @throws Error after a virtual minute */
  run(): void {
    while (this.turn()) if (this.now > LIMIT) throw new Error(`still active after ${this.frames} frames`);
  }

  /** Runs one turn of both ends, or advances the time to the next event. @returns false when there is none */
  turn(): boolean {
    const { rig, adapter, now } = this;
    let moved = this.#arrive();
    rig.x.rx(now, 256);
    moved = this.application() || moved;
    for (const bytes of rig.out(now)) {
      adapter.inspect(bytes, now);
      this.#launch(bytes, false);
      moved = true;
    }
    adapter.expire(now);
    for (const bytes of adapter.take()) {
      this.#launch(bytes, true);
      moved = true;
    }
    if (moved) {
      this.now += TURN;
      return true;
    }
    const next = Math.min(this.#flights[0]?.time ?? Number.POSITIVE_INFINITY, adapter.deadline);
    if (next === Number.POSITIVE_INFINITY) adapter.quiet();
    const timer = rig.x.nextDeadline() || Number.POSITIVE_INFINITY;
    if (next === Number.POSITIVE_INFINITY && timer === Number.POSITIVE_INFINITY) return false;
    this.now = Math.max(now, Math.min(next, timer));
    return true;
  }

  #arrive(): boolean {
    let count = 0;
    for (let flight = this.#flights[0]; flight && flight.time <= this.now && count < 128; flight = this.#flights[0]) {
      this.#flights.shift();
      count++;
      if (!flight.toCard) this.adapter.receive(flight.bytes, this.now);
      else if (this.rig.put(flight.bytes)) this.adapter.delivered(flight.bytes, this.now);
    }
    return count !== 0;
  }

  #launch(bytes: Uint8Array, toCard: boolean): void {
    this.frames++;
    const { random, trouble } = this;
    const { drop = 0, duplicate = 0, reorder = 0, mark = 0 } = trouble;
    if (random.chance(drop)) return;
    for (let copies = random.chance(duplicate) ? 2 : 1; copies > 0; copies--) {
      const late = random.chance(reorder) ? random.below(LATE) : 0;
      this.#add({ time: this.now + DELAY + late, toCard, bytes: random.chance(mark) ? marked(bytes) : bytes });
    }
  }

  #add(flight: Flight): void {
    let at = this.#flights.length;
    while (at > 0 && (this.#flights[at - 1] as Flight).time > flight.time) at--;
    this.#flights.splice(at, 0, flight);
  }
}

/** Turns ECT into CE. */
function marked(bytes: Uint8Array): Uint8Array {
  const frame = underived(decode(bytes));
  const { ip } = frame;
  const ce = ip.version === 4 ? { ...ip, tos: ip.tos | 3 } : { ...ip, trafficClass: ip.trafficClass | 3 };
  const traffic = ip.version === 4 ? ip.tos : ip.trafficClass;
  return (traffic & 3) === 0 ? bytes : encode({ ...frame, ip: ce });
}
