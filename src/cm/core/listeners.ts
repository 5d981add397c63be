/** Listeners by port space, port and address. */

import { ipBytes } from '../../base/address.js';
import { gidText } from '../../base/gid.js';
import { VerbsError } from '../../errors.js';
import type { PassiveConnection } from './passive.js';
import { type OfPeer, Pending } from './pending.js';
import type { PortSpaceName } from './serviceid.js';

/** A listener's service, and its limit. */
export interface ListenParameters {
  readonly space: PortSpaceName;
  readonly port: number;
  /** IP address. `0.0.0.0`: all IPv4 addresses; `::`, or no address: all IPv4 and IPv6 addresses. */
  readonly address?: string;
  /** Whether `::` stands for IPv6 addresses alone. Default false. */
  readonly ipv6Only?: boolean;
  readonly transport: 'RC' | 'UC' | 'UD';
  /**
   * Requests that can wait for the application's decision. When so many wait, a request is rejected, unless another
   * peer has more of them than this one: then the oldest of that peer is rejected, so that one peer cannot keep others
   * out.
   */
  readonly backlog: number;
}

/** A listener of the core. */
export interface Listener extends ListenParameters {
  readonly handle: number;
  /** Requests that wait for the application's decision. */
  readonly requests: Pending<OfPeer>;
  /** Accepted connections that wait for their RTU. */
  readonly halfOpen: Pending<PassiveConnection>;
  /** Refused requests that are remembered, oldest first. */
  readonly refused: Set<PassiveConnection>;
}

/** Requests and half-open connections of one peer, beyond which it gets another when the oldest has had its time. */
export const MAX_OF_PEER = 256;

/** Returns a listener without requests. */
export function newListener(parameters: ListenParameters, handle: number): Listener {
  return { ...parameters, handle, requests: new Pending(), halfOpen: new Pending(), refused: new Set() };
}

const NONE: readonly Listener[] = [];

/** All listeners of a core. */
export class Listeners {
  readonly #all = new Map<number, Listener>();
  /** By port space and port. */
  readonly #ofPort = new Map<string, readonly Listener[]>();
  #handles = 0;

  /** Adds a listener. @throws VerbsError EADDRINUSE when another listener has the port and address */
  add(parameters: ListenParameters): Listener {
    const others = this.find(parameters.space, parameters.port);
    const other = others.find((listener) => isConflict(listener, parameters));
    if (other !== undefined)
      throw new VerbsError(
        'EADDRINUSE',
        `rdma_cm port ${parameters.port} (${parameters.space}) of ${other.address ?? 'all addresses'} has a listener already`,
      );
    const listener = newListener(parameters, ++this.#handles);
    this.#all.set(listener.handle, listener);
    this.#ofPort.set(portKey(listener), [...others, listener]);
    return listener;
  }

  remove(handle: number): void {
    const listener = this.#all.get(handle);
    if (listener === undefined) return;
    this.#all.delete(handle);
    const others = this.find(listener.space, listener.port).filter((other) => other !== listener);
    if (others.length > 0) this.#ofPort.set(portKey(listener), others);
    else this.#ofPort.delete(portKey(listener));
  }

  /** Whether a listener has the port, on any address. */
  hasPort(space: PortSpaceName, port: number): boolean {
    return this.find(space, port).length > 0;
  }

  /** Returns the listeners of a port, on any address. */
  find(space: PortSpaceName, port: number): readonly Listener[] {
    return this.#ofPort.get(portKey({ space, port })) ?? NONE;
  }
}

const portKey = ({ space, port }: { readonly space: PortSpaceName; readonly port: number }) => `${space} ${port}`;

/** Chooses the listener for a destination address: the one with this address, otherwise one with a wildcard. */
export function chooseListener(listeners: readonly Listener[], destination: string): Listener | undefined {
  const isExact = ({ address }: Listener) => address !== undefined && gidText(address) === gidText(destination);
  return listeners.find(isExact) ?? listeners.find((listener) => isWildcard(listener, destination));
}

function isWildcard({ address, ipv6Only }: Pick<Listener, 'address' | 'ipv6Only'>, destination: string): boolean {
  const isIpv4 = ipBytes(destination).length === 4;
  if (address === undefined || isUnspecified(address, 16)) return !(ipv6Only && isIpv4);
  return isUnspecified(address, 4) && isIpv4;
}

function isUnspecified(address: string, length: number): boolean {
  const bytes = ipBytes(address);
  return bytes.length === length && bytes.every((byte) => byte === 0);
}

/** Whether two listeners of a port exclude each other: they can share it only on different addresses. */
function isConflict(a: ListenParameters, b: ListenParameters): boolean {
  if (a.address === undefined || b.address === undefined) return true;
  if (gidText(a.address) === gidText(b.address)) return true;
  return isWildcard(a, b.address) || isWildcard(b, a.address);
}
