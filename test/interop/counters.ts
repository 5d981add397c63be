/** Returns the counters of rxe, with the names of the kernel's rxe_hw_counters.c. */
import type { Guest } from './guest/guest.js';

export async function rxeCounters(guest: Guest): Promise<Record<string, number>> {
  const text = await guest.run('cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep -H . *');
  const lines = text.trim().split('\n');
  return Object.fromEntries(lines.map((line) => line.split(':')).map(([name, value]) => [name, Number(value)]));
}
