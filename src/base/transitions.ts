/** State machines: the states of an object, and those that may follow each. */

/** The states that may follow each. */
export type Transitions<State extends string> = Readonly<Record<State, readonly State[]>>;

/**
 * Returns the state `to`, if it may follow `from`.
 * @param what name of the object, for the message
 * @throws Error otherwise: a fault of this project
 */
export function transition<State extends string>(
  next: Transitions<State>,
  from: State,
  to: State,
  what: string,
): State {
  if (next[from].includes(to)) return to;
  throw new Error(`${what} cannot go from ${from} to ${to}`);
}
