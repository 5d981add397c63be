/** The attacker: sends the frames of a flood on a packet socket, again and again, or misbehaves as a connected peer. */
import { PacketLink } from '../../src/link/packet.js';
import { Rig } from '../../test/link/rig.js';
import { BROKER_PEERS, type BrokerPeer, type BrokerPeerName } from './brokerpeers.js';
import { FLOODS, type FloodName, type Victim } from './floods.js';
import { Pace } from './pace.js';
import { DEVICE_PEERS, type DevicePeer, type DevicePeerName } from './peers.js';
import { RAW_PEERS, type RawPeer, type RawPeerName } from './rawpeers.js';

/** The attacks. */
export type AttackName = FloodName | RawPeerName | DevicePeerName | BrokerPeerName;
/** The names of all attacks, in the order of the table. */
export const ATTACKS: readonly AttackName[] = [FLOODS, RAW_PEERS, DEVICE_PEERS, BROKER_PEERS].flatMap(
  (attacks) => Object.keys(attacks) as AttackName[],
);

/** Frames of one flood before they repeat. */
const FRAMES = 8192;
const SLOTS = 512;

const isFlood = (name: AttackName): name is FloodName => name in FLOODS;
const isRawPeer = (name: AttackName): name is RawPeerName => name in RAW_PEERS;
const isBrokerPeer = (name: AttackName): name is BrokerPeerName => name in BROKER_PEERS;

/** Serves calls of the bench: see `run.ts`. */
export class Attacker {
  readonly #rigs = new Map<string, Rig>();
  readonly #pace = new Pace();
  #frames: Uint8Array[] = [];
  #peer: RawPeer | DevicePeer | BrokerPeer | undefined;

  /** Prepares an attack. */
  prepare(name: AttackName, victim: Victim): void {
    if (isFlood(name)) this.#frames = Array.from({ length: FRAMES }, (_, n) => FLOODS[name](victim, n));
    else if (isRawPeer(name)) this.#peer = RAW_PEERS[name](victim, () => this.#rigOf(victim.attacker.interface));
    else if (isBrokerPeer(name)) this.#peer = BROKER_PEERS[name](victim);
    else this.#peer = DEVICE_PEERS[name](victim);
  }

  /**
   * Sends frames on an interface until `stop`, to find out what that alone costs. Does nothing for a connected peer.
   * @param rate frames a second
   */
  rehearse(name: string, rate: number): void {
    if (this.#peer === undefined) this.start(name, rate);
  }

  /** Attacks until `stop`. @param rate frames, connections or requests a second */
  start(name: string, rate: number): void {
    if (this.#peer !== undefined) {
      this.#peer.start(rate);
      return;
    }
    const rig = this.#rigOf(name);
    this.#pace.start(rate, (first, count) => {
      const room = Math.min(rig.tx.free, count);
      for (let i = 0; i < room; i++) rig.put(this.#frames[(first + i) % FRAMES] as Uint8Array);
      if (room > 0) rig.link.send(0);
      return room;
    });
  }

  /** Ends the attack. @returns the number of frames, connections or requests, a second */
  stop(): number {
    return this.#peer === undefined ? this.#pace.stop() : this.#peer.stop();
  }

  #rigOf(name: string): Rig {
    const rig =
      this.#rigs.get(name) ?? new Rig(PacketLink.open({ interface: name }), { slots: SLOTS, slotBytes: 2048 });
    this.#rigs.set(name, rig);
    return rig;
  }
}
