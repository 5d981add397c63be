/** The ports of a device's port spaces (IBTA annex A11) that are bound. */
import { VerbsError } from '../errors.js';
import type { DeviceBase } from '../verbs/objects/devicebase.js';
import type { PortSpaceName } from './core/serviceid.js';

/** Range of ephemeral ports, as in Linux: `from` inclusive, `to` exclusive. */
const EPHEMERAL = { from: 32768, to: 61000 };
const COUNT = EPHEMERAL.to - EPHEMERAL.from;
/** Random ports that are tried. Unless nearly all are in use, a free one is found. */
const MAX_TRIES = 10 * COUNT;

/**
 * Returns a random port that is free.
 * @param random returns random numbers of 24 bits
 * @throws VerbsError EADDRINUSE when no port is free
 */
export function randomFreePort(space: PortSpaceName, random: () => number, isTaken: (port: number) => boolean): number {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const port = EPHEMERAL.from + (random() % COUNT);
    if (!isTaken(port)) return port;
  }
  throw new VerbsError('EADDRINUSE', `all ${space} ports are in use`);
}

const ofDevices = new WeakMap<DeviceBase, BoundPorts>();

/** Clients and listeners can share a port. */
export class BoundPorts {
  /** Whether a listener has a port. */
  isListening: (space: PortSpaceName, port: number) => boolean = () => false;
  readonly #random: () => number;
  /** Number of users of each port. */
  readonly #counts = new Map<string, number>();

  /** @param random returns random numbers of 24 bits */
  constructor(random: () => number) {
    this.#random = random;
  }

  /** Returns the ports of a device. */
  static of(device: DeviceBase): BoundPorts {
    const known = ofDevices.get(device);
    if (known !== undefined) return known;
    const ports = new BoundPorts(device.card.exports.randomPsn);
    ofDevices.set(device, ports);
    return ports;
  }

  /**
   * Binds a port.
   * @param port 0: any free port
   * @returns the port
   * @throws VerbsError EADDRINUSE when no port is free
   */
  bind(space: PortSpaceName, port: number): number {
    const chosen = port === 0 ? this.#free(space) : port;
    const key = keyOf(space, chosen);
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
    return chosen;
  }

  /** Releases a port, which someone else may have bound as well. */
  release(space: PortSpaceName, port: number): void {
    const key = keyOf(space, port);
    const left = (this.#counts.get(key) ?? 1) - 1;
    if (left > 0) this.#counts.set(key, left);
    else this.#counts.delete(key);
  }

  #free(space: PortSpaceName): number {
    const isTaken = (port: number) => this.#counts.has(keyOf(space, port)) || this.isListening(space, port);
    return randomFreePort(space, this.#random, isTaken);
  }
}

const keyOf = (space: PortSpaceName, port: number) => `${space}/${port}`;
