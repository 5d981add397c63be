/** Looks at a queue pair at intervals. */
import { clearInterval, setInterval } from '../base/timers.js';
import type { Qp } from '../verbs/objects/qp.js';

/**
 * Calls a function at intervals, until the queue pair is closed or has failed with its device. This does not keep the
 * process running.
 * @param interval milliseconds
 * @returns ends the calls; a second call does nothing
 */
export function lookAt(qp: Qp, interval: number, look: () => void): () => void {
  const timer = setInterval(() => (qp.isAlive ? look() : stop()), interval).unref();
  const stop = () => clearInterval(timer);
  return stop;
}
