/**
 * The worker's side of its calls: a call is a JSON line on standard input, its result a JSON line on standard output.
 */
import { createInterface } from 'node:readline';
import { answer, type Call } from '../../src/cli/demo/calls.js';

/** Serves calls until standard input ends, then ends the process. */
export function serve(worker: object): void {
  const lines = createInterface({ input: process.stdin });
  lines.on('line', async (line) => {
    process.stdout.write(`${JSON.stringify(await answer(worker, JSON.parse(line) as Call))}\n`);
  });
  lines.on('close', () => process.exit());
}

/** Returns the CPU time of this process since `then`, in seconds. */
export function cpuSince(then: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(then);
  return (user + system) / 1e6;
}
