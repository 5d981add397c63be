/** Who listens on which port of which address. */
import { VerbsError } from '../errors.js';
import { ipBytes } from '../link/address.js';
import { gidText } from '../verbs/gid.js';
import type { PortSpaceName } from './serviceid.js';

export interface ListenParameters {
  readonly space: PortSpaceName;
  readonly port: number;
  /** IP address; `0.0.0.0` and `::` mean all of the family, and without one all addresses are meant. `::` takes IPv4, too. */
  readonly address?: string;
  readonly transport: 'RC' | 'UC' | 'UD';
  /** Requests that may wait for the program; more are refused. */
  readonly backlog: number;
}

export interface Listener extends ListenParameters {
  readonly handle: number;
  /** Requests that the program has not decided. */
  undecided: number;
}

export class Listeners {
  readonly #all = new Map<number, Listener>();
  #handles = 0;

  /** @throws VerbsError EADDRINUSE */
  add(parameters: ListenParameters): Listener {
    const other = [...this.#all.values()].find((listener) => isSame(listener, parameters));
    if (other !== undefined)
      throw new VerbsError(
        'EADDRINUSE',
        `${parameters.space} port ${parameters.port} of ${other.address ?? 'all addresses'} has a listener already`,
      );
    const listener = { ...parameters, handle: ++this.#handles, undecided: 0 };
    this.#all.set(listener.handle, listener);
    return listener;
  }

  remove(handle: number): void {
    this.#all.delete(handle);
  }

  isTaken(space: PortSpaceName, port: number): boolean {
    return [...this.#all.values()].some((listener) => listener.space === space && listener.port === port);
  }

  /** All that listen on a port, whatever their address. */
  on(space: PortSpaceName, port: number): Listener[] {
    return [...this.#all.values()].filter((listener) => listener.space === space && listener.port === port);
  }
}

/** Whether a listener's address takes connections to another: the most special of several does. */
export function chooseListener(listeners: readonly Listener[], destination: string): Listener | undefined {
  const isMeant = ({ address }: Listener) => address !== undefined && gidText(address) === gidText(destination);
  return listeners.find(isMeant) ?? listeners.find(({ address }) => isWildcard(address, destination));
}

function isWildcard(address: string | undefined, destination: string): boolean {
  if (address === undefined || isUnspecified(address, 16)) return true;
  return isUnspecified(address, 4) && ipBytes(destination).length === 4;
}

function isUnspecified(address: string, length: number): boolean {
  const bytes = ipBytes(address);
  return bytes.length === length && bytes.every((byte) => byte === 0);
}

/** Two cannot share a port unless they listen on different addresses. */
function isSame(a: ListenParameters, b: ListenParameters): boolean {
  if (a.space !== b.space || a.port !== b.port) return false;
  if (a.address === undefined || b.address === undefined) return true;
  if (gidText(a.address) === gidText(b.address)) return true;
  return isWildcard(a.address, b.address) || isWildcard(b.address, a.address);
}
