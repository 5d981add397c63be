/**
 * Watches what the kernel notifies of (rtnetlink(7)): interfaces and their addresses, neighbours, and routes. One
 * socket for each serves all listeners of the thread. It is open only while there are listeners.
 */
import { type NativePoller, native } from '../native.js';
import type { NetlinkMessage } from './netlink.js';
import { Notifications, RTMGRP } from './notifications.js';

/** @param messages undefined when some were lost */
type Listener = (messages: readonly NetlinkMessage[] | undefined) => void;

class Monitor {
  readonly #listeners = new Set<Listener>();
  #notifications: Notifications | undefined;
  #poller: NativePoller | undefined;

  constructor(readonly groups: number) {}

  /** Whether notifications arrive: the kernel has not refused the socket. */
  get isOpen(): boolean {
    return this.#poller !== undefined;
  }

  add(listener: Listener): void {
    this.#listeners.add(listener);
    if (this.#listeners.size === 1) this.#start();
  }

  remove(listener: Listener): void {
    if (this.#listeners.delete(listener) && this.#listeners.size === 0) this.#stop();
  }

  #start(): void {
    this.#notifications = new Notifications(this.groups);
    if (!this.#notifications.isOpen) return;
    this.#poller = new (native().Poller)(() => this.#onReadable());
    if (this.#poller.open([this.#notifications.fd]) === 0) this.#poller.start(-1, false);
    else this.#stop();
  }

  #stop(): void {
    this.#poller?.close();
    this.#poller = undefined;
    this.#notifications?.close();
  }

  #onReadable(): void {
    const messages = this.#notifications?.receive();
    this.#poller?.start(-1, false);
    for (const listener of [...this.#listeners]) listener(messages);
  }
}

const interfaces = new Monitor(RTMGRP.LINK | RTMGRP.IPV4_IFADDR | RTMGRP.IPV6_IFADDR);
const neighbours = new Monitor(RTMGRP.NEIGH);
const routes = new Monitor(RTMGRP.IPV4_ROUTE | RTMGRP.IPV6_ROUTE | RTMGRP.IPV4_RULE | RTMGRP.IPV6_RULE);

/**
 * Calls back in the event loop after changes of interfaces and their addresses. Several changes may cause one call.
 * Does not keep the process running. If the kernel refuses the socket, the callback is never called.
 * @returns a function that ends the watch
 */
export function watchInterfaces(onChange: () => void): () => void {
  return watch(interfaces, onChange);
}

/** As `watchInterfaces`, of routes and their rules. */
export function watchRoutes(onChange: () => void): () => void {
  return watch(routes, onChange);
}

/** The caller reads the state again, so that a lost notification does no harm. */
function watch(monitor: Monitor, onChange: () => void): () => void {
  const listener = () => onChange();
  monitor.add(listener);
  return () => monitor.remove(listener);
}

/**
 * Calls back in the event loop with the changes of neighbours, or with undefined when some were lost. Does not keep the
 * process running.
 * @returns whether the kernel notifies, and a function that ends the watch
 */
export function watchNeighbours(onChange: Listener): { readonly isOpen: boolean; end(): void } {
  const listener: Listener = (messages) => onChange(messages);
  neighbours.add(listener);
  return { isOpen: neighbours.isOpen, end: () => neighbours.remove(listener) };
}
