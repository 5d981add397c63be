/**
 * Finds peers that keep our READs and WRITEs waiting. A peer that answers one packet now and then keeps within all
 * retries, and would hold our buffers for ever.
 */
import { VerbsError } from '../errors.js';
import type { Qp } from '../verbs/objects/qp.js';
import { lookAt } from './looks.js';

/** Milliseconds between two looks. */
const INTERVAL_MS = 10_000;
/** Bytes that must get through between two looks, if something is outstanding all the time: 8 KiB a second. */
const MIN_BYTES = 8192 * (INTERVAL_MS / 1000);
/** PSNs have 24 bits (IBTA 9.7.1). */
const PSN_MASK = 0xff_ffff;

export class Progress {
  readonly #qp: Qp;
  readonly #onStall: (error: Error) => void;
  /** Set with the first READ or WRITE. */
  #endLooks: (() => void) | undefined;
  #outstanding = 0;
  /** Whether nothing was outstanding at some time since the last look. */
  #wasIdle = true;
  /** The oldest PSN that the peer had not acknowledged at the last look. */
  #psn = 0;
  /** Bytes of the transfers that are complete since the last look. */
  #bytes = 0;

  /** @param onStall is called once, when the peer is too slow: after 10 to 20 s */
  constructor(qp: Qp, onStall: (error: Error) => void) {
    this.#qp = qp;
    this.#onStall = onStall;
  }

  /** Counts a READ or WRITE that is outstanding. */
  begin(): void {
    this.#outstanding++;
    this.#endLooks ??= lookAt(this.#qp, INTERVAL_MS, () => this.#look());
  }

  /** Counts it as complete. @param bytes that got through; 0 when it has failed */
  end(bytes: number): void {
    this.#bytes += bytes;
    if (--this.#outstanding === 0) this.#wasIdle = true;
  }

  /** Looks no more. */
  stop(): void {
    this.#endLooks?.();
  }

  #look(): void {
    const { progress, pathMtu } = this.#qp.query();
    const packets = (progress.unackedPsn - this.#psn) & PSN_MASK;
    const bytes = Math.max(this.#bytes, packets * pathMtu);
    const isStalled = !this.#wasIdle && bytes < MIN_BYTES;
    this.#wasIdle = this.#outstanding === 0;
    this.#psn = progress.unackedPsn;
    this.#bytes = 0;
    if (!isStalled) return;
    this.stop();
    const text = `the peer let ${bytes} bytes through within ${INTERVAL_MS} ms, ${MIN_BYTES} must get through`;
    this.#onStall(new VerbsError('ETIMEDOUT', text));
  }
}
