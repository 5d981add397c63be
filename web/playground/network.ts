/**
 * The network of the playground: a wire between two cards, with a rate and a delay of its own, that loses and reorders
 * packets. It has no clock: the caller passes the time.
 */
import { ipText, macText } from '../../src/base/address.js';
import { Random } from '../../src/link/fault/random.js';
import type { Frames } from '../../src/link/frames.js';
import type { Link, LinkCounters, LinkFeatures, LinkInterface, Resolved } from '../../src/link/link.js';
import { RingView } from '../../src/link/ring.js';

/** The number of an end: the first or the second card. */
export type End = 0 | 1;

/** Faults of the network. They may change at any time; packets on their way are not affected. */
export interface Conditions {
  /** Probability that a packet is lost, 0 to 1. */
  loss: number;
  /** Probability that a packet is overtaken by those behind it, 0 to 1. */
  reorder: number;
  /** Time from end to end, nanoseconds. */
  delay: number;
}

/** A packet on its way. */
export interface Flight {
  readonly from: End;
  readonly bytes: Uint8Array;
  /** When it has left, and when it arrives (ns). */
  readonly sent: number;
  readonly arrives: number;
  readonly isLost: boolean;
}

/** Bits per nanosecond: 100 Mbit/s, so that packets of a message leave visibly one after the other. */
const RATE = 0.1;
/** A packet that is overtaken waits as long as this many packets of full size take. */
const OVERTAKEN_PACKETS = [1, 4] as const;
const FULL_PACKET_BYTES = 1100;
const MTU = 4500;
const ETHERNET_BYTES = 14;

const timeOf = (bytes: number) => (bytes * 8) / RATE;

/** A wire between two cards. */
export class Network {
  readonly conditions: Conditions = { loss: 0, reorder: 0, delay: 1e6 };
  /** The packets on their way. */
  flights: Flight[] = [];
  /** Number of packets that have left, and that have come to their end. */
  moves = 0;
  readonly ends: readonly [NetworkLink, NetworkLink];
  readonly #random: Random;

  /**
   * @param onSent called with each packet when it leaves
   * @param seed of the faults: the same seed and packets give the same faults
   */
  constructor(
    readonly onSent: (flight: Flight) => void,
    seed = 1,
  ) {
    this.#random = new Random(seed);
    this.ends = [new NetworkLink(this, 0), new NetworkLink(this, 1)];
  }

  /** Takes a packet. */
  send(from: End, bytes: Uint8Array, now: number): Flight {
    const { loss, reorder, delay } = this.conditions;
    // a number for every question, so that one slider does not change what another one has decided
    const [isLost, isOvertaken, share] = [
      this.#random.unit() < loss,
      this.#random.unit() < reorder,
      this.#random.unit(),
    ];
    const [least, most] = OVERTAKEN_PACKETS;
    const late = isOvertaken ? timeOf(FULL_PACKET_BYTES) * (least + share * (most - least)) : 0;
    const flight: Flight = {
      from,
      bytes,
      sent: now,
      arrives: Math.ceil(now + timeOf(bytes.length) + delay + late),
      isLost,
    };
    this.flights.push(flight);
    this.moves++;
    this.onSent(flight);
    return flight;
  }

  /** Removes the packets that have arrived at an end, and those that were lost. @returns the first in order of time */
  arrived(end: End, now: number): Flight[] {
    const isDone = ({ from, arrives }: Flight) => from !== end && arrives <= now;
    const done = this.flights.filter(isDone);
    this.moves += done.length;
    if (done.length > 0) this.flights = this.flights.filter((flight) => !isDone(flight));
    return done.filter(({ isLost }) => !isLost).sort((a, b) => a.arrives - b.arrives);
  }

  /** Loses all packets that are on their way. */
  clear(): void {
    this.flights = [];
  }
}

/** The link of a card to the network. */
export class NetworkLink implements Link {
  readonly kind = 'playground';
  readonly interface: LinkInterface;
  readonly features: LinkFeatures = {
    maxFrame: MTU + ETHERNET_BYTES,
    ipHeaderVisible: true,
    sourcePort: 0,
    ipIdentification: 'as written',
  };
  readonly #counters = { tx_frames: 0, tx_bytes: 0, tx_lost: 0, rx_frames: 0, rx_bytes: 0 };
  /** When the last packet has left completely. */
  #free = 0;
  #memory: Uint8Array = new Uint8Array(0);
  #tx: RingView | undefined;
  #rx: RingView | undefined;

  constructor(
    readonly network: Network,
    readonly end: End,
  ) {
    const mac = Uint8Array.of(2, 0, 0, 0, 0, end + 1);
    const addresses = [ipText(Uint8Array.of(10, 0, 0, end + 1))];
    this.interface = { name: `line${end}`, index: end + 1, mtu: MTU, mac, addresses, up: true };
  }

  attach({ memory, tx, rx }: Frames): void {
    this.#memory = memory;
    this.#tx = new RingView(memory, tx);
    this.#rx = new RingView(memory, rx);
  }

  /** Sends packets one after the other, as the rate allows. The others stay in the ring. */
  send(now: number): number {
    const ring = this.#tx;
    let sent = 0;
    while (ring !== undefined && ring.filled > 0 && this.#free <= now) {
      const [addr, length] = [ring.addr(ring.consumer), ring.length(ring.consumer)];
      if (length > 0) this.#sendOne(this.#memory.slice(addr, addr + length), now);
      ring.consumer = ring.consumer + 1;
      sent++;
    }
    return sent;
  }

  #sendOne(bytes: Uint8Array, now: number): void {
    this.#free = Math.ceil(now + timeOf(bytes.length));
    const { isLost } = this.network.send(this.end, bytes, now);
    this.#counters.tx_frames++;
    this.#counters.tx_bytes += bytes.length;
    if (isLost) this.#counters.tx_lost++;
  }

  receive(now: number): number {
    const ring = this.#rx;
    if (ring === undefined) return 0;
    const flights = this.network.arrived(this.end, now);
    for (const { bytes } of flights) {
      // the ring holds more than the wire
      this.#memory.set(bytes, ring.addr(ring.producer));
      ring.describe(ring.producer, bytes.length, 0);
      ring.producer = ring.producer + 1;
      this.#counters.rx_frames++;
      this.#counters.rx_bytes += bytes.length;
    }
    return flights.length;
  }

  nextDeadline(): number {
    const times = this.network.flights.filter(({ from }) => from !== this.end).map(({ arrives }) => arrives);
    if (this.#tx !== undefined && this.#tx.filled > 0) times.push(this.#free);
    return times.length === 0 ? 0 : Math.min(...times);
  }

  /** Time passes by calls alone: nothing waits. */
  wait(): void {}
  cancelWait(): void {}
  close(): void {}

  counters(): LinkCounters {
    return { ...this.#counters };
  }

  async resolve(destination: string): Promise<Resolved> {
    const { mac, addresses } = this.network.ends[this.end === 0 ? 1 : 0].interface;
    if (addresses.includes(destination)) return { destMac: mac };
    throw new Error(`the wire from ${macText(this.interface.mac)} does not lead to ${destination}`);
  }
}
