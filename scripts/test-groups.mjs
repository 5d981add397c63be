// Programs in process groups of their own, which end together with whatever they have started.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

export class ProcessGroups {
  #leaders = new Set();
  #graceMs;

  /** @param graceMs what does not end by SIGTERM within this time ends by SIGKILL */
  constructor({ graceMs = 10_000 } = {}) {
    this.#graceMs = graceMs;
  }

  /**
   * Runs a program. Its output is printed line by line, so that several may run at a time.
   * @param isAlone the program has the terminal for itself
   * @returns its exit status; 1 if a signal has ended it
   */
  run(command, args, { cwd, env, isAlone = false } = {}) {
    const stdio = isAlone ? 'inherit' : ['ignore', 'pipe', 'pipe'];
    const child = spawn(command, args, { cwd, env, stdio, detached: true });
    for (const name of isAlone ? [] : ['stdout', 'stderr'])
      createInterface({ input: child[name] }).on('line', (line) => process[name].write(`${line}\n`));
    this.#leaders.add(child);
    return new Promise((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (status) => {
        this.#leaders.delete(child);
        resolve(status ?? 1);
      });
    });
  }

  /** Ends all programs. `run` returns when they have ended. */
  end() {
    this.#signal('SIGTERM');
    setTimeout(() => this.#signal('SIGKILL'), this.#graceMs).unref();
  }

  #signal(signal) {
    for (const { pid } of this.#leaders) {
      try {
        process.kill(-pid, signal);
      } catch (cause) {
        if (cause.code !== 'ESRCH') throw cause;
      }
    }
  }
}
