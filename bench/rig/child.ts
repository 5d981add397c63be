/** A program that runs on this machine. The kernel kills it when this process ends. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Program } from './program.js';

const LAST_WORDS = 2000;

/** @param prefix the program that starts the command, with its arguments: nsenter, taskset ... */
export function startChild(prefix: readonly string[], command: readonly string[]): Program {
  const [file, ...args] = ['setpriv', '--pdeathsig', 'KILL', '--', ...prefix, ...command];
  const child = spawn(file as string, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  return new Child(child, command.join(' '));
}

class Child implements Program {
  readonly exited: Promise<void>;
  readonly #lines: string[] = [];
  #over = false;
  #wake = () => {};

  constructor(
    readonly child: ChildProcess,
    title: string,
  ) {
    let words = '';
    child.stderr?.on('data', (data) => {
      words = (words + data).slice(-LAST_WORDS);
    });
    child.stdin?.on('error', () => {});
    if (child.stdout) {
      createInterface({ input: child.stdout }).on('line', (line) => {
        this.#lines.push(line);
        this.#wake();
      });
    }
    this.exited = new Promise((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (status, signal) => {
        this.#over = true;
        this.#wake();
        if (status === 0 || signal === 'SIGKILL') resolve();
        else reject(new Error(words.trim() || `${title}: ${signal ?? `exit status ${status}`}`));
      });
    });
    this.exited.catch(() => {});
  }

  async *lines(): AsyncGenerator<string, void, void> {
    for (let at = 0; ; at++) {
      while (at >= this.#lines.length) {
        if (this.#over) return;
        await new Promise<void>((resolve) => {
          const others = this.#wake;
          this.#wake = () => {
            others();
            resolve();
          };
        });
      }
      yield this.#lines[at] as string;
    }
  }

  write(text: string): void {
    this.child.stdin?.write(text);
  }

  kill(): void {
    this.child.kill('SIGKILL');
  }
}
