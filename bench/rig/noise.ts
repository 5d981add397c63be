/**
 * The variation of the machine itself: the time of a loop that always does the same, before and after each turn of a
 * contender. Virtual machines have phases in which everything takes longer.
 */
import { performance } from 'node:perf_hooks';

/** A turn is disturbed when the loop takes so many times as long after it as before, or the reverse. */
const DISTURBED = 1.25;
/** Rounds of the loop, and its repetitions, of which the shortest counts: others were interrupted. */
const ROUNDS = 2_000_000;
const REPETITIONS = 5;

export interface Noise {
  /** Shortest and longest time of the loop in ms. */
  readonly min: number;
  readonly max: number;
  readonly turns: number;
  readonly repeated: number;
}

export class NoiseMeter {
  readonly #loopMs: () => number;
  readonly #times: number[] = [];
  #turns = 0;
  #repeated = 0;

  /** @param loopMs runs the loop and returns its time in ms */
  constructor(loopMs: () => number = shortestLoop) {
    this.#loopMs = loopMs;
  }

  /** Runs a turn, and once again when the machine has changed meanwhile: `undo` drops its results then. */
  async watch(turn: () => Promise<void>, undo: () => void): Promise<void> {
    this.#turns++;
    if (!(await this.#isDisturbed(turn))) return;
    this.#repeated++;
    undo();
    await this.#isDisturbed(turn);
  }

  /** Undefined when there was no turn. */
  get summary(): Noise | undefined {
    const times = this.#times;
    if (times.length === 0) return undefined;
    return { min: Math.min(...times), max: Math.max(...times), turns: this.#turns, repeated: this.#repeated };
  }

  async #isDisturbed(turn: () => Promise<void>): Promise<boolean> {
    const before = this.#loopMs();
    await turn();
    const after = this.#loopMs();
    this.#times.push(before, after);
    return Math.max(before, after) > DISTURBED * Math.min(before, after);
  }
}

function shortestLoop(): number {
  let shortest = Number.POSITIVE_INFINITY;
  for (let i = 0; i < REPETITIONS; i++) {
    const begin = performance.now();
    // the result is used, so that the loop cannot be left out
    if (loop() === 0) throw new Error('a linear congruential generator has reached 0');
    shortest = Math.min(shortest, performance.now() - begin);
  }
  return shortest;
}

function loop(): number {
  let value = 1;
  for (let i = 0; i < ROUNDS; i++) value = (Math.imul(value, 1_664_525) + 1_013_904_223) | 1;
  return value;
}
