/** The part of a device that its objects use: card, link, port and addresses, and the register of card handles. */

import { gidBytes } from '../../base/gid.js';
import { checkInteger } from '../../base/options.js';
import { checkWait, type WaitOptions, waitFor } from '../../base/waiting.js';
import type { Card } from '../../device/card.js';
import type { Engine } from '../../device/engine.js';
import { CardMemory } from '../../device/memory.js';
import { VerbsError } from '../../errors.js';
import type { Link } from '../../link/link.js';
import type { HostFault } from '../../probe/faults/hostfault.js';
import { chooseGid, type GidChoice, type GidEntry, gidTable, updateGidTable } from '../address/gid.js';
import { ahAttrFromWc } from '../address/grh.js';
import { MulticastGroups } from '../address/groups.js';
import { PathFollower } from '../address/pathfollower.js';
import { type DeviceInfo, deviceInfo, type PortInfo, portInfo, writePkeys } from '../address/port.js';
import { type AhAttr, type ResolvedAddress, resolveAddress } from '../address/resolvedaddress.js';
import { type Counters, readCounter, readCounters } from '../diagnose/counters.js';
import type { FailureContext } from '../diagnose/explain.js';
import { faultyGids, isPortDown } from '../diagnose/hostfaults.js';
import type { Wc } from '../work/wc.js';
import { Resource } from './resource.js';

/** Entries of the card's GID table. */
const MAX_GIDS = 63;

/** @internal An object that the card has events for. */
export interface CardObject extends Resource {
  readonly kind: 'cq' | 'qp' | 'srq';
}

/** @internal The parts that `openDevice` has prepared for the constructor. */
export interface DeviceInit {
  readonly card: Card;
  readonly link: Link;
  readonly engine: Engine;
  readonly keepAlive: boolean;
  readonly pkeys: readonly number[];
}

/**
 * A device as its objects know it: what it can do, its port, addresses and counters. `openDevice` returns a `Device`,
 * which also creates objects and emits events.
 */
export abstract class DeviceBase extends Resource {
  /** Always `device`. */
  readonly kind = 'device';
  /** @internal */
  readonly card: Card;
  /** @internal */
  readonly link: Link;
  /** @internal */
  readonly engine: Engine;
  /** @internal */
  readonly memory: CardMemory;
  /** @internal Whether a connected queue pair keeps the process running. */
  readonly keepAlive: boolean;
  /** @internal */
  readonly groups: MulticastGroups;
  /** @internal Of all queue pairs and address handles. */
  readonly paths: PathFollower;
  #lastNumber = 0;
  /** The GID table of the interface. */
  #hostGids: readonly GidEntry[];
  /** The same with the faults. */
  #gids: readonly GidEntry[];
  #hostFaults: readonly HostFault[] = [];
  readonly #pkeys: readonly number[];

  /** @internal */
  constructor({ card, link, engine, keepAlive, pkeys }: DeviceInit) {
    super([]);
    this.card = card;
    this.link = link;
    this.engine = engine;
    this.keepAlive = keepAlive;
    this.#pkeys = writePkeys(card, pkeys);
    this.memory = new CardMemory(card);
    this.#hostGids = gidTable(link.interface.addresses);
    this.#gids = this.#hostGids;
    this.groups = new MulticastGroups(card, link);
    this.paths = new PathFollower(link, () => readCounter(card, card.exports.counters(), 'local_ack_timeout_err'));
    this.#configurePort();
  }

  /** Name of the device: `wasm-` and the interface's name. */
  get label(): string {
    return `wasm-${this.link.interface.name}`;
  }

  /** The GID table: one RoCE v2 entry per address of the interface. A GID_CHANGE event replaces it. */
  get gids(): readonly GidEntry[] {
    return this.#gids;
  }

  /** Returns limits, vendor and link features (ibv_query_device). @throws VerbsError EINVAL after close */
  query(): DeviceInfo {
    this.assertOpen();
    return deviceInfo(this.card, this.link);
  }

  /** Returns state and MTU of the only port (ibv_query_port). @throws VerbsError EINVAL after close */
  queryPort(): PortInfo {
    this.assertOpen();
    const info = portInfo(this.link, this.gids.length, this.#pkeys.length);
    return isPortDown(this.#hostFaults) ? { ...info, state: 'DOWN' } : info;
  }

  /**
   * Returns an entry of the P_Key table (ibv_query_pkey), 16 bits: bit 15 = full member, bits 0 to 14 = partition. Two
   * queue pairs can communicate if they are in the same partition and at least one is a full member (IBTA 10.9.3).
   * @throws TypeError, RangeError for an index outside the table
   */
  queryPkey(index: number): number {
    this.assertOpen();
    return this.#pkeys[checkInteger('index', index, 0, this.#pkeys.length - 1)] as number;
  }

  /**
   * Chooses the local GID to reach a peer from, or to advertise to a peer whose address is not known yet. It has the
   * peer's address family and scope, and the longest common prefix. Without a peer, IPv4 comes first and link-local
   * addresses last.
   * @param peer GID or IP address of the peer
   * @throws TypeError when `peer` is no address; VerbsError EADDRNOTAVAIL when no entry can reach it
   */
  chooseGid(peer?: string): GidChoice {
    const choice = chooseGid(this.gids, peer);
    if (choice !== undefined) return choice;
    const have = this.gids.map(({ address }) => address).join(', ') || 'none';
    throw new VerbsError(
      'EADDRNOTAVAIL',
      `no address of ${this.link.interface.name} (${have}) can reach ${peer ?? 'a peer'}: family and scope must match`,
    );
  }

  /**
   * Resolves a peer's address: route, next hop and its MAC address.
   * @param attr destination GID, and the attributes of the route
   * @param wait limits the time to find the next hop; the kernel gives up after 3 s
   * @throws TypeError, RangeError for wrong attributes; VerbsError EINVAL when source and destination differ in address
   * family, EADDRNOTAVAIL when no local address can reach it, EHOSTUNREACH without a route or an answer to ARP or
   * neighbour discovery, ETIMEDOUT after `timeout`; the signal's reason
   */
  async resolveAddress(attr: AhAttr, wait: WaitOptions = {}): Promise<ResolvedAddress> {
    this.assertOpen();
    checkWait(wait);
    // before the promise exists: nobody would take its rejection if this threw
    const to = String(attr?.grh?.dgid);
    const resolving = resolveAddress(attr, this.gids, (peer) => this.chooseGid(peer), this.link);
    return waitFor(resolving, `${to} is not resolved`, wait);
  }

  /**
   * Returns the address of a datagram's sender (ibv_init_ah_from_wc), for `pd.createAh`.
   * @param wc the datagram's completion
   * @param buffer start of the receive's memory, at least 40 bytes
   * @throws TypeError, RangeError for a wrong buffer; VerbsError EINVAL when the completion is not that of a datagram
   */
  ahAttrFromWc(wc: Wc, buffer: Uint8Array): AhAttr {
    this.assertOpen();
    return ahAttrFromWc(wc, buffer, this.gids);
  }

  /** Returns the counters of the card, and those of the link as `link.<name>`. @throws VerbsError EINVAL after close */
  counters(): Counters {
    this.assertOpen();
    const counters = readCounters(this.card, this.card.exports.counters());
    for (const [name, value] of Object.entries(this.link.counters())) counters[`link.${name}`] = value;
    return counters;
  }

  /** @internal Drop counters other than 0. */
  drops(): Counters {
    return Object.fromEntries(
      Object.entries(this.counters()).filter(([name, count]) => count > 0 && /^(link\.)?\w*drop/.test(name)),
    );
  }

  /** @internal Returns a number for the label of an object that has no number of its own. */
  nextNumber(): number {
    return ++this.#lastNumber;
  }

  /** @internal Events of the card for this handle are the object's from now on. */
  abstract register(handle: number, object: CardObject): void;

  /** @internal The handle was freed, and may be used again. */
  abstract unregister(handle: number, object: CardObject): void;

  /** @internal A queue pair is about to close: its losses are reported now or never. */
  abstract reportLosses(qp: CardObject): void;

  /** @internal State of a queue pair for explanations. Undefined when it is closed; its handle may have been reused. */
  abstract failureContext(handle: number, qpNum: number): FailureContext | undefined;

  /** @internal The events of the host that the device pretends from now on. `updateGids` applies them. */
  protected setHostFaults(faults: readonly HostFault[]): void {
    this.#hostFaults = faults;
  }

  /** @internal Takes the interface's present addresses. @returns whether the GID table has changed */
  protected updateGids(): boolean {
    this.#hostGids = updateGidTable(this.#hostGids, this.link.interface.addresses);
    const gids = faultyGids(this.#hostGids, this.#hostFaults);
    const isChanged = gids.length !== this.#gids.length || gids.some(({ gid }, i) => gid !== this.#gids[i]?.gid);
    this.#gids = gids;
    this.#configurePort();
    return isChanged;
  }

  /** Tells the card its addresses, for which alone it accepts datagrams, and its MTU. */
  #configurePort(): void {
    const { bytes, exports } = this.card;
    const gids = this.gids.slice(0, MAX_GIDS);
    for (const [i, { gid }] of gids.entries()) bytes.set(gidBytes(gid), exports.scratch() + 16 * i);
    exports.setPort(gids.length, this.queryPort().activeMtu);
  }
}
