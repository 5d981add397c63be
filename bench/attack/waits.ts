/** Time in which threads of a process could have run, but others had the processor. */
import { readdirSync, readFileSync } from 'node:fs';

/** Seconds that a thread has run, and has waited for a processor (Documentation/scheduler/sched-stats.rst). */
interface ThreadTimes {
  readonly ran: number;
  readonly waited: number;
}

/** Returns the seconds that the main thread has waited for a processor. */
export function mainThreadWait(): number {
  return timesIn('/proc/self').waited;
}

/** The waits of a process since the last call of `take`. */
export class ThreadWaits {
  #since = performance.now();
  #times = threadTimes();

  /**
   * Begins anew.
   * @param mode mode of the process's device
   * @returns the share of the time in which the main thread waited for a processor, or in worker mode the card's thread
   * if that is more. The card's thread is the one that ran most beside the main thread.
   */
  take(mode: string): number {
    const [before, times, begin, now] = [this.#times, threadTimes(), this.#since, performance.now()];
    this.#times = times;
    this.#since = now;
    const since = (tid: string, { ran, waited }: ThreadTimes): ThreadTimes => {
      const old = before.get(tid) ?? { ran: 0, waited: 0 };
      return { ran: ran - old.ran, waited: waited - old.waited };
    };
    const own = String(process.pid);
    const main = since(own, times.get(own) as ThreadTimes).waited;
    const others = [...times].filter(([tid]) => tid !== own).map(([tid, thread]) => since(tid, thread));
    const [busiest] = others.sort((a, b) => b.ran - a.ran);
    const card = mode === 'worker' ? (busiest?.waited ?? 0) : 0;
    return Math.min(0.99, Math.max(main, card) / ((now - begin) / 1000));
  }
}

function timesIn(folder: string): ThreadTimes {
  const [ran = 0, waited = 0] = readFileSync(`${folder}/schedstat`, 'latin1')
    .split(' ')
    .map((ns) => Number(ns) / 1e9);
  return { ran, waited };
}

/** Returns the times of all threads, by their ids. */
function threadTimes(): ReadonlyMap<string, ThreadTimes> {
  const times = new Map<string, ThreadTimes>();
  for (const tid of readdirSync('/proc/self/task')) {
    try {
      times.set(tid, timesIn(`/proc/self/task/${tid}`));
    } catch {
      // the thread has ended
    }
  }
  return times;
}
