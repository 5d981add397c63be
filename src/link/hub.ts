/** Where frames of the `memory` link go: cards of one process, found by MAC or IP address. */
import { VerbsError } from '../errors.js';
import { ipText, isMulticast, macText } from './address.js';
import type { MemoryLink } from './memory.js';

const ETHERNET_BYTES = 14;
const NOBODY: ReadonlySet<MemoryLink> = new Set();

export interface MemoryHubOptions {
  /** Runs of packets arrive as super-packets, as they do behind the kernel's segmentation offload. Default false. */
  readonly coalesce?: boolean;
}

/** Where frames go from card to card. Made by `createMemoryHub`. */
export class MemoryHub {
  readonly coalesces: boolean;
  readonly #links = new Set<MemoryLink>();
  readonly #byMac = new Map<number, MemoryLink>();
  readonly #byIp = new Map<string, MemoryLink>();
  readonly #groups = new Map<string, Set<MemoryLink>>();
  #opened = 0;

  constructor({ coalesce = false }: MemoryHubOptions = {}) {
    this.coalesces = coalesce;
  }

  get links(): ReadonlySet<MemoryLink> {
    return this.#links;
  }

  /** @returns a number for the next link's name and MAC */
  nextNumber(): number {
    return this.#opened++;
  }

  /** @throws VerbsError EADDRINUSE */
  join(link: MemoryLink): void {
    const { mac, addresses } = link.interface;
    if (this.#byMac.has(macKey(mac, 0)))
      throw new VerbsError('EADDRINUSE', `a card of the hub has the MAC ${macText(mac)} already`);
    const taken = addresses.find((address) => this.#byIp.has(address));
    if (taken) throw new VerbsError('EADDRINUSE', `a card of the hub has the address ${taken} already`);
    this.#links.add(link);
    this.#byMac.set(macKey(mac, 0), link);
    for (const address of addresses) this.#byIp.set(address, link);
  }

  leave(link: MemoryLink): void {
    if (!this.#links.delete(link)) return;
    this.#byMac.delete(macKey(link.interface.mac, 0));
    for (const address of link.interface.addresses) this.#byIp.delete(address);
    for (const other of this.#links) other.unblock(link);
    for (const group of this.#groups.keys()) this.leaveGroup(group, link);
  }

  /** @param group as `ipText` writes it */
  joinGroup(group: string, link: MemoryLink): void {
    const members = this.#groups.get(group) ?? new Set();
    this.#groups.set(group, members.add(link));
  }

  leaveGroup(group: string, link: MemoryLink): void {
    const members = this.#groups.get(group);
    members?.delete(link);
    if (members?.size === 0) this.#groups.delete(group);
  }

  /** Those whom a frame to a group is for; undefined when it goes to no group. */
  members(memory: Uint8Array, addr: number, length: number): ReadonlySet<MemoryLink> | undefined {
    if (length < ETHERNET_BYTES || ((memory[addr] as number) & 1) === 0) return undefined;
    const address = destinationIp(memory, addr, length);
    if (!address || !isMulticast(address)) return undefined;
    return this.#groups.get(ipText(address)) ?? NOBODY;
  }

  /** @param address as `ipText` writes it */
  owner(address: string): MemoryLink | undefined {
    return this.#byIp.get(address);
  }

  /** Whom a frame is for: by its destination MAC, or else by its destination IP address. */
  destination(memory: Uint8Array, addr: number, length: number): MemoryLink | undefined {
    if (length < ETHERNET_BYTES) return undefined;
    const link = this.#byMac.get(macKey(memory, addr));
    if (link) return link;
    const address = destinationIp(memory, addr, length);
    return address && this.#byIp.get(ipText(address));
  }
}

export function createMemoryHub(options?: MemoryHubOptions): MemoryHub {
  return new MemoryHub(options);
}

/** 48 bits as a number. */
export function macKey(bytes: Uint8Array, at: number): number {
  let key = 0;
  for (let i = 0; i < 6; i++) key = key * 256 + (bytes[at + i] as number);
  return key;
}

function destinationIp(memory: Uint8Array, addr: number, length: number): Uint8Array | undefined {
  const word = (at: number) => ((memory[addr + at] as number) << 8) | (memory[addr + at + 1] as number);
  const isTagged = word(12) === 0x8100;
  const ip = isTagged ? 18 : 14;
  const type = word(ip - 2);
  if (type === 0x0800 && length >= ip + 20) return memory.slice(addr + ip + 16, addr + ip + 20);
  if (type === 0x86dd && length >= ip + 40) return memory.slice(addr + ip + 24, addr + ip + 40);
  return undefined;
}
