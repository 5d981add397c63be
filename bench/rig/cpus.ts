/** The CPUs of each end: half of the CPUs that this process may use. */
import { readFileSync } from 'node:fs';
import type { EndName } from './program.js';

/** CPU lists in the format of taskset. `isShared` when both ends share the only CPU. */
export type Cpus = Readonly<Record<EndName, string>> & { readonly isShared: boolean };

export function cpusOf(allowed = allowedCpus()): Cpus {
  // At most two for each end: one for the program, one for its card thread.
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
