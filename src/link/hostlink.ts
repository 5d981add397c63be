/** The common part of the links on the kernel's interfaces: waiting in the event loop, and following the interface. */

import { ipBytes } from '../base/address.js';
import { performance, setImmediate } from '../base/timers.js';
import { VerbsError } from '../errors.js';
import { type NativePoller, native } from '../native.js';
import type { SharedSockets } from './broker/sharedsockets.js';
import { errnoError, errnoName } from './errno.js';
import { openErrorSocket } from './errorsocket.js';
import type { Frames } from './frames.js';
import { type HostInterface, refreshInterface } from './interfaces.js';
import type {
  ErrorSocket,
  HostNames,
  IcmpError,
  Link,
  LinkCounters,
  LinkFeatures,
  Resolved,
  SharedPort,
} from './link.js';
import { watchInterfaces } from './monitor.js';
import { interfaceNames } from './names.js';
import { watchNextHops } from './neighbour.js';
import { openPoller } from './poller.js';
import { RecentPaths } from './recentpaths.js';
import type { LinkTransfer } from './transfer.js';

/** A link on an interface of the host. */
export abstract class HostLink implements Link {
  abstract readonly kind: string;
  readonly names: HostNames;
  readonly #poller: NativePoller;
  readonly #sockets: { close(): void };
  readonly #shared: SharedSockets | undefined;
  #onReadable: (() => void) | undefined;
  #isClosed = false;
  /** Kept, because links are asked for them at each connect. */
  #features: LinkFeatures | undefined;
  /** Opened with the first frame that is kept. */
  #lastFrameSocket: number | undefined;
  /** Looks at the program's handlers of signals after this turn of the event loop, since a frame is kept. */
  #signals: NodeJS.Immediate | undefined;
  readonly #closing = new AbortController();
  #interface: HostInterface;
  readonly #paths = new RecentPaths();
  /** The addresses that the link uses; undefined = all of the interface. */
  readonly #onlyAddresses: readonly string[] | undefined;
  #endWatch = () => {};
  #endFollowing = () => {};
  #onChange = () => {};

  /**
   * @param sockets closed with the link, or if the constructor throws
   * @param fds file descriptors that are readable when there may be something to receive
   * @param only whether the link uses only the addresses in `iface`, not those that the interface gets later
   * @param shared of a link whose addresses other programs share; closed after `sockets`
   * @throws VerbsError EIO
   */
  protected constructor(
    iface: HostInterface,
    sockets: { close(): void },
    fds: number[],
    only: boolean,
    shared?: SharedSockets,
  ) {
    this.#interface = iface;
    this.names = interfaceNames(iface.index);
    this.#onlyAddresses = only ? iface.addresses : undefined;
    this.#sockets = sockets;
    this.#shared = shared;
    shared?.onLost(() => this.close());
    try {
      this.#poller = openPoller(fds, () => this.#onReady());
    } catch (error) {
      // not `close`, which a derived class may override: its fields do not exist yet
      sockets.close();
      throw error;
    }
  }

  abstract attach(frames: Frames): void;
  abstract transfer(): LinkTransfer;
  abstract send(now: number): number;
  abstract receive(now: number): number;
  abstract counters(): LinkCounters;

  get features(): LinkFeatures {
    this.#features ??= this.readFeatures();
    return this.#features;
  }

  get sharedPort(): SharedPort | undefined {
    return this.#shared?.port;
  }

  /** The interface as it was when the link was opened, or at the last change that `watchInterface` has reported. */
  get interface(): HostInterface {
    return this.#interface;
  }

  watchInterface(onChange: () => void): void {
    this.#endWatch();
    if (this.#isClosed) return;
    this.#onChange = onChange;
    const update = () => {
      if (this.#refresh()) onChange();
    };
    this.#endWatch = watchInterfaces(update);
    // a change since the link was opened
    update();
  }

  /** For `watchPaths` of links that write Ethernet headers. */
  protected followPaths(onChange: () => void): void {
    this.#endFollowing();
    if (!this.#isClosed) this.#endFollowing = watchNextHops(onChange);
  }

  resolve(destination: string, source: string): Promise<Resolved> {
    return this.#paths.resolve(destination, source, () => this.lookUp(destination, source));
  }

  keepLastFrame(frame: Uint8Array, source: string): (() => void) | undefined {
    const fd = this.#isClosed ? -1 : this.lastFrameSocket(source, frame);
    const id = fd < 0 ? -1 : native().lastFrameKeep(fd, frame, this.#interface.index);
    if (id < 0) return undefined;
    // once for all connections of a turn: it takes several system calls
    this.#signals ??= setImmediate(() => {
      this.#signals = undefined;
      native().lastFrameSignals();
    });
    return () => native().lastFrameDrop(id);
  }

  openErrorSocket(source: string, onError: (error: IcmpError) => void): ErrorSocket | undefined {
    return this.#isClosed ? undefined : openErrorSocket(this.#interface, source, onError);
  }

  nextDeadline(): number {
    return 0;
  }

  wait(deadline: number, keepAlive: boolean, onReadable: () => void): void {
    if (this.#isClosed) return;
    this.#onReadable = onReadable;
    this.#poller.start(deadline === 0 ? -1 : Math.max(0, deadline - performance.now() * 1e6), keepAlive);
  }

  cancelWait(): void {
    this.#onReadable = undefined;
    if (!this.#isClosed) this.#poller.stop();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#paths.close();
    this.#closing.abort(new VerbsError('ECANCELED', 'the link was closed'));
    this.#endWatch();
    this.#endFollowing();
    this.#onReadable = undefined;
    this.#poller.close();
    this.#sockets.close();
    this.#shared?.close();
    if (this.#lastFrameSocket !== undefined) native().closeFd(this.#lastFrameSocket);
  }

  /** Returns the socket that sends a last frame from an address, or a negative number. */
  protected lastFrameSocket(_source: string, _frame: Uint8Array): number {
    this.#lastFrameSocket ??= native().lastFrameSocket();
    return this.#lastFrameSocket;
  }

  /** Aborted when the link closes. */
  protected get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** A file descriptor that is readable when one of the link's is. */
  protected get fd(): number {
    return this.#poller.fd();
  }

  /** Adds a socket to those that end a wait, until the socket is closed. @throws VerbsError EIO */
  protected watch(fd: number): void {
    const result = this.#poller.add(fd);
    if (result !== 0) throw new VerbsError('EIO', `the event loop cannot watch a socket (${errnoName(result)})`);
  }

  /** Adds the socket of an address that other programs share, when the broker has lent it. */
  protected addShared(address: string): void {
    const isWanted = () => !this.closing.aborted && this.interface.addresses.includes(address);
    this.#shared
      ?.add(address, isWanted)
      .then((fd) => fd !== undefined && this.watch(fd))
      .catch(() => {});
  }

  /** Returns the error for a refused group. @param more messages by name of the errno, for this kind of link */
  protected cannotJoin(code: number, group: string, more: Readonly<Record<string, string>> = {}): Error {
    const { name } = this.interface;
    return errnoError(code, `${name} cannot join ${group}`, {
      ENODEV: `${name} cannot join ${group}: check that it is up and has an address of the same family`,
      ...more,
    });
  }

  /** Returns the link's features as they are now. */
  protected abstract readFeatures(): LinkFeatures;

  /** Reports to `watchInterface` that the features have changed. */
  protected featuresChanged(): void {
    this.#features = undefined;
    this.#onChange();
  }

  /** Asks the kernel for the path to a peer. Rejects as `resolve`. */
  protected abstract lookUp(destination: string, source: string): Promise<Resolved>;
  /** Returns an interface with those of its addresses that the link can use now. */
  protected usable(iface: HostInterface): HostInterface {
    return iface;
  }
  /** Called after `interface` has changed. */
  protected interfaceChanged(): void {}
  /** Called for each address that the interface got. */
  protected abstract addAddress(address: string, bytes: Uint8Array): void;
  /** Called for each address that the interface lost. */
  protected abstract removeAddress(address: string, bytes: Uint8Array): void;

  /** Reads the interface again. @returns whether anything has changed */
  #refresh(): boolean {
    const before = this.#interface;
    const now = this.usable(refreshInterface(before, this.#onlyAddresses));
    // frames to an address are received by the MAC address that it has
    const sameMac = Buffer.compare(before.mac, now.mac) === 0;
    const added = now.addresses.filter((address) => !sameMac || !before.addresses.includes(address));
    const removed = before.addresses.filter((address) => !sameMac || !now.addresses.includes(address));
    if (added.length + removed.length === 0 && now.up === before.up && now.mtu === before.mtu) return false;
    this.#interface = now;
    this.interfaceChanged();
    this.#features = undefined;
    for (const address of removed) this.removeAddress(address, ipBytes(address));
    for (const address of added) this.addAddress(address, ipBytes(address));
    return true;
  }

  #onReady(): void {
    const onReadable = this.#onReadable;
    this.#onReadable = undefined;
    onReadable?.();
  }
}
