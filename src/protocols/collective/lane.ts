/**
 * A lane carries out its share of the steps of a call: every fourth round, one step after another. While one lane waits
 * for a rank, the others go on.
 */
import { AsyncQueue } from '../../base/asyncqueue.js';
import { REGION_SPAN } from '../../device/regions.js';
import type { Mr } from '../../index.js';
import type { ElementType } from './elements.js';
import { RankError } from './errors.js';
import type { Arrival, MrOffset, Peer } from './peer.js';
import type { ReduceOpName, Reducer } from './reducer.js';
import type { Step } from './schedule.js';
import { LANES, SLOT_BYTES } from './wire.js';

/** An array of a call. */
export interface Operand {
  readonly bytes: Uint8Array;
  /** Its place in registered memory; undefined: it is elsewhere, so that its bytes are copied. */
  readonly place: MrOffset | undefined;
  /** Offset of its first byte in the whole array, of which steps name elements. */
  readonly start: number;
}

/** A call as a lane sees it. */
export interface Call {
  readonly tag: number;
  /** The call, for an error. */
  readonly text: string;
  readonly element: ElementType;
  readonly op: ReduceOpName;
  /** Our own elements, and the result. They may be the same array. */
  readonly source: Operand;
  readonly target: Operand;
  readonly rounds: number;
  /** Whether all data are short. */
  readonly isEager: boolean;
  steps(round: number): readonly Step[];
}

/** Buffers of a lane for what it sends. */
const BUFFERS = 2;
/** Bytes that a lane needs for them. */
export const LANE_BYTES = BUFFERS * SLOT_BYTES;

/** The value of a step, where it can be sent from. */
interface Value {
  readonly place: MrOffset;
  /** Whether it is in an array of the program, which may change it after the call. */
  readonly isProgram: boolean;
  release(): void;
}

/** Data that are to come. */
interface Expected {
  readonly peer: Peer;
  readonly bytes: number;
  /** Their destination; undefined: a slot. */
  readonly place: MrOffset | undefined;
}

export class Lane {
  readonly #index: number;
  readonly #buffers: AsyncQueue<MrOffset>;
  readonly #reducer: Reducer;
  readonly #peerOf: (rank: number) => Peer;

  /** @param mr has `LANE_BYTES` for the lane, from `offset` on */
  constructor(index: number, mr: Mr, offset: number, reducer: Reducer, peerOf: (rank: number) => Peer) {
    this.#index = index;
    this.#reducer = reducer;
    this.#peerOf = peerOf;
    this.#buffers = new AsyncQueue(
      Array.from({ length: BUFFERS }, (_, buffer) => ({ mr, offset: offset + buffer * SLOT_BYTES })),
    );
  }

  /** Rejects what waits for a buffer, now and later. */
  fail(error: Error): void {
    this.#buffers.end(error);
  }

  /** Carries out the lane's rounds. @throws RankError when a rank makes another call, or none any more */
  async run(call: Call): Promise<void> {
    await new LaneRun(call, this.#index, this.#buffers, this.#reducer, this.#peerOf).run();
  }
}

/** A call on a lane. */
class LaneRun {
  /** Credits that were not given yet, in the order of the steps. */
  readonly #ahead: Iterator<Expected>;
  #next: Expected | undefined;
  /** Sends whose data must stay as they are until the end of the call, or that wait for a credit. */
  readonly #sending = new Set<Promise<void>>();

  constructor(
    readonly call: Call,
    readonly lane: number,
    readonly buffers: AsyncQueue<MrOffset>,
    readonly reducer: Reducer,
    readonly peerOf: (rank: number) => Peer,
  ) {
    this.#ahead = this.#expected();
    this.#next = this.#ahead.next().value;
  }

  async run(): Promise<void> {
    this.#announce();
    for (const step of this.#steps()) await this.#execute(step);
    await Promise.all(this.#sending);
  }

  *#steps(): Generator<Step> {
    for (let round = this.lane; round < this.call.rounds; round += LANES) yield* this.call.steps(round);
  }

  *#expected(): Generator<Expected, undefined> {
    const { isEager, target } = this.call;
    if (isEager) return;
    for (const step of this.#steps()) {
      const { at, bytes } = this.#extent(step);
      const isInPlace = step.isKept && !step.isReduced && target.place !== undefined;
      const place = isInPlace ? placeOf(target, at) : undefined;
      for (const rank of step.from) yield { peer: this.peerOf(rank), bytes, place };
    }
    return;
  }

  /** Gives the credits for which there are slots. */
  #announce(): void {
    while (this.#next?.peer.hasSlot(this.lane)) {
      const { peer, bytes, place } = this.#next;
      peer.announce(this.lane, this.call.tag, bytes, place);
      this.#next = this.#ahead.next().value;
    }
  }

  async #execute(step: Step): Promise<void> {
    const { at, bytes } = this.#extent(step);
    const value = await this.#value(step, at, bytes);
    if (step.isKept) this.#keep(value.place, at, bytes);
    const sends = step.to.map((rank) => this.#send(this.peerOf(rank), value.place, bytes));
    if (sends.length === 0) return value.release();
    const sent = Promise.all(sends.map((send) => send.then((acknowledged) => acknowledged.done))).then(value.release);
    for (const promise of value.isProgram ? [sent] : sends) this.#await(promise);
    // they end with the communicator, whose calls say why
    sent.catch(() => {});
  }

  /** Lets the end of the call wait. */
  #await(promise: Promise<unknown>): void {
    const settled: Promise<void> = promise.then(() => void this.#sending.delete(settled));
    this.#sending.add(settled);
    settled.catch(() => {});
  }

  async #value(step: Step, at: number, bytes: number): Promise<Value> {
    if (step.from.length === 0) return this.#own(at, bytes);
    if (step.isReduced) return this.#reduced(step, at, bytes);
    const arrival = await this.#arrival(step.from[0] as number, bytes);
    const isProgram = arrival.place.mr === this.call.target.place?.mr;
    return { place: arrival.place, isProgram, release: () => this.#release(arrival) };
  }

  async #own(at: number, bytes: number): Promise<Value> {
    const { source } = this.call;
    const place = placeOf(source, at);
    if (place !== undefined) return { place, isProgram: true, release: () => {} };
    const buffer = await this.buffers.take();
    buffer.mr.copyIn(bytesAt(source, at, bytes), buffer.offset);
    return { place: buffer, isProgram: false, release: () => this.buffers.put(buffer) };
  }

  async #reduced(step: Step, at: number, bytes: number): Promise<Value> {
    const { source, target, element, op } = this.call;
    const inPlace = step.isKept ? combinable(placeOf(target, at)) : undefined;
    const into = inPlace ?? (await this.buffers.take());
    let own = combinable(placeOf(source, at)) ?? into;
    if (own === into) into.mr.copyIn(bytesAt(source, at, bytes), into.offset);
    for (const rank of step.from) {
      const arrival = await this.#arrival(rank, bytes);
      const [a, b, result] = [own, arrival.place, into].map(addressOf) as [number, number, number];
      await this.reducer.reduce({ element: element.code, op, into: result, a, b, count: bytes / element.bytes, bytes });
      this.#release(arrival);
      own = into;
    }
    const isProgram = inPlace !== undefined;
    return { place: into, isProgram, release: () => (isProgram ? undefined : this.buffers.put(into)) };
  }

  #keep(place: MrOffset, at: number, bytes: number): void {
    const { target } = this.call;
    const to = placeOf(target, at);
    if (to === undefined || addressOf(to) !== addressOf(place))
      place.mr.copyTo(bytesAt(target, at, bytes), place.offset);
  }

  async #arrival(rank: number, bytes: number): Promise<Arrival> {
    const arrival = await this.peerOf(rank).arrival(this.lane);
    this.#check(rank, arrival, bytes);
    return arrival;
  }

  #release(arrival: Arrival): void {
    arrival.release();
    this.#announce();
  }

  /** @returns when the data are posted: a promise for their acknowledgement */
  async #send(peer: Peer, place: MrOffset, bytes: number): Promise<{ readonly done: Promise<void> }> {
    const { isEager, tag } = this.call;
    let done: Promise<void>;
    if (isEager) done = peer.sendEager(this.lane, tag, place, bytes);
    else {
      const credit = await peer.credit(this.lane);
      this.#check(peer.rank, credit, bytes);
      done = peer.write(this.lane, credit, place);
    }
    done.catch(() => {});
    return { done };
  }

  #check(rank: number, { tag, bytes }: { readonly tag: number; readonly bytes: number }, expected: number): void {
    if (tag !== this.call.tag || bytes !== expected) throw otherCall(rank, this.call.text);
  }

  /** Returns where in an array the elements of a step are, in bytes. */
  #extent({ range }: Step): { at: number; bytes: number } {
    const { bytes } = this.call.element;
    return { at: range.start * bytes, bytes: (range.end - range.start) * bytes };
  }
}

/** The error of two ranks that make different calls. @param text our call */
export function otherCall(rank: number, text: string): RankError {
  return new RankError(rank, 'EPROTO', `rank ${rank} makes another call than another rank, which calls ${text}`);
}

/** Returns where the byte `at` of the whole array is in registered memory, if it is there. */
function placeOf({ place, start }: Operand, at: number): MrOffset | undefined {
  return place && { mr: place.mr, offset: place.offset + at - start };
}

function bytesAt({ bytes, start }: Operand, at: number, length: number): Uint8Array {
  return bytes.subarray(at - start, at - start + length);
}

const addressOf = ({ mr, offset }: MrOffset): number => mr.addr + offset;

/** Returns a place if it is in the card's memory, which is where arrays are combined. */
const combinable = (place: MrOffset | undefined): MrOffset | undefined =>
  place && addressOf(place) < REGION_SPAN ? place : undefined;
