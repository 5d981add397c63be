/** Services: what an endpoint does for those who come to a port. */
import type { Fields } from './log.js';

export interface Service {
  /** What is served and where, for the log. */
  readonly about: Fields;
  /** Takes nobody any more, and says goodbye to those who are there. */
  close(): Promise<void>;
}

/** So long may those who are there take to say goodbye (ms). */
export const GRACE_MS = 2000;
