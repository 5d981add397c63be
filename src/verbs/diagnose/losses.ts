/**
 * Publishes retransmitted and dropped packets on channels of node:diagnostics_channel: as counts, at most once a
 * second. A device without losses does nothing for it, and one without subscribers reads no counters.
 */
import type { Channel } from 'node:diagnostics_channel';
import { diagnostics } from '../../base/diagnostics.js';
import { clearTimeout, nextTick, setTimeout } from '../../base/timers.js';
import type { Context } from '../objects/context.js';
import type { Qp } from '../objects/qp.js';
import type { Counters } from './counters.js';
import { explainDrop } from './drops.js';

/** Time from the first loss to the message, which counts all losses until then (ms). */
const BURST_MS = 1000;
/** Counters of a queue pair: the causes of retransmissions. */
const CAUSES = [
  'local_ack_timeout_err',
  'rcvd_seq_err',
  'implied_nak_seq_err',
  'rcvd_rnr_err',
  'roce_adp_retrans',
] as const;

export class LossReports {
  readonly #device: Context;
  #timer: NodeJS.Timeout | undefined;
  /** The counters in the last messages. */
  #ofDevice: Counters = {};
  readonly #ofQps = new WeakMap<Qp, Counters>();

  /** @param device reports its losses by `onLoss` from now on */
  constructor(device: Context) {
    this.#device = device;
    device.card.exports.awaitLoss();
  }

  /** The card has dropped or retransmitted a packet. */
  onLoss(): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (!this.#device.isAlive) return;
      // before the counters are read, so that each later loss is noticed
      this.#device.card.exports.awaitLoss();
      this.#report();
    }, BURST_MS);
    this.#timer.unref?.();
  }

  /** A queue pair is about to close. */
  closeQp(qp: Qp): void {
    if (diagnostics.qpRetransmit.hasSubscribers) this.#reportQp(qp);
  }

  /** The device is about to close. */
  close(): void {
    clearTimeout(this.#timer);
    if (this.#device.isAlive) this.#report();
  }

  #report(): void {
    if (diagnostics.qpRetransmit.hasSubscribers) for (const qp of this.#device.qps()) this.#reportQp(qp);
    if (diagnostics.drop.hasSubscribers) this.#reportDrops();
  }

  #reportQp(qp: Qp): void {
    const before = this.#ofQps.get(qp) ?? {};
    if (qp.counter('retransmits') === (before.retransmits ?? 0) >>> 0) return;
    const counters = qp.counters();
    this.#ofQps.set(qp, counters);
    const { peer } = qp.failureContext();
    const causes = Object.fromEntries(
      CAUSES.map((cause) => [cause, increase(counters, before, cause)]).filter(([, count]) => count !== 0),
    );
    const packets = increase(counters, before, 'retransmits');
    publishLater(diagnostics.qpRetransmit, { device: this.#device, qp, peer, packets, causes });
  }

  #reportDrops(): void {
    const before = this.#ofDevice;
    const counters = this.#device.counters();
    this.#ofDevice = counters;
    for (const counter of Object.keys(counters)) {
      const packets = increase(counters, before, counter);
      const reason = explainDrop(counter);
      if (packets === 0 || reason === undefined) continue;
      publishLater(diagnostics.drop, { device: this.#device, counter, packets, reason });
    }
  }
}

function increase(counters: Counters, before: Counters, name: string): number {
  return (counters[name] ?? 0) - (before[name] ?? 0);
}

/** Subscribers run outside of the call that closes an object. */
function publishLater(channel: Channel, message: object): void {
  nextTick(() => channel.publish(message));
}
