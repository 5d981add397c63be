/**
 * The sockets that share UDP port 4791 of one address. The kernel numbers the members of such a group in the order in
 * which they were bound, and when one is closed the last one takes its number. So no member is closed while another one
 * is lent: one that a program has given back is lent again.
 */
import { ipBytes } from '../base/address.js';
import type { HostAddress } from '../link/broker/protocol.js';
import { closeFds } from '../link/fds.js';
import { ROCE_PORT } from '../link/headers.js';
import { native } from '../native.js';
import type { Program } from './program.js';
import { DROPS, steeringProgram } from './steering.js';

/** A socket of a group. */
export interface Member {
  readonly fd: number;
  /** The program that it is lent to; undefined: none. */
  program: Program | undefined;
}

/** Bytes of a buffer until the program sets its own. */
const BUFFER_BYTES = 2 ** 20;

/** See the head of this file. */
export class PortGroup {
  /** By index in the group. The first one is never lent: it drops what is for nobody. */
  readonly members: Member[];
  /** The listener, by service id. */
  readonly services = new Map<bigint, Program>();
  #steering: Uint32Array | undefined;

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
    return this.members.every(({ program }) => program === undefined);
  }

  has(program: Program): boolean {
    return this.members.some((member) => member.program === program);
  }

  /** Returns the socket that is lent to a program, which it gets if it has none; or -errno. */
  lend(program: Program): number {
    const lent = this.members.find((member) => member.program === program);
    if (lent !== undefined) return lent.fd;
    const free = this.members.find((member, index) => index > DROPS && member.program === undefined);
    if (free !== undefined) native().ports.drain(free.fd);
    const member = free ?? this.#open();
    if (typeof member === 'number') return member;
    member.program = program;
    this.steer();
    return member.fd;
  }

  /** Takes the socket of a program back. */
  release(program: Program): void {
    for (const member of this.members) if (member.program === program) member.program = undefined;
    for (const [id, owner] of this.services) if (owner === program) this.services.delete(id);
    this.steer();
  }

  /** Gives the kernel the program for the sockets as they are lent now. */
  steer(): void {
    const [first] = this.members;
    if (first === undefined) return;
    const indexes = new Map<Program, number>();
    for (const [index, { program }] of this.members.entries()) if (program !== undefined) indexes.set(program, index);
    const slots = new Map([...indexes].map(([{ slot }, index]) => [slot, index]));
    const onlyLocal = [...indexes.keys()].filter((program) => program.onlyLocal).map(({ slot }) => slot);
    const services = new Map([...this.services].map(([id, program]) => [id, indexes.get(program) ?? DROPS]));
    const [, refuses] = [...indexes].find(([{ isAgent }]) => isAgent) ?? [];
    this.#steering = steeringProgram({ slots, onlyLocal, services, refuses });
    native().ports.steer(first.fd, this.#steering);
  }

  /** Gives the kernel the same program again: a program that has a socket may have removed it. */
  steerAgain(): void {
    const [first] = this.members;
    if (first !== undefined && this.#steering !== undefined) native().ports.steer(first.fd, this.#steering);
  }

  close(): void {
    closeFds(this.members.splice(0).map(({ fd }) => fd));
  }

  /** Opens another member, and before it the first one, which drops. */
  #open(): Member | number {
    const { ports, closeFd } = native();
    const { address, scope } = this.at;
    const bytes = ipBytes(address);
    if (this.members.length === 0) {
      // A socket of another program would be a member whose index is not known.
      const taken = ports.isFree(bytes, ROCE_PORT, scope, false);
      if (taken < 0) return taken;
      const fd = ports.member(bytes, ROCE_PORT, scope, 0, false);
      if (fd < 0) return fd;
      this.members.push({ fd, program: undefined });
      // the members that join later have the program from the start
      this.steer();
    }
    const fd = ports.member(bytes, ROCE_PORT, scope, BUFFER_BYTES, true);
    if (fd < 0) return fd;
    const refused = ports.lock(fd);
    if (refused < 0) {
      closeFd(fd);
      return refused;
    }
    const member = { fd, program: undefined };
    this.members.push(member);
    return member;
  }
}
