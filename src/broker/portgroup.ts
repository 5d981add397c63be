/**
 * The sockets that share UDP port 4791 of one address. The kernel numbers the members of such a group in the order in
 * which they were bound, and when one is closed the last one takes its number. So no member is closed while another one
 * is lent: one that a program has given back is lent again.
 */
import { ipBytes } from '../base/address.js';
import type { HostAddress } from '../link/broker/protocol.js';
import { ROCE_PORT } from '../link/headers.js';
import { native } from '../native.js';
import { DROPS, steeringProgram } from './steering.js';

/** A socket of a group. */
export interface Member {
  readonly fd: number;
  /** Slot of the program that it is lent to; 0: nobody. */
  slot: number;
}

/** Bytes of a buffer until the program sets its own. */
const BUFFER_BYTES = 2 ** 20;

/** See the head of this file. */
export class PortGroup {
  /** By index in the group. The first one is never lent: it drops what is for nobody. */
  readonly members: Member[];
  /** Slot of the listener, by service id. */
  readonly services = new Map<bigint, number>();
  /** Slots of the programs that handle messages to queue pair 1. */
  readonly agents = new Set<number>();

  /**
   * @param members those of an earlier broker, in the order of their indexes. Default: none
   */
  constructor(
    readonly at: HostAddress,
    members: readonly Member[] = [],
  ) {
    this.members = [...members];
  }

  /** Whether no program has a socket of the group. */
  get isUnused(): boolean {
    return this.members.every(({ slot }) => slot === 0);
  }

  has(slot: number): boolean {
    return this.members.some((member) => member.slot === slot);
  }

  /** Returns the socket that is lent to a program, which it gets if it has none; or -errno. */
  lend(slot: number): number {
    const lent = this.members.find((member) => member.slot === slot);
    if (lent !== undefined) return lent.fd;
    const free = this.members.find((member, index) => index > DROPS && member.slot === 0);
    if (free !== undefined) native().ports.drain(free.fd);
    const member = free ?? this.#open();
    if (typeof member === 'number') return member;
    member.slot = slot;
    this.steer();
    return member.fd;
  }

  /** Takes the socket of a program back. */
  release(slot: number): void {
    for (const member of this.members) if (member.slot === slot) member.slot = 0;
    for (const [id, owner] of this.services) if (owner === slot) this.services.delete(id);
    this.agents.delete(slot);
    this.steer();
  }

  /** Gives the kernel the program for the sockets as they are lent now. */
  steer(): void {
    const [first] = this.members;
    if (first === undefined) return;
    const slots = new Map<number, number>();
    for (const [index, { slot }] of this.members.entries()) if (slot !== 0) slots.set(slot, index);
    const services = new Map<bigint, number>();
    for (const [id, slot] of this.services) services.set(id, slots.get(slot) ?? DROPS);
    const [agent] = this.agents;
    const refuses = agent === undefined ? undefined : slots.get(agent);
    native().ports.steer(first.fd, steeringProgram({ slots, services, refuses }));
  }

  close(): void {
    for (const { fd } of this.members.splice(0)) native().closeFd(fd);
  }

  /** Opens another member, and before it the first one, which drops. */
  #open(): Member | number {
    const { ports, closeFd } = native();
    const { address, scope, ifindex } = this.at;
    const bytes = ipBytes(address);
    if (this.members.length === 0) {
      // A socket of another program would be a member whose index is not known.
      const taken = ports.isFree(bytes, ROCE_PORT, scope);
      if (taken < 0) return taken;
      const fd = ports.member(bytes, ROCE_PORT, scope, 0, ifindex, false);
      if (fd < 0) return fd;
      this.members.push({ fd, slot: 0 });
      // the members that join later have the program from the start
      this.steer();
    }
    const fd = ports.member(bytes, ROCE_PORT, scope, BUFFER_BYTES, ifindex, true);
    if (fd < 0) return fd;
    const refused = ports.lock(fd);
    if (refused < 0) {
      closeFd(fd);
      return refused;
    }
    const member = { fd, slot: 0 };
    this.members.push(member);
    return member;
  }
}
