/**
 * Times of the communication manager, in milliseconds. On the wire a time has five bits: t means 4.096 us * 2^t. Linux
 * computes 2^(t - 8) ms, at least 1 ms. We do the same, so that both ends wait equally long.
 */

/** Time that an end has to reply to a message, encoded: 4096 ms. */
export const RESPONSE_TIMEOUT = 20;
/** Packet life time of a route, encoded: 256 ms. The default of a REQ. */
export const PACKET_LIFE_TIME = 16;
/** Service timeout of an MRA to a REQ, while the application has not decided, encoded: 65.5 s. */
export const REQ_SERVICE_TIMEOUT = 24;
/**
 * Service timeout of an MRA to a REP, encoded: 4096 ms. It is short because the peer repeats its REP only after this
 * time, and our RTU may be lost. A program that takes longer answers each REP by another MRA.
 */
export const REP_SERVICE_TIMEOUT = RESPONSE_TIMEOUT;
/** ACK delay of our card, encoded: 134 ms, the value of rxe. */
export const ACK_DELAY = 15;
/** A message waits for its reply as long as this many retransmissions take, one in each period. */
export const MAX_CM_RETRIES = 15;
/** Time that a message waits for its reply before it is sent again for the first time, milliseconds. */
export const FIRST_WAIT = 250;

/**
 * Time that an accepted connection may wait for its RTU in all, milliseconds. The client decides when a REP is
 * repeated, but it cannot keep a connection half-open for longer.
 */
export const HALF_OPEN_TIME = 10_000;
/**
 * Time that a half-open connection has for its RTU, milliseconds, before a later one may take its place where many are
 * half-open. Its REP is repeated twice in this time.
 */
export const HALF_OPEN_GRACE = 1000;
/**
 * Time between two further connections of a peer with as many half-open ones as one may have, milliseconds: it
 * costs the application no more connections than one that lets each of them end by its time.
 */
export const HALF_OPEN_PACE = 40;
/**
 * Longest period in which a half-open connection repeats a message, milliseconds: sixteen times in that time, about as
 * often as Linux does by default.
 */
export const MAX_HALF_OPEN_PERIOD = 625;
/** Longest period in which the passive side repeats a DREQ, milliseconds. */
export const MAX_DREQ_PERIOD = 4096;
/** Longest time that a refused request is remembered, milliseconds, to answer duplicates of its REQ. */
export const REFUSED_TIME = 10_000;
/** Longest timewait, milliseconds: no packet stays in a network for longer, whatever ACK timeout a peer asks for. */
export const MAX_TIMEWAIT = 10_000;

/** Upper bound for times that a peer asks for, encoded: 65.5 s. The field would allow hours. */
const MAX_ENCODED = 24;

/** Returns an encoded time in milliseconds, with the upper bound applied. @param encoded 0..31 */
export function milliseconds(encoded: number): number {
  return 2 ** Math.max(Math.min(encoded, MAX_ENCODED) - 8, 0);
}

/**
 * Returns the ACK timeout of a queue pair, encoded: the round-trip time and the peer's ACK delay.
 * @param ackDelay ACK delay of the peer, encoded
 * @param packetLifeTime time for one direction, encoded
 */
export function ackTimeout(ackDelay: number, packetLifeTime: number): number {
  const bothWays = packetLifeTime + 1;
  const sum =
    bothWays >= ackDelay
      ? bothWays + (ackDelay >= bothWays - 1 ? 1 : 0)
      : ackDelay + (bothWays >= ackDelay - 1 ? 1 : 0);
  return Math.min(31, sum);
}

/** Returns the longest time between two transmissions of a REQ, ms: a round trip and the peer's response time. */
export function requestPeriod(packetLifeTime: number, remoteResponseTimeout: number): number {
  return 2 * milliseconds(packetLifeTime) + milliseconds(remoteResponseTimeout);
}
