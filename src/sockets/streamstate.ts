/** The states of the connection of a stream socket, and the steps between them. */
import type { Transitions } from '../base/transitions.js';

/**
 * - `opening`: the connection is not established yet.
 * - `established`: the program does not have the socket, or the event `connect`, yet.
 * - `open`: data may pass in both directions.
 * - `disconnected`: the peer has disconnected. The program can still read received data.
 * - `leaving`: the program has destroyed the socket. Written data may still arrive, and the peer may disconnect first.
 * - `closing`: the connection is disconnected and freed.
 * - `closed`: nothing is left.
 */
export type StreamState = 'opening' | 'established' | 'open' | 'disconnected' | 'leaving' | 'closing' | 'closed';

/** The states with a connection, or with the rest of one. */
export const ESTABLISHED: readonly StreamState[] = ['established', 'open', 'disconnected', 'leaving'];

/** The states that may follow each. */
export const NEXT: Transitions<StreamState> = {
  opening: ['established', 'closing'],
  // disconnected: it has failed before the program had the socket
  established: ['open', 'disconnected', 'closing'],
  open: ['disconnected', 'leaving', 'closing'],
  disconnected: ['closing'],
  leaving: ['closing'],
  closing: ['closed'],
  closed: [],
};
