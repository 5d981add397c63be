/** What the links on the kernel's interfaces have in common: the waiting, and that interfaces change. */
import { VerbsError } from '../errors.js';
import { type NativeWaiter, native } from '../native.js';
import { ipBytes } from './address.js';
import { errnoName, refusal } from './errno.js';
import { type HostInterface, interfaceNow } from './interfaces.js';
import type { Frames, Link, LinkCounters, LinkFeatures, Names, Resolved } from './link.js';
import type { Loan } from './loan.js';
import { watchInterfaces } from './monitor.js';
import { interfaceNames } from './names.js';

/** Bytes of an Ethernet header. */
export const ETHERNET_BYTES = 14;

export abstract class HostLink implements Link {
  abstract readonly kind: string;
  abstract readonly features: LinkFeatures;
  readonly names: Names;
  readonly #waiter: NativeWaiter;
  readonly #sockets: { close(): void };
  #onReadable: (() => void) | undefined;
  #isClosed = false;
  readonly #closing = new AbortController();
  #interface: HostInterface;
  /** The only addresses that it is for; undefined = all that the interface has. */
  readonly #wanted: readonly string[] | undefined;
  #endWatch = () => {};
  #onChange = () => {};

  /**
   * @param sockets what is to be closed with the link, or when it does not come about
   * @param fds what is readable when there may be something to receive
   * @param only it is for no other addresses than those that `end` has now
   */
  protected constructor(end: HostInterface, sockets: { close(): void }, fds: number[], only: boolean) {
    this.#interface = end;
    this.names = interfaceNames(end.name);
    this.#wanted = only ? end.addresses : undefined;
    this.#sockets = sockets;
    this.#waiter = new (native().Waiter)(() => this.#wake());
    const refused = this.#waiter.open(fds);
    if (refused === 0) return;
    this.close();
    throw new VerbsError('EIO', `the event loop cannot watch the link's sockets (${errnoName(refused)})`);
  }

  abstract attach(frames: Frames): void;
  abstract lend(): Loan;
  abstract send(now: number): number;
  abstract receive(now: number): number;
  abstract counters(): LinkCounters;
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

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#closing.abort(new VerbsError('ECANCELED', 'the link was closed'));
    this.#endWatch();
    this.#onReadable = undefined;
    this.#waiter.close();
    this.#sockets.close();
  }

  /** Aborted when the link is closed. */
  protected get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Readable when one of the link's file descriptors is. */
  protected get fd(): number {
    return this.#waiter.fd();
  }

  /** Waits for one more socket, until it is closed. @throws VerbsError EIO */
  protected watch(fd: number): void {
    const refused = this.#waiter.add(fd);
    if (refused !== 0) throw new VerbsError('EIO', `the event loop cannot watch a socket (${errnoName(refused)})`);
  }

  /** Why a group cannot be joined. @param more by name of an errno, what it means for the link */
  protected cannotJoin(code: number, group: string, more: Readonly<Record<string, string>> = {}): Error {
    const { name } = this.interface;
    return refusal(code, `${name} cannot join ${group}`, {
      ENODEV: `${name} is not able to join ${group}: is it up, with an address of this kind?`,
      ...more,
    });
  }

  /** Tells that `features` have changed. */
  protected featuresChanged(): void {
    this.#onChange();
  }

  /** `interface` is another one. */
  protected interfaceChanged(): void {}
  /** The interface has an address that it had not. */
  protected abstract addAddress(address: string, bytes: Uint8Array): void;
  /** The interface has lost an address. */
  protected abstract removeAddress(address: string, bytes: Uint8Array): void;

  /** @returns whether anything has changed */
  #refresh(): boolean {
    const before = this.#interface;
    const now = interfaceNow(before, this.#wanted);
    const added = now.addresses.filter((address) => !before.addresses.includes(address));
    const removed = before.addresses.filter((address) => !now.addresses.includes(address));
    if (added.length + removed.length === 0 && now.up === before.up && now.mtu === before.mtu) return false;
    this.#interface = now;
    this.interfaceChanged();
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
