/**
 * Messages to a peer whose receives we cannot count. Valkey's server has 1024 receives, posts one again when it takes
 * its message, and permits no RNR retry: one message too many ends the connection. It takes nothing while it executes a
 * slow command. Whatever it sends shows that it has taken what came before; so few messages may be on their way since
 * that, and further ones leave rarely, with more data each.
 */
import { clearTimeout, setTimeout } from '../../base/timers.js';

/** Messages that leave at once, and the most that may be unanswered: the peer has 1024 receives. */
const FREE = 256;
const MOST = 960;
/** Time between the messages above `FREE` (ms). */
const PAUSE = 20;

export class UnansweredLimit {
  /** Messages between the last two signs of the peer, and since the last one: it may have crossed some of these. */
  #before = 0;
  #since = 0;
  #timer: NodeJS.Timeout | undefined;
  #isDue = false;
  readonly #onDue: () => void;

  /** @param onDue called when a message may leave that might not before */
  constructor(onDue: () => void) {
    this.#onDue = onDue;
  }

  /** Whether a message may leave now. If not, `onDue` is called later, or the peer has to answer first. */
  canSend(): boolean {
    const unanswered = this.#before + this.#since;
    if (unanswered < FREE) return true;
    if (unanswered >= MOST) return false;
    if (this.#isDue) return true;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#isDue = true;
      this.#onDue();
    }, PAUSE);
    return false;
  }

  /** A message has left. */
  sent(): void {
    this.#since++;
    this.#isDue = false;
  }

  /** The peer has sent something. */
  heard(): void {
    // Several at once say no more than one.
    if (this.#since === 0) return;
    this.#before = this.#since;
    this.#since = 0;
  }

  /** Ends the timer. */
  stop(): void {
    clearTimeout(this.#timer);
  }
}
