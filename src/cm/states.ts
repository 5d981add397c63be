/** The states of a connection, and which follow which (IBTA 12.9.7). */

/**
 * | state | what it waits for |
 * |---|---|
 * | REQ_SENT | active: REP |
 * | REP_RCVD | active: the program, to bring its queue pair up |
 * | REQ_RCVD | passive: the program, to accept or reject |
 * | REJ_SENT | passive: the peer may ask again, as it has not heard the refusal |
 * | REP_SENT | passive: RTU, or data |
 * | ESTABLISHED | either end to disconnect |
 * | DREQ_SENT | DREP |
 * | DREQ_RCVD | the program, to bring its queue pair down |
 * | TIMEWAIT | packets that are still under way to vanish |
 * | CLOSED | nothing: it is forgotten |
 */
const FOLLOWING = {
  REQ_SENT: ['REP_RCVD', 'TIMEWAIT', 'CLOSED'],
  REP_RCVD: ['ESTABLISHED', 'DREQ_RCVD', 'TIMEWAIT', 'CLOSED'],
  REQ_RCVD: ['REP_SENT', 'REJ_SENT', 'CLOSED'],
  REJ_SENT: ['CLOSED'],
  REP_SENT: ['ESTABLISHED', 'DREQ_SENT', 'DREQ_RCVD', 'TIMEWAIT', 'CLOSED'],
  ESTABLISHED: ['DREQ_SENT', 'DREQ_RCVD', 'TIMEWAIT'],
  DREQ_SENT: ['TIMEWAIT'],
  DREQ_RCVD: ['TIMEWAIT'],
  TIMEWAIT: ['CLOSED'],
  CLOSED: [],
} as const satisfies Readonly<Record<string, readonly string[]>>;

export type ConnectionState = keyof typeof FOLLOWING;

export const CONNECTION_STATES = Object.keys(FOLLOWING) as readonly ConnectionState[];

export function mayFollow(from: ConnectionState, to: ConnectionState): boolean {
  return (FOLLOWING[from] as readonly string[]).includes(to);
}
