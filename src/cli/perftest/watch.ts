/** Looks after a run: it ends when its peer has left, and when what it still waits for was lost. */
import { failure } from '../exit.js';
import type { Channel } from './channel.js';
import type { End } from './end.js';

/** How often (ms). */
const LOOK_MS = 10;
/** So long after a peer has left in good order its last message is here, and the time of our own run is over as well (ms). */
const FAREWELL_MS = 500;
/** What has not come so long after the peer was done will not come (ms). */
const QUIET_MS = 3000;

/**
 * @param run begun on this end, which may be stopped
 * @throws CliError when the peer leaves in the middle of it
 */
export async function watched<T>(run: Promise<T>, end: End, peer: Channel): Promise<T> {
  const watch = new Watch(end, peer);
  const timer = setInterval(() => watch.look(performance.now()), LOOK_MS);
  try {
    const result = await run;
    if (watch.isDeserted) throw failure('the peer has left in the middle of the test');
    return result;
  } finally {
    clearInterval(timer);
  }
}

class Watch {
  /** The run was stopped because the peer has left. */
  isDeserted = false;
  #leftAt: number | undefined;
  #received = 0;
  #quietSince: number | undefined;

  constructor(
    readonly end: End,
    readonly peer: Channel,
  ) {}

  look(now: number): void {
    if (this.peer.isEnded) this.#onLeft(now);
    else if (this.end.missing > 0 && this.#isPeerDone) this.#onDone(now);
  }

  #onLeft(now: number): void {
    const { end } = this;
    const { kind, endless } = end.options;
    this.#leftAt ??= now;
    // without a hand-shake at its end who has all it wants leaves; our own message is then still acknowledged, or fails
    const mayLeave = kind.measures === 'lat' && kind.verb === 'WRITE';
    if (mayLeave && (now - this.#leftAt < FAREWELL_MS || end.outstanding > 0)) return;
    this.isDeserted = endless === undefined;
    end.stop();
  }

  #onDone(now: number): void {
    const { received } = this.end;
    if (this.#quietSince === undefined || received !== this.#received) this.#quietSince = now;
    this.#received = received;
    if (now - this.#quietSince >= QUIET_MS) this.end.stop();
  }

  /** It sends nothing more, as far as can be known: it waits for our hand-shake, or has begun when we did. */
  get #isPeerDone(): boolean {
    const { kind, transport, bidirectional } = this.end.options;
    if (kind.measures === 'lat' || transport === 'RC') return false;
    return this.peer.hasSpoken || (bidirectional && this.end.hasSentAll);
  }
}
