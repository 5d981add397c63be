/** Operating system resources that devices use. */
import { readdirSync } from 'node:fs';

/** Returns the number of threads and open files of this process, once both are stable for 100 ms. */
export async function processResources(): Promise<{ threads: number; files: number }> {
  const now = () => ({ threads: readdirSync('/proc/self/task').length, files: readdirSync('/proc/self/fd').length });
  let last = now();
  for (let same = 0; same < 10; ) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    const next = now();
    same = next.threads === last.threads && next.files === last.files ? same + 1 : 0;
    last = next;
  }
  return last;
}
