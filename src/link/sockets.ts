/** What the links on the kernel's sockets have in common: the addon moves the frames, this class does the waiting. */
import { getSystemErrorName } from 'node:util';
import { type ErrorCode, VerbsError } from '../errors.js';
import { type NativeWaiter, native } from '../native.js';
import { ipBytes } from './address.js';
import { type HostInterface, interfaceNow } from './interfaces.js';
import type { Frames, Link, LinkCounters, LinkFeatures, Resolved } from './link.js';
import type { Loan } from './loan.js';
import { watchInterfaces } from './monitor.js';
import { frameLayout } from './ring.js';

/** The port of RoCEv2 (IANA). */
export const ROCE_PORT = 4791;
/** Bytes of an Ethernet header. */
export const ETHERNET_BYTES = 14;
/** Packets and bytes of UDP payload that the kernel takes in one go: in one datagram of IP, below 64 KiB as a frame. */
const RUNS = { packets: 64, bytes: 65535 - 14 - 4 - 40 - 8 } as const;
/** Headers with a tag, and the longest payload of IPv6; kCoalescedBytes of native/frames.h. */
const COALESCED_BYTES = 65600;
/** Receive and send buffer of a socket: thousands of frames, so that a busy event loop loses none. */
export const DEFAULT_BUFFER_BYTES = 8 * 2 ** 20;

/** What moves a link's frames: sockets of the addon, for instance. */
export interface FrameSocket {
  attach?(memory: Uint8Array, layout: Uint32Array): void;
  /** @returns descriptors taken; `~` of that when runs are refused from now on */
  send(now: number): number;
  receive(now: number): number;
  counters(): LinkCounters;
  close(): void;
}

export abstract class SocketLink implements Link {
  abstract readonly kind: string;
  abstract readonly features: LinkFeatures;
  readonly #waiter: NativeWaiter;
  readonly #socket: FrameSocket;
  #onReadable: (() => void) | undefined;
  #isClosed = false;
  #interface: HostInterface;
  /** The only addresses that it is for; undefined = all that the interface has. */
  readonly #wanted: readonly string[] | undefined;
  #endWatch = () => {};
  #onChange = () => {};
  #takesRuns = true;
  /** Not 0: in the thread that moves the frames the kernel has refused a run. */
  readonly #news = new SharedArrayBuffer(4);

  /** @param only it is for no other addresses than those that `end` has now */
  protected constructor(end: HostInterface, socket: FrameSocket, fds: number[], only: boolean) {
    this.#interface = end;
    this.#wanted = only ? end.addresses : undefined;
    this.#socket = socket;
    this.#waiter = new (native().Waiter)(() => this.#wake());
    const refused = this.#waiter.open(fds);
    if (refused === 0) return;
    this.close();
    throw new VerbsError('EIO', `the event loop cannot watch the link's sockets (${errnoName(refused)})`);
  }

  abstract resolve(destination: string, source: string): Promise<Resolved>;

  /** As it was when the link was opened, or at the last change that `watchInterface` has told. */
  get interface(): HostInterface {
    return this.#interface;
  }

  watchInterface(onChange: () => void): void {
    this.#endWatch();
    if (this.#isClosed) return;
    this.#onChange = onChange;
    this.#endWatch = watchInterfaces(() => {
      if (this.#refresh()) onChange();
    });
    this.#refresh();
  }

  attach(frames: Frames): void {
    if (frames.slotBytes < this.smallestSlot)
      throw new RangeError(
        `slots of ${frames.slotBytes} bytes: the ${this.kind} link needs ${this.smallestSlot} or more`,
      );
    this.#socket.attach?.(frames.memory, frameLayout(frames));
  }

  lend(): Loan {
    return { kind: 'socket', id: this.#socket.lend(), fd: this.#waiter.fd(), news: this.#news };
  }

  onLoanNews(): void {
    if (this.#takesRuns && new Int32Array(this.#news)[0] !== 0) this.#refuseRuns();
  }

  send(now: number): number {
    const taken = this.#socket.send(now);
    if (taken >= 0) return taken;
    this.#refuseRuns();
    return ~taken;
  }

  receive(now: number): number {
    return this.#socket.receive(now);
  }

  nextDeadline(): number {
    return 0;
  }

  wait(deadline: number, keepAlive: boolean, onReadable: () => void): void {
    if (this.#isClosed) return;
    this.#onReadable = onReadable;
    this.#waiter.start(deadline === 0 ? -1 : Math.max(0, deadline - performance.now() * 1e6), keepAlive);
  }

  cancelWait(): void {
    this.#onReadable = undefined;
    if (!this.#isClosed) this.#waiter.stop();
  }

  counters(): LinkCounters {
    return this.#socket.counters();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#endWatch();
    this.#onReadable = undefined;
    this.#waiter.close();
    this.#socket.close();
  }

  /** Waits for one more socket, until it is closed. @throws VerbsError EIO */
  protected watch(fd: number): void {
    const refused = this.#waiter.add(fd);
    if (refused !== 0) throw new VerbsError('EIO', `the event loop cannot watch a socket (${errnoName(refused)})`);
  }

  /** What many packets in one system call come to: runs until the kernel has refused one. */
  protected get together(): Pick<LinkFeatures, 'runs' | 'coalescedBytes'> {
    return { ...(this.#takesRuns && { runs: RUNS }), coalescedBytes: COALESCED_BYTES };
  }

  /** Bytes a slot must have, so that headers and a tag that the link puts in fit. */
  protected get smallestSlot(): number {
    return 128;
  }

  /** The interface has an address that it had not. */
  protected abstract addAddress(address: string, bytes: Uint8Array): void;
  /** The interface has lost an address. */
  protected abstract removeAddress(address: string, bytes: Uint8Array): void;

  #refuseRuns(): void {
    this.#takesRuns = false;
    this.#onChange();
  }

  /** @returns whether anything has changed */
  #refresh(): boolean {
    const before = this.#interface;
    const now = interfaceNow(before, this.#wanted);
    const added = now.addresses.filter((address) => !before.addresses.includes(address));
    const removed = before.addresses.filter((address) => !now.addresses.includes(address));
    if (added.length + removed.length === 0 && now.up === before.up && now.mtu === before.mtu) return false;
    this.#interface = now;
    for (const address of removed) this.removeAddress(address, ipBytes(address));
    for (const address of added) this.addAddress(address, ipBytes(address));
    return true;
  }

  #wake(): void {
    const onReadable = this.#onReadable;
    this.#onReadable = undefined;
    onReadable?.();
  }
}

/** errno's name of a negative answer of the addon. */
export function errnoName(refused: number): string {
  return getSystemErrorName(refused);
}

/** @param messages what to say for the errnos that a user can do something about */
export function refusal(refused: number, otherwise: string, messages: Partial<Record<ErrorCode, string>>): VerbsError {
  const name = errnoName(refused);
  const message = messages[name as ErrorCode];
  if (message !== undefined) return new VerbsError(name as ErrorCode, message);
  return new VerbsError('EIO', `${otherwise} (${name})`);
}
