/** Processes, as the kernel shows them. */
import { readdirSync, readFileSync } from 'node:fs';

/** Returns whether a process runs. A zombie does not: it holds no resources. */
export function lives(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}

/** Returns the number of open file descriptors of this process. */
export function openFds(): number {
  return readdirSync('/proc/self/fd').length;
}
