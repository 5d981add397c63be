/** One end's side of the conversation with the benchmark: a call is a line of JSON on standard input, its answer one on standard output. */
import { createInterface } from 'node:readline';

/** What a party can be asked. */
export interface Party {
  [call: string]: (...args: never[]) => unknown;
}

interface Call {
  readonly id: number;
  readonly call: string;
  readonly args: readonly never[];
}

/** Answers calls until standard input ends; then the process does. */
export function serve(party: object): void {
  const lines = createInterface({ input: process.stdin });
  lines.on('line', (line) => void answer(party as Party, JSON.parse(line)));
  lines.on('close', () => process.exit());
}

async function answer(party: Party, { id, call, args }: Call): Promise<void> {
  try {
    const result = await party[call]?.(...args);
    say({ id, result });
  } catch (error) {
    const { code, message, stack } = error as NodeJS.ErrnoException;
    say({ id, error: { code, message, stack } });
  }
}

function say(what: unknown): void {
  process.stdout.write(`${JSON.stringify(what)}\n`);
}

/** CPU time of this process since `then`, seconds. */
export function cpuSince(then: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(then);
  return (user + system) / 1e6;
}
