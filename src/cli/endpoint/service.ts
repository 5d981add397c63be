/** A service of an endpoint, on a port. */
import type { Fields } from './log.js';

export interface Service {
  /** What is served and where, for the log. */
  readonly about: Fields;
  /** Accepts no more clients, and disconnects those that are connected. */
  close(): Promise<void>;
}

/** How long clients may take to disconnect (ms). */
export const GRACE_MS = 2000;
