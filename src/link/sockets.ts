/** What the links on the kernel's sockets have in common: the addon moves the frames, this class does the waiting. */
import { getSystemErrorName } from 'node:util';
import { type ErrorCode, VerbsError } from '../errors.js';
import { type NativeFrameSocket, type NativeWaiter, native } from '../native.js';
import type { HostInterface } from './interfaces.js';
import type { Frames, Link, LinkCounters, LinkFeatures, Resolved } from './link.js';
import { frameLayout } from './ring.js';

/** The port of RoCEv2 (IANA). */
export const ROCE_PORT = 4791;
/** Bytes of an Ethernet header. */
export const ETHERNET_BYTES = 14;
/** Receive and send buffer of a socket: thousands of frames, so that a busy event loop loses none. */
export const DEFAULT_BUFFER_BYTES = 8 * 2 ** 20;

export abstract class SocketLink implements Link {
  abstract readonly kind: string;
  abstract readonly features: LinkFeatures;
  readonly interface: HostInterface;
  readonly #waiter: NativeWaiter;
  readonly #socket: NativeFrameSocket;
  #onReadable: (() => void) | undefined;
  #isClosed = false;

  protected constructor(end: HostInterface, socket: NativeFrameSocket, fds: number[]) {
    this.interface = end;
    this.#socket = socket;
    this.#waiter = new (native().Waiter)(() => this.#wake());
    const refused = this.#waiter.open(fds);
    if (refused === 0) return;
    this.close();
    throw new VerbsError('EIO', `the event loop cannot watch the link's sockets (${errnoName(refused)})`);
  }

  abstract resolve(destination: string, source: string): Promise<Resolved>;

  attach(frames: Frames): void {
    if (frames.slotBytes < this.smallestSlot)
      throw new RangeError(
        `slots of ${frames.slotBytes} bytes: the ${this.kind} link needs ${this.smallestSlot} or more`,
      );
    this.#socket.attach(frames.memory, frameLayout(frames));
  }

  send(_now: number): number {
    return this.#socket.send();
  }

  receive(_now: number): number {
    return this.#socket.receive();
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
    this.#onReadable = undefined;
    this.#waiter.close();
    this.#socket.close();
  }

  /** Waits for one more socket, until it is closed. @throws VerbsError EIO */
  protected watch(fd: number): void {
    const refused = this.#waiter.add(fd);
    if (refused !== 0) throw new VerbsError('EIO', `the event loop cannot watch a socket (${errnoName(refused)})`);
  }

  /** Bytes a slot must have, so that headers and a tag that the link puts in fit. */
  protected get smallestSlot(): number {
    return 128;
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
