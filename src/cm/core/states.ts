/** States of a connection and their transitions (IBTA 12.9.7). */

/**
 * | state | waits for |
 * |---|---|
 * | REQ_SENT | active: REP |
 * | REP_RCVD | active: the application, to bring its queue pair to RTS |
 * | REQ_RCVD | passive: the application, to accept or reject |
 * | REJ_SENT | passive: duplicates of the REQ, whose sender may not have received the REJ |
 * | REP_SENT | passive: RTU or data |
 * | ESTABLISHED | either end to disconnect |
 * | DREQ_SENT | DREP |
 * | DREQ_RCVD | the application, to bring its queue pair to ERR |
 * | TIMEWAIT | packets that are still in the network to expire |
 * | CLOSED | nothing: the connection is removed |
 */
const TRANSITIONS = {
  REQ_SENT: ['REP_RCVD', 'TIMEWAIT', 'CLOSED'],
  REP_RCVD: ['ESTABLISHED', 'DREQ_RCVD', 'TIMEWAIT', 'CLOSED'],
  REQ_RCVD: ['REP_SENT', 'REJ_SENT', 'CLOSED'],
  REJ_SENT: ['CLOSED'],
  REP_SENT: ['ESTABLISHED', 'DREQ_SENT', 'DREQ_RCVD', 'TIMEWAIT', 'CLOSED'],
  ESTABLISHED: ['DREQ_SENT', 'DREQ_RCVD', 'TIMEWAIT'],
  DREQ_SENT: ['TIMEWAIT', 'CLOSED'],
  DREQ_RCVD: ['TIMEWAIT'],
  TIMEWAIT: ['CLOSED'],
  CLOSED: [],
} as const satisfies Readonly<Record<string, readonly string[]>>;

/** State of a connection. */
export type ConnectionState = keyof typeof TRANSITIONS;

/** All states. */
export const CONNECTION_STATES = Object.keys(TRANSITIONS) as readonly ConnectionState[];

/** Whether a connection can go from one state to another. */
export function isTransition(from: ConnectionState, to: ConnectionState): boolean {
  return (TRANSITIONS[from] as readonly string[]).includes(to);
}
