/** A program at one end, wherever that is: lines in, lines out. */

export interface Program {
  /** Its standard output, as it comes; ends with the program. */
  lines(): AsyncIterable<string>;
  write(text: string): void;
  /** Resolves when it has ended. Rejects, with what it wrote on standard error, when it failed. */
  readonly exited: Promise<void>;
  kill(): void;
}

export type EndName = 'a' | 'b';

export interface EndInfo {
  readonly interface: string;
  readonly address: string;
  readonly mac: string;
}

/** Two ends and the cable between them. */
export interface Rig {
  readonly a: EndInfo;
  readonly b: EndInfo;
  /** Where the two are, for the report. */
  readonly description: string;
  /** Folder of programs that were compiled for the benchmark, as the ends see it. */
  readonly programs: string;
  /** The node that runs there. */
  readonly node: string;
  /** A new file which programs of both ends may map. */
  sharedFile(): string;
  setMtu(mtu: number): Promise<void>;
  /** Starts a program at an end, pinned to that end's CPUs. */
  spawn(end: EndName, command: readonly string[]): Program;
  close(): Promise<void>;
}

/** The first line that matches, of a program that goes on. @throws Error when it ends before */
export async function lineLike(program: Program, pattern: RegExp, timeoutMs = 10_000): Promise<string> {
  const read = async () => {
    for await (const line of program.lines()) if (pattern.test(line)) return line;
    await program.exited;
    throw new Error(`ended without a line like ${pattern}`);
  };
  return within(timeoutMs, `a line like ${pattern}`, read());
}

/** @throws Error when it takes longer */
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
