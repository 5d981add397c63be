/** The states of a stream socket, and the steps between them. */
import type { Transitions } from '../base/transitions.js';

/**
 * - `idle`: the program has not called `connect`.
 * - `connecting`: the connection is not established yet.
 * - `accepting`, `accepted`: the socket is the passive end, before and after its connection is established, and the
 *   program does not have it yet.
 * - `open`: data may pass in both directions.
 * - `disconnected`: the peer has disconnected. The program can still read received data.
 * - `leaving`: the program has destroyed the socket. Written data may still arrive, and the peer may disconnect first.
 * - `closing`: the socket frees its connection.
 * - `cancelling`: the program has destroyed the socket before its connection was established.
 * - `closed`: the socket has freed everything.
 */
export type StreamState =
  | 'idle'
  | 'connecting'
  | 'accepting'
  | 'accepted'
  | 'open'
  | 'disconnected'
  | 'leaving'
  | 'closing'
  | 'cancelling'
  | 'closed';

/** The states with a connection, or with the rest of one. */
export const ESTABLISHED: readonly StreamState[] = ['accepted', 'open', 'disconnected', 'leaving'];

/** The states that may follow each. */
export const NEXT: Transitions<StreamState> = {
  idle: ['connecting', 'accepting', 'cancelling'],
  connecting: ['open', 'cancelling'],
  accepting: ['accepted', 'cancelling'],
  accepted: ['open', 'leaving', 'closing'],
  open: ['disconnected', 'leaving', 'closing'],
  disconnected: ['closing'],
  leaving: ['closing'],
  closing: ['closed'],
  // a program may connect again before it has got the event `close`
  cancelling: ['connecting', 'closed'],
  closed: ['connecting'],
};
