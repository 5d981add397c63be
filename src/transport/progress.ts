/**
 * Sees whether the peer of a queue pair lets our READs and WRITEs go on. A peer that answers one packet now and then
 * keeps within all retries, and would keep buffers of ours for ever.
 */
import { type Qp, VerbsError } from '../index.js';

/** Between two looks (ms). */
const INTERVAL_MS = 10_000;
/** Bytes that must get through between two looks, if something is outstanding all the time: 8 KiB a second. */
const MIN_BYTES = 8192 * (INTERVAL_MS / 1000);
/** PSNs have 24 bits (IBTA 9.7.1). */
const PSN_MASK = 0xff_ffff;

export class Progress {
  readonly #qp: Qp;
  readonly #onStall: (error: Error) => void;
  #outstanding = 0;
  #timer: NodeJS.Timeout | undefined;
  /** At the last look: the oldest PSN that the peer has not acknowledged. */
  #psn = 0;
  /** Bytes of what has ended since. */
  #bytes = 0;

  /** @param onStall called once; the peer is too slow */
  constructor(qp: Qp, onStall: (error: Error) => void) {
    this.#qp = qp;
    this.#onStall = onStall;
  }

  /** A READ or WRITE is outstanding. */
  begin(): void {
    if (this.#outstanding++ > 0 || !this.#qp.isAlive) return;
    this.#psn = this.#qp.query().progress.unackedPsn;
    this.#bytes = 0;
    this.#timer = setInterval(() => this.#look(), INTERVAL_MS).unref();
  }

  /** It is complete, or has failed. */
  end(bytes: number): void {
    this.#bytes += bytes;
    if (--this.#outstanding === 0) this.stop();
  }

  /** Looks no more, until something begins when nothing is outstanding. */
  stop(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    if (!this.#qp.isAlive) {
      this.stop();
      return;
    }
    const { progress, pathMtu } = this.#qp.query();
    const packets = (progress.unackedPsn - this.#psn) & PSN_MASK;
    const bytes = Math.max(this.#bytes, packets * pathMtu);
    this.#psn = progress.unackedPsn;
    this.#bytes = 0;
    if (bytes >= MIN_BYTES) return;
    this.stop();
    const text = `the peer let ${bytes} bytes through within ${INTERVAL_MS} ms, ${MIN_BYTES} must get through`;
    this.#onStall(new VerbsError('ETIMEDOUT', text));
  }
}
