/**
 * The messages that wait to be sent by queue pair 1. Those of connections leave first. Refusals have few places: what
 * has none is dropped, and its sender asks again.
 */
import type { Outgoing } from './core/context.js';

/** Messages of connections, and refusals, that can wait. */
const CAPACITY = { messages: 4096, refusals: 64 };

/** See the head of this file. */
export class MadSendQueue {
  /** Messages that were dropped because too many were waiting. */
  dropped = 0;
  readonly #messages = new Ring<Outgoing>(CAPACITY.messages);
  readonly #refusals = new Ring<Outgoing>(CAPACITY.refusals);

  /** Whether no message waits. */
  get isEmpty(): boolean {
    return this.next === undefined;
  }

  /** The message to send next. */
  get next(): Outgoing | undefined {
    return this.#messages.first ?? this.#refusals.first;
  }

  /** Adds a message, or drops it. One that goes back where a message came from is a refusal. */
  add(message: Outgoing): void {
    const ring = message.neighbour === undefined ? this.#messages : this.#refusals;
    if (!ring.add(message)) this.dropped++;
  }

  /** Removes `next`. */
  shift(): void {
    if (!this.#messages.shift()) this.#refusals.shift();
  }
}

/** A queue with a fixed number of places. */
class Ring<T> {
  readonly #items: (T | undefined)[] = [];
  #begin = 0;
  #count = 0;

  constructor(readonly capacity: number) {}

  get first(): T | undefined {
    return this.#items[this.#begin];
  }

  /** @returns whether there was a place */
  add(item: T): boolean {
    if (this.#count === this.capacity) return false;
    this.#items[(this.#begin + this.#count++) % this.capacity] = item;
    return true;
  }

  /** @returns whether there was an item */
  shift(): boolean {
    if (this.#count === 0) return false;
    this.#items[this.#begin] = undefined;
    this.#begin = (this.#begin + 1) % this.capacity;
    this.#count--;
    return true;
  }
}
