/** The reports of a client of a soak to the process that started it. */

/** Bytes of a region that belong to one client. */
export const SLOT_BYTES = 4096;

/** One line of its output. */
export interface Report {
  /** The work that was done: `connect`, `messages`, `regions`, or `refused`. */
  readonly did: string;
  /** Bytes that came back as they were sent. */
  readonly bytes?: number;
  /** Code of the error that ended a connection. */
  readonly code?: string;
  /** Bytes that did not come back as they were sent. */
  readonly wrong?: string;
}
