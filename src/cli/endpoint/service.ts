/** A service of an endpoint, on a port. */
import type { Fields } from './log.js';
import type { ServiceConfig } from './schema.js';

export interface Service {
  /** Name and address of the service, for the log. */
  readonly about: Fields;
  /**
   * Changes to another configuration of the same service without an interruption.
   * @returns whether it can; if not, it is closed and opened anew @throws when it could, but something is missing:
   * nothing has changed
   */
  update?(config: ServiceConfig): Promise<boolean>;
  /** Accepts no more clients, and disconnects those that are connected. */
  close(): Promise<void>;
}

/** Time that clients have to disconnect (ms). */
export const GRACE_MS = 2000;
