/** Operating system resources that devices use. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** PF_EXITING of linux/sched.h. The kernel may list a thread for some time after it was joined. */
const EXITING = 4;
/** PF_IO_WORKER: a thread of the kernel's for io_uring, which some versions of Node use. It comes and goes. */
const IO_WORKER = 16;

/** Whether a thread is one of the process and does not end. */
function isRunning(thread: string): boolean {
  try {
    const stat = readFileSync(`/proc/self/task/${thread}/stat`, 'latin1');
    const flags = Number(stat.slice(stat.lastIndexOf(')')).split(' ')[7]);
    return (flags & (EXITING | IO_WORKER)) === 0;
  } catch {
    return false;
  }
}

/** Returns the names of the open files of this process, without the numbers that tell sockets and pipes apart. */
function openFiles(): string[] {
  const names = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).replace(/:\[\d+\]$/, '');
    } catch {
      return 'closed'; // the folder itself, whose file was open while it was read
    }
  });
  return names.sort();
}

/** Returns the number of threads, and the open files of this process, once both are stable for 100 ms. */
export async function processResources(): Promise<{ threads: number; files: string[] }> {
  const threads = () => readdirSync('/proc/self/task').filter(isRunning).length;
  const now = () => ({ threads: threads(), files: openFiles() });
  let last = now();
  for (let same = 0; same < 10; ) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    const next = now();
    same = next.threads === last.threads && next.files.join() === last.files.join() ? same + 1 : 0;
    last = next;
  }
  return last;
}
