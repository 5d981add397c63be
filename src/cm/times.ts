/**
 * Times of the communication manager, in milliseconds. On the wire a time has five bits, t for 4.096 us * 2^t; Linux takes
 * that for 2^(t - 8) ms, 1 at least, and so do we: both ends wait alike.
 */

/** How long either end may take to answer a message, encoded: 4096 ms. */
export const RESPONSE_TIMEOUT = 20;
/** How long a packet may travel, encoded: 256 ms. What is told of a route when the program says nothing else. */
export const PACKET_LIFE_TIME = 16;
/** What we ask for when the program has not decided yet, encoded: 65.5 s. */
export const SERVICE_TIMEOUT = 24;
/** How long our card may take to acknowledge, encoded: 134 ms, as rxe says. */
export const ACK_DELAY = 15;
/** Messages are sent again so often. */
export const MAX_CM_RETRIES = 15;

/** No wait for a peer is longer, whatever it asks for, encoded. Otherwise it could ask for hours. */
const LONGEST = 24;

/** @param encoded 0..31 */
export function milliseconds(encoded: number): number {
  return 2 ** Math.max(Math.min(encoded, LONGEST) - 8, 0);
}

/**
 * The ACK timeout of a queue pair, encoded: the way there and back, and the peer's delay.
 * @param ackDelay encoded delay of the end that acknowledges
 * @param packetLifeTime encoded time of one way
 */
export function ackTimeout(ackDelay: number, packetLifeTime: number): number {
  const bothWays = packetLifeTime + 1;
  const sum =
    bothWays >= ackDelay
      ? bothWays + (ackDelay >= bothWays - 1 ? 1 : 0)
      : ackDelay + (bothWays >= ackDelay - 1 ? 1 : 0);
  return Math.min(31, sum);
}

/** After so long a REQ is sent again: both ways, and the time that the peer may take. */
export function requestPeriod(packetLifeTime: number, remoteResponseTimeout: number): number {
  return 2 * milliseconds(packetLifeTime) + milliseconds(remoteResponseTimeout);
}
