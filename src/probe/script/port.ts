/** The port of a script's packets: a real link, or a card in virtual time. */
import type { Flow } from '../packet/packets.js';

/** A frame that a port has received. */
export interface Arrival {
  /** The Ethernet frame, without frame check sequence. */
  readonly frame: Uint8Array;
  /** When it arrived, in nanoseconds of the port's clock. */
  readonly at: number;
}

/** Sends and receives the frames of one queue pair. */
export interface PacketPort {
  /** Addresses of packets to the peer. */
  readonly flow: Flow;
  /** Path MTU in bytes of payload. */
  readonly mtu: number;
  /** The time in nanoseconds. */
  now(): number;
  /** Sends a frame. @returns when it left, or will leave if it has to wait for its turn, in nanoseconds */
  send(frame: Uint8Array): number;
  /**
   * Returns the next frame that has arrived.
   * @param until the time to wait for it, in nanoseconds
   * @returns undefined if none has arrived by then
   */
  receive(until: number): Promise<Arrival | undefined>;
}
