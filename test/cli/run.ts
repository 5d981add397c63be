/** Runs the command as a user would: the built one, or its source if only vitest was started. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { getCurrentTest } from 'vitest/suite';

const ROOT = join(import.meta.dirname, '../..');
/** scripts/test.mjs builds first and sets this variable. The built command starts in half the time. */
const isBuilt = process.env.WASM_ROCE_NET !== undefined;
const LOADER = isBuilt ? [] : ['--import', 'tsx'];
const MAIN = join(ROOT, isBuilt ? 'dist/cli/main.js' : 'src/cli/main.ts');

export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly env?: NodeJS.ProcessEnv;
  /** Words before the command. */
  readonly prefix?: readonly string[];
  /** Options of node itself. */
  readonly node?: readonly string[];
  /** Run on a terminal: `child.stdin` is its keyboard, stdout is its screen. */
  readonly terminal?: boolean;
}

export interface Running {
  readonly child: ChildProcess;
  readonly pid: number;
  readonly ended: Promise<Ended>;
  /** Waits until stderr contains a text. */
  says(text: string): Promise<void>;
  /** Waits until stdout fulfils a condition. */
  prints(isEnough: (stdout: string) => boolean): Promise<void>;
}

/** Processes that have not ended. Those that do not belong to one test are killed with this process at the latest. */
const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

export function start(args: readonly string[], { env, prefix = [], node = [], terminal }: RunOptions = {}): Running {
  const command = [...prefix, process.execPath, ...LOADER, ...node, MAIN, ...args];
  const onTerminal = ['script', '--quiet', '--return', '--command', command.map(quoted).join(' '), '/dev/null'];
  const [program, ...words] = (terminal ? onTerminal : command) as [string];
  const child = spawn(program, words, {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: [terminal ? 'pipe' : 'ignore', 'pipe', 'pipe'],
  });
  running.add(child);
  child.once('close', () => running.delete(child));
  endWithTest(child);
  let stdout = '';
  let stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text) => {
    stdout += text;
  });
  child.stderr?.setEncoding('utf8').on('data', (text) => {
    stderr += text;
  });
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (status) => resolve({ status, stdout, stderr }));
  });
  const until = async (isEnough: () => boolean) => {
    while (!isEnough()) {
      if (child.exitCode !== null) throw new Error(`it ended too soon: ${stdout}${stderr}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };
  const says = (text: string) => until(() => stderr.includes(text));
  const prints = (isEnough: (stdout: string) => boolean) => until(() => isEnough(stdout));
  return { child, pid: child.pid as number, ended, says, prints };
}

/**
 * Ends a process with the test that has started it: a test that fails or times out would leave its address and ports
 * occupied for the next one. Among tests that run at once, the current one is not known.
 */
function endWithTest(child: ChildProcess): void {
  const test = getCurrentTest();
  if (!test || test.concurrent) return;
  onTestFinished(async () => {
    if (!running.has(child)) return;
    const closed = once(child, 'close');
    child.kill('SIGKILL');
    await closed;
  });
}

/** One word for a shell. */
const quoted = (word: string) => `'${word.replaceAll("'", "'\\''")}'`;

export function run(args: readonly string[], options?: RunOptions): Promise<Ended> {
  return start(args, options).ended;
}

/** Returns a TCP port that is free at the moment. */
export function freePort(): Promise<number> {
  const server = createServer();
  return new Promise((resolve) => {
    server.listen(0, () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

/** Options of node with which the native addon does not load. */
export const NO_ADDON = [
  '--import',
  'data:text/javascript,process.dlopen=()=>{throw new Error("no shared objects here")}',
];
