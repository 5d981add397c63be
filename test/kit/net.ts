/**
 * A simulated network between bare cards, in virtual time: frames leave the transmit ring of one card and reach the
 * receive ring of another, with the impairments of each direction. All random numbers come from one seed, so a run is
 * repeatable. Time jumps from event to event; a turn with any activity takes `TURN` nanoseconds.
 */
import { Gro } from './gro.js';
import { type GsoLimits, gsoBursts } from './gsobursts.js';
import { InFlight } from './inflight.js';
import { type BytesAt, complete, fold, ICRC_OFFLOAD } from './offload.js';
import { Random } from './random.js';
import type { Rig, Sent } from './rig.js';

/** Impairments of the frames that one card sends. All are off by default. */
export interface Impairments {
  /**
   * Probabilities, 0 to 1, for each frame: lost, duplicated, overtaken by others, one to four bits flipped after the
   * MACs.
   */
  readonly drop?: number;
  readonly duplicate?: number;
  readonly reorder?: number;
  readonly corrupt?: number;
  /** Latency in nanoseconds, and the upper bound of a random addition. Jitter alone reorders frames as well. */
  readonly delay?: number;
  readonly jitter?: number;
  /** Nanoseconds that the bottleneck needs for a frame, and the most frames in flight; further frames are lost. */
  readonly frameTime?: number;
  readonly queue?: number;
  /**
   * The most frames of the same queue pair and PSN that are lost or corrupted before one is delivered unchanged: a
   * bound for tests in which no request may fail. 0 = no bound.
   */
  readonly mostLosses?: number;
}

type Settings = { -readonly [K in keyof Required<Impairments>]: number };
const NONE: Settings = {
  drop: 0,
  duplicate: 0,
  reorder: 0,
  corrupt: 0,
  delay: 0,
  jitter: 0,
  frameTime: 0,
  queue: 0,
  mostLosses: 0,
};

const TURN = 500;
/** The most frames that one card sends in a turn. */
const BATCH = 32;
/** The longest time in nanoseconds by which a reordered frame is delayed. */
const HELD = 30_000;
const ETHERNET = 14;
/** The second encoder checks the frames of one turn of a card in this many turns. */
const VERIFIED_TURNS = 16;

/** A card's port: its ring cursors as indexes into its memory, and the state of its outgoing direction. */
class Port {
  readonly bytes: Uint8Array;
  readonly u32: Uint32Array;
  readonly settings: Settings = { ...NONE };
  isPlain = true;
  isCut = false;
  busyUntil = 0;
  onWay = 0;
  /** Losses by queue pair and PSN, for `mostLosses`. */
  readonly losses = new Map<number, number>();
  /** Offloads of the network interface. */
  gso: GsoLimits | undefined;
  gro: Gro | undefined;
  sharesIcrc = false;
  readonly txProducer: number;
  readonly txConsumer: number;
  readonly txDescriptors: number;
  readonly txMask: number;
  readonly rxProducer: number;
  readonly rxConsumer: number;
  readonly rxDescriptors: number;
  readonly rxMask: number;

  constructor(readonly rig: Rig) {
    const { tx, rx, memory } = rig.card.frames;
    this.bytes = memory;
    this.u32 = rig.card.u32;
    [this.txProducer, this.txConsumer, this.txDescriptors] = [
      tx.producer >>> 2,
      tx.consumer >>> 2,
      tx.descriptors >>> 2,
    ];
    [this.rxProducer, this.rxConsumer, this.rxDescriptors] = [
      rx.producer >>> 2,
      rx.consumer >>> 2,
      rx.descriptors >>> 2,
    ];
    this.txMask = tx.mask;
    this.rxMask = rx.mask;
  }
}

/** Copies a frame between two memories. Short frames are copied word by word, which is cheaper than creating a view. */
function copy(from: Uint8Array, at: number, to: Uint8Array, target: number, length: number): void {
  if (length > 96) {
    to.set(from.subarray(at, at + length), target);
    return;
  }
  for (let i = 0; i < length; i++) to[target + i] = from[at + i] as number;
}

export interface NetCounters {
  /** Frames sent by cards, and frames that reached a receive ring. */
  sent: number;
  delivered: number;
  dropped: number;
  duplicated: number;
  corrupted: number;
  held: number;
  /** Frames among the dropped ones that found the queue full. */
  overflowed: number;
  /** GSO bursts of more than one packet among the checked frames. */
  gsoBursts: number;
}

export class Net {
  /** Virtual time in nanoseconds. It does not start at 0, which means "no deadline" to the card. */
  now = 1_000_000;
  readonly counters: NetCounters = {
    sent: 0,
    delivered: 0,
    dropped: 0,
    duplicated: 0,
    corrupted: 0,
    held: 0,
    overflowed: 0,
    gsoBursts: 0,
  };
  /** Called in every turn. It returns whether it did anything, so that the next turn follows immediately. */
  application: () => boolean = () => false;
  readonly #random: Random;
  readonly #ports: Port[];
  readonly #flight: InFlight;
  #alarms: number[] = [];
  #turns = 0;

  /** @param rigs the cards; the last byte of a destination MAC is the number of the card, from 1 */
  constructor(rigs: readonly Rig[], seed: number, slots = 4096) {
    this.#random = new Random(seed);
    this.#ports = rigs.map((rig) => new Port(rig));
    this.#flight = new InFlight(slots, 4352);
  }

  /** Sets the impairments of the frames that card `port` (from 0) sends. */
  impair(port: number, impairments: Impairments): void {
    const at = this.#ports[port] as Port;
    Object.assign(at.settings, NONE, impairments);
    const { drop, duplicate, reorder, corrupt, delay, jitter, frameTime, queue } = at.settings;
    at.isPlain = drop + duplicate + reorder + corrupt + delay + jitter + frameTime + queue === 0;
  }

  /** Offers segmentation offload to card `port`, so that it marks GSO bursts. */
  offerGso(port: number, limits: GsoLimits): void {
    const at = this.#ports[port] as Port;
    at.gso = limits;
    this.#setLink(at);
  }

  /** Offers ICRC offload to card `port`. */
  shareIcrc(port: number): void {
    const at = this.#ports[port] as Port;
    at.sharesIcrc = true;
    this.#setLink(at);
  }

  #setLink({ rig, sharesIcrc, gso = { packets: 0, bytes: 0 } }: Port): void {
    rig.x.setLink(sharesIcrc ? ICRC_OFFLOAD : 0, 0, gso.packets, gso.bytes);
  }

  /** Coalesces frames for card `port` into super-packets of at most `most` packets. */
  coalesce(port: number, most: number): void {
    const at = this.#ports[port] as Port;
    at.gro = new Gro(at.rig.card.frames.slotBytes, most);
  }

  /** Packets that were appended to super-packets. */
  get coalesced(): number {
    return this.#ports.reduce((sum, { gro }) => sum + (gro?.appended ?? 0), 0);
  }

  /** Loses everything that card `port` sends from now on; false restores the connection. */
  cut(port: number, isCut = true): void {
    (this.#ports[port] as Port).isCut = isCut;
  }

  /** Schedules a call of `application` at a time in nanoseconds. */
  wake(time: number): void {
    this.#alarms.push(time);
  }

  /** Runs one turn of all cards, or advances the time to the next event. Returns false when there is none left. */
  turn(): boolean {
    let moved = this.#arrive();
    for (const port of this.#ports) {
      const x = port.rig.x;
      if (port.u32[port.rxProducer] !== port.u32[port.rxConsumer]) {
        if (port.sharesIcrc) this.#fold(port);
        moved = x.rx(this.now, 1024) > 0 || moved;
      }
      const deadline = x.nextDeadline();
      if (deadline !== 0 && deadline <= this.now) {
        x.expire(this.now);
        moved = true;
      }
    }
    moved = this.application() || moved;
    for (let i = 0; i < this.#ports.length; i++) moved = this.#send(i) || moved;
    if (moved) {
      this.now += TURN;
      return true;
    }
    return this.#jump();
  }

  /** Runs turns until no event is left. @throws Error after `most` turns */
  run(most = 2_000_000): void {
    for (let turns = 0; this.turn(); turns++)
      if (turns > most)
        throw new Error(`still active after ${turns} turns, at ${this.now} ns: ${JSON.stringify(this.counters)}`);
  }

  #jump(): boolean {
    let next = this.#flight.next;
    for (const port of this.#ports) {
      const deadline = port.rig.x.nextDeadline();
      if (deadline !== 0 && deadline < next) next = deadline;
    }
    this.#alarms = this.#alarms.filter((alarm) => alarm > this.now);
    for (const alarm of this.#alarms) if (alarm < next) next = alarm;
    if (next === Number.POSITIVE_INFINITY) return false;
    this.now = Math.max(this.now, next);
    return true;
  }

  #arrive(): boolean {
    let moved = false;
    while (this.#flight.next <= this.now) {
      const flight = this.#flight;
      const slot = flight.take();
      (this.#ports[flight.from[slot] as number] as Port).onWay--;
      const to = this.#ports[flight.to[slot] as number] as Port;
      this.#deliver(to, flight.store, slot * flight.slotBytes, flight.length[slot] as number);
      moved = true;
    }
    return moved;
  }

  #send(index: number): boolean {
    const port = this.#ports[index] as Port;
    const count = port.rig.x.tx(this.now, BATCH);
    if (count === 0) return false;
    if (port.sharesIcrc) this.#complete(port, count);
    if (port.gso && this.#turns++ % VERIFIED_TURNS === 0) this.#verify(port, port.gso, count);
    let consumer = port.u32[port.txConsumer] as number;
    for (let i = 0; i < count; i++, consumer = (consumer + 1) >>> 0) {
      const descriptor = port.txDescriptors + (consumer & port.txMask) * 4;
      const at = port.u32[descriptor] as number;
      const length = port.u32[descriptor + 2] as number;
      const to = (port.bytes[at + 5] as number) - 1;
      this.counters.sent++;
      if (port.isCut || to < 0 || to >= this.#ports.length) this.counters.dropped++;
      else if (port.isPlain) this.#deliver(this.#ports[to] as Port, port.bytes, at, length);
      else this.#pass(port, index, to, at, length);
    }
    port.u32[port.txConsumer] = consumer;
    return true;
  }

  #complete(port: Port, count: number): void {
    const { u32, txConsumer, txDescriptors, txMask } = port;
    for (let i = 0; i < count; i++)
      doPart(port, txDescriptors + (((u32[txConsumer] as number) + i) & txMask) * 4, complete);
  }

  #fold(port: Port): void {
    const { u32, rxProducer, rxConsumer, rxDescriptors, rxMask } = port;
    port.gro?.end();
    for (let n = u32[rxConsumer] as number; n !== u32[rxProducer]; n = (n + 1) >>> 0)
      doPart(port, rxDescriptors + (n & rxMask) * 4, fold);
  }

  /** @throws Error when a frame differs from the second encoder's, or a GSO burst breaks a rule */
  #verify(port: Port, limits: GsoLimits, count: number): void {
    const sent: Sent[] = [];
    for (let n = port.u32[port.txConsumer] as number; sent.length < count; n = (n + 1) >>> 0) {
      const descriptor = port.txDescriptors + (n & port.txMask) * 4;
      const at = port.u32[descriptor] as number;
      const bytes = port.bytes.slice(at, at + (port.u32[descriptor + 2] as number));
      sent.push({ bytes, options: port.u32[descriptor + 3] as number });
    }
    this.counters.gsoBursts += gsoBursts(sent, limits).filter((burst) => burst.length > 1).length;
  }

  /** Applies the impairments of a port to a frame. */
  #pass(port: Port, index: number, to: number, at: number, length: number): void {
    const { settings } = port;
    const random = this.#random;
    if (random.chance(settings.drop) && this.#mayHurt(port, at)) {
      this.counters.dropped++;
      return;
    }
    if (settings.queue !== 0 && port.onWay >= settings.queue && this.#mayHurt(port, at)) {
      this.counters.dropped++;
      this.counters.overflowed++;
      return;
    }
    const damaged = random.chance(settings.corrupt) && this.#mayHurt(port, at);
    this.#launch(port, index, to, at, length, damaged);
    if (random.chance(settings.duplicate)) {
      this.counters.duplicated++;
      this.#launch(port, index, to, at, length, false);
    }
  }

  #launch(port: Port, index: number, to: number, at: number, length: number, damaged: boolean): void {
    const { settings } = port;
    const random = this.#random;
    port.busyUntil = Math.max(this.now, port.busyUntil) + settings.frameTime;
    let time = port.busyUntil + settings.delay;
    if (settings.jitter) time += random.below(settings.jitter);
    if (random.chance(settings.reorder)) {
      this.counters.held++;
      time += 1 + random.below(HELD);
    }
    if (time <= this.now && !damaged) {
      this.#deliver(this.#ports[to] as Port, port.bytes, at, length);
      return;
    }
    const slot = this.#flight.add(time);
    if (slot < 0) {
      this.counters.dropped++;
      return;
    }
    const flight = this.#flight;
    const target = slot * flight.slotBytes;
    copy(port.bytes, at, flight.store, target, length);
    flight.length[slot] = length;
    flight.to[slot] = to;
    flight.from[slot] = index;
    port.onWay++;
    if (!damaged) return;
    this.counters.corrupted++;
    for (let flips = random.between(1, 5); flips > 0; flips--) {
      const place = target + random.between(ETHERNET, length);
      flight.store[place] = (flight.store[place] as number) ^ (1 << random.below(8));
    }
  }

  /** Returns whether a packet may be lost or corrupted once more. Its queue pair and PSN follow IPv4 or IPv6. */
  #mayHurt(port: Port, at: number): boolean {
    const { mostLosses } = port.settings;
    if (mostLosses === 0) return true;
    const { bytes } = port;
    const byte = (offset: number): number => bytes[at + offset] as number;
    const bth = byte(12) === 0x08 ? ETHERNET + 28 : ETHERNET + 48;
    const key =
      ((byte(bth + 6) << 8) | byte(bth + 7)) * 2 ** 24 +
      ((byte(bth + 9) << 16) | (byte(bth + 10) << 8) | byte(bth + 11));
    const losses = port.losses.get(key) ?? 0;
    if (losses >= mostLosses) {
      port.losses.delete(key);
      return false;
    }
    port.losses.set(key, losses + 1);
    return true;
  }

  #deliver(to: Port, from: Uint8Array, at: number, length: number): void {
    const producer = to.u32[to.rxProducer] as number;
    const frame = to.gro && from.subarray(at, at + length);
    if (to.gro && frame) {
      if (producer === to.u32[to.rxConsumer]) to.gro.end();
      if (to.gro.append(frame, to.bytes, to.u32)) {
        this.counters.delivered++;
        return;
      }
    }
    if ((producer - (to.u32[to.rxConsumer] as number)) >>> 0 > to.rxMask) {
      this.counters.dropped++;
      this.counters.overflowed++;
      return;
    }
    const descriptor = to.rxDescriptors + (producer & to.rxMask) * 4;
    copy(from, at, to.bytes, to.u32[descriptor] as number, length);
    to.u32[descriptor + 2] = length;
    to.u32[descriptor + 3] = 0;
    to.u32[to.rxProducer] = (producer + 1) >>> 0;
    if (to.gro && frame) to.gro.begin(descriptor, frame);
    this.counters.delivered++;
  }
}

/** Does the link's part of the ICRC for the frame of a descriptor, and updates the options of the descriptor. */
function doPart(
  { u32, bytes, rig }: Port,
  descriptor: number,
  part: (frame: Uint8Array, options: number, bytesAt: BytesAt) => number,
): void {
  const [at, , length, options] = u32.subarray(descriptor, descriptor + 4) as unknown as number[];
  const frame = bytes.subarray(at, (at as number) + (length as number));
  u32[descriptor + 3] = part(frame, options as number, (place, count) => rig.bytesAt(place, count));
}
