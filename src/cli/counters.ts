/** Counters as the reports show them. */
import type { Counters } from '../index.js';

const FAULT = /^link\.fault_/;

/** The counters that are not 0. */
export function nonZero(counters: Counters): Counters {
  return Object.fromEntries(Object.entries(counters).filter(([, count]) => count > 0));
}

/** The counter of packets that a rule of faults has hit. It is shown if it is 0 too: then the rule had no effect. */
const RULE_HITS = /^link\.fault_rule_\d+_hits$/;

/** The faults that the local link has injected, without the prefix of the counters' names: `tx_drop` ... */
export function faultsIn(counters: Counters): Counters {
  const isShown = ([name, count]: [string, number]) => RULE_HITS.test(name) || (FAULT.test(name) && count > 0);
  const faults = Object.entries(counters).filter(isShown);
  return Object.fromEntries(faults.map(([name, count]) => [name.replace(FAULT, ''), count]));
}

/** Each counter summed over several queue pairs. */
export function sumOf(all: Iterable<Counters>): Counters {
  const sum: Record<string, number> = {};
  for (const counters of all)
    for (const [name, count] of Object.entries(counters)) sum[name] = (sum[name] ?? 0) + count;
  return sum;
}
