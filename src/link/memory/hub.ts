/** The hub of the `memory` link: delivers frames between cards of one process, by MAC or IP address. */
import { type InspectOptions, inspect } from 'node:util';
import { ipText, isMulticast, macText } from '../../base/address.js';
import { VerbsError } from '../../errors.js';
import { ETHERNET_BYTES, ETHERTYPE, VLAN_TAG_BYTES } from '../headers.js';
import type { MemoryLink } from './link.js';

const NO_MEMBERS: ReadonlySet<MemoryLink> = new Set();

/** Options of `createMemoryHub`. */
export interface MemoryHubOptions {
  /** Deliver GSO bursts as super-packets, as the kernel's segmentation offload does. Default: false. */
  readonly coalesce?: boolean;
}

/**
 * A network of the `memory` links of this process. Make one with `createMemoryHub` and pass it to `openDevice`. Devices
 * with the same hub reach each other.
 * @example
 * const hub = createMemoryHub();
 * const a = await openDevice({ link: 'memory', hub });
 * const b = await openDevice({ link: 'memory', hub });
 */
export class MemoryHub {
  /** Whether the hub delivers GSO bursts as super-packets. */
  readonly coalesces: boolean;
  readonly #links = new Set<MemoryLink>();
  readonly #byMac = new Map<number, MemoryLink>();
  readonly #byIp = new Map<string, MemoryLink>();
  readonly #groups = new Map<string, Set<MemoryLink>>();
  #opened = 0;

  constructor({ coalesce = false }: MemoryHubOptions = {}) {
    this.coalesces = coalesce;
  }

  /** Returns a short description as plain data, for `JSON.stringify` and `console.log`. */
  toJSON(): Record<string, unknown> {
    return { coalesces: this.coalesces, addresses: [...this.#byIp.keys()].slice(0, 8), links: this.#links.size };
  }

  /** @internal */
  [inspect.custom](depth: number, options: InspectOptions): string {
    return depth < 0 ? '[MemoryHub]' : `MemoryHub ${inspect(this.toJSON(), options)}`;
  }

  /** @internal The links that have joined. */
  get links(): ReadonlySet<MemoryLink> {
    return this.#links;
  }

  /** @internal Returns a number for the next link's name and MAC address. */
  nextNumber(): number {
    return this.#opened++;
  }

  /** @internal Adds a link. @throws VerbsError EADDRINUSE if another link has its MAC address or an IP address of it */
  join(link: MemoryLink): void {
    const { mac, addresses } = link.interface;
    if (this.#byMac.has(macKey(mac, 0)))
      throw new VerbsError('EADDRINUSE', `another card of the hub has the MAC address ${macText(mac)}`);
    const taken = addresses.find((address) => this.#byIp.has(address));
    if (taken) throw new VerbsError('EADDRINUSE', `another card of the hub has the address ${taken}`);
    this.#links.add(link);
    this.#byMac.set(macKey(mac, 0), link);
    for (const address of addresses) this.#byIp.set(address, link);
  }

  /** @internal Removes a link, also from its groups. Does nothing if the link has not joined. */
  leave(link: MemoryLink): void {
    if (!this.#links.delete(link)) return;
    this.#byMac.delete(macKey(link.interface.mac, 0));
    for (const address of link.interface.addresses) this.#byIp.delete(address);
    for (const other of this.#links) other.unblock(link);
    for (const group of this.#groups.keys()) this.leaveGroup(group, link);
  }

  /** @internal Adds a link to a multicast group. @param group as `ipText` writes it */
  joinGroup(group: string, link: MemoryLink): void {
    const members = this.#groups.get(group) ?? new Set();
    this.#groups.set(group, members.add(link));
  }

  /** @internal Removes a link from a multicast group. */
  leaveGroup(group: string, link: MemoryLink): void {
    const members = this.#groups.get(group);
    members?.delete(link);
    if (members?.size === 0) this.#groups.delete(group);
  }

  /** @internal Returns the members of the group that a frame is for; undefined if its destination is no group. */
  members(memory: Uint8Array, addr: number, length: number): ReadonlySet<MemoryLink> | undefined {
    if (length < ETHERNET_BYTES || ((memory[addr] as number) & 1) === 0) return undefined;
    const address = destinationIp(memory, addr, length);
    if (!address || !isMulticast(address)) return undefined;
    return this.#groups.get(ipText(address)) ?? NO_MEMBERS;
  }

  /** @internal Returns the link that has an address. @param address as `ipText` writes it */
  owner(address: string): MemoryLink | undefined {
    return this.#byIp.get(address);
  }

  /**
   * @internal Returns the link that a frame is for: by its destination MAC address, else by its destination IP address.
   */
  destination(memory: Uint8Array, addr: number, length: number): MemoryLink | undefined {
    if (length < ETHERNET_BYTES) return undefined;
    const link = this.#byMac.get(macKey(memory, addr));
    if (link) return link;
    const address = destinationIp(memory, addr, length);
    return address && this.#byIp.get(ipText(address));
  }
}

/** Returns the MAC address at an offset as a number, for use as a key. */
export function macKey(bytes: Uint8Array, at: number): number {
  let key = 0;
  for (let i = 0; i < 6; i++) key = key * 256 + (bytes[at + i] as number);
  return key;
}

function destinationIp(memory: Uint8Array, addr: number, length: number): Uint8Array | undefined {
  const word = (at: number) => ((memory[addr + at] as number) << 8) | (memory[addr + at + 1] as number);
  const isTagged = word(ETHERNET_BYTES - 2) === ETHERTYPE.VLAN;
  const ip = isTagged ? ETHERNET_BYTES + VLAN_TAG_BYTES : ETHERNET_BYTES;
  const type = word(ip - 2);
  if (type === ETHERTYPE.IPV4 && length >= ip + 20) return memory.slice(addr + ip + 16, addr + ip + 20);
  if (type === ETHERTYPE.IPV6 && length >= ip + 40) return memory.slice(addr + ip + 24, addr + ip + 40);
  return undefined;
}
