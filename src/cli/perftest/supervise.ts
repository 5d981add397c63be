/** Supervises a run: ends it when the peer has left, or when the messages that it waits for are lost. */
import { failure } from '../exit.js';
import type { Channel } from './communication/handshake.js';
import type { PerftestContext } from './resources.js';

/** Time between two looks (ms). */
const CHECK_MS = 10;
/** When a peer has left in order, its last message comes and our own run ends within this time (ms). */
const GRACE_MS = 500;
/** Messages that have not come this long after the peer was done are lost (ms). */
const QUIET_MS = 3000;

/**
 * Waits for a run, and stops it when it cannot end by itself.
 * @throws CliError when the peer leaves in the middle of the run
 */
export async function supervise<T>(run: Promise<T>, ctx: PerftestContext, peer: Channel): Promise<T> {
  const watch = new Supervisor(ctx, peer);
  const timer = setInterval(() => watch.check(performance.now()), CHECK_MS);
  try {
    const result = await run;
    if (watch.hasPeerLeft) throw failure('the peer has left in the middle of the test', { code: 'ECONNRESET' });
    return result;
  } finally {
    clearInterval(timer);
  }
}

class Supervisor {
  /** The run was stopped because the peer had left. */
  hasPeerLeft = false;
  #leftAt: number | undefined;
  #received = 0;
  #quietSince: number | undefined;

  constructor(
    readonly ctx: PerftestContext,
    readonly peer: Channel,
  ) {}

  check(now: number): void {
    if (this.peer.isEnded) this.#onLeft(now);
    else if (this.ctx.missing > 0 && this.#isPeerDone) this.#onDone(now);
  }

  #onLeft(now: number): void {
    const { ctx } = this;
    const { kind, runInfinitely } = ctx.options;
    this.#leftAt ??= now;
    // This test ends without a handshake: a peer that is done leaves. Our last message is still acknowledged, or fails.
    const mayLeave = kind.measures === 'lat' && kind.verb === 'WRITE';
    if (mayLeave && (now - this.#leftAt < GRACE_MS || ctx.outstanding > 0)) return;
    this.hasPeerLeft = runInfinitely === undefined;
    ctx.stop();
  }

  #onDone(now: number): void {
    const { received } = this.ctx;
    if (this.#quietSince === undefined || received !== this.#received) this.#quietSince = now;
    this.#received = received;
    if (now - this.#quietSince >= QUIET_MS) this.ctx.stop();
  }

  /** Whether the peer seems done: it waits for our handshake, or it sends as we do and we have sent everything. */
  get #isPeerDone(): boolean {
    const { kind, transport, bidirectional } = this.ctx.options;
    if (kind.measures === 'lat' || transport === 'RC') return false;
    return this.peer.hasData || (bidirectional && this.ctx.hasSentAll);
  }
}
