/** Which CPUs each end gets: half of those that this process may use. */
import { readFileSync } from 'node:fs';
import type { EndName } from './program.js';

/** Lists as taskset takes them. `isShared` when there is only one CPU for both. */
export type Cpus = Readonly<Record<EndName, string>> & { readonly isShared: boolean };

export function cpusOf(allowed = allowedCpus()): Cpus {
  // Two for each end at most: one for the program, one for its worker.
  const each = Math.min(2, Math.max(1, allowed.length >> 1));
  const a = allowed.slice(0, each);
  const b = allowed.length > 1 ? allowed.slice(each, 2 * each) : a;
  return { a: a.join(','), b: b.join(','), isShared: allowed.length < 2 };
}

function allowedCpus(): number[] {
  const list = /^Cpus_allowed_list:\s*(\S+)/m.exec(readFileSync('/proc/self/status', 'latin1'))?.[1] ?? '0';
  return list.split(',').flatMap((part) => {
    const [first = 0, last = first] = part.split('-').map(Number);
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  });
}
