/** A program at one end, on the host or in the guest. It reads and writes lines. */

export interface Program {
  /** The lines of its standard output as they arrive. They end with the program. */
  lines(): AsyncIterable<string>;
  write(text: string): void;
  /** Resolves when the program has ended. Rejects with its standard error output when it failed. */
  readonly exited: Promise<void>;
  kill(): void;
}

export type EndName = 'a' | 'b';

export interface EndInfo {
  readonly interface: string;
  readonly address: string;
  readonly mac: string;
}

/** Two ends and the veth pair between them. */
export interface Rig {
  readonly a: EndInfo;
  readonly b: EndInfo;
  /** Describes for the report where the ends are. */
  readonly description: string;
  /** The folder of the compiled programs, as the ends see it. */
  readonly programs: string;
  /** The path of the Node.js binary at the ends. */
  readonly node: string;
  /** The path of this project's command at the ends. */
  readonly command: string;
  /** Returns the path of a new file that the programs of both ends can map. */
  sharedFile(): string;
  setMtu(mtu: number): Promise<void>;
  /** Starts a program at one end, pinned to the CPUs of that end. */
  spawn(end: EndName, command: readonly string[]): Program;
  /** Waits until a program at one end listens on a TCP port. @throws Error when none does in time */
  listening(end: EndName, port: number): Promise<void>;
  /** Returns the CPU time that the whole machine has used, in seconds. */
  cpuSeconds(): Promise<number>;
  close(): Promise<void>;
}

/** Returns the first line that matches; the program goes on. @throws Error when it ends without such a line */
export async function lineLike(program: Program, pattern: RegExp, timeoutMs = 10_000): Promise<string> {
  const read = async () => {
    for await (const line of program.lines()) if (pattern.test(line)) return line;
    await program.exited;
    throw new Error(`ended without a line like ${pattern}`);
  };
  return within(timeoutMs, `a line like ${pattern}`, read());
}

/** Returns the result if it is there within `ms`. @throws Error when it takes longer */
export async function within<T>(ms: number, what: string, result: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([result, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Returns the busy time in the first line of /proc/stat, in seconds. */
export function busySeconds(stat: string): number {
  const [, ...ticks] = stat.trim().split(/\s+/);
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = ticks.map(Number);
  return (user + nice + system + irq + softirq) / 100;
}
