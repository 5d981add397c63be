// Programs in process groups of their own, which end together with whatever they have started.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

export class ProcessGroups {
  #leaders = new Set();
  #graceMs;
  #print;

  /**
   * @param graceMs time after SIGTERM; processes that run on get SIGKILL
   * @param print prints a line of the output of a program. `name` is `stdout` or `stderr`.
   */
  constructor({ graceMs = 10_000, print = (name, line) => process[name].write(`${line}\n`) } = {}) {
    this.#graceMs = graceMs;
    this.#print = print;
  }

  /**
   * Runs a program. Its output is printed line by line, so that several may run at a time. What it has started and left
   * behind ends with it.
   * @param isAlone the program has the terminal for itself
   * @param onLine called with each line of its output, unless it has the terminal
   * @returns its exit status, or the name of the signal that has ended it
   */
  run(command, args, { cwd, env, isAlone = false, onLine = () => {} } = {}) {
    const stdio = isAlone ? 'inherit' : ['ignore', 'pipe', 'pipe'];
    const child = spawn(command, args, { cwd, env, stdio, detached: true });
    for (const name of isAlone ? [] : ['stdout', 'stderr'])
      createInterface({ input: child[name] }).on('line', (line) => {
        onLine(line);
        this.#print(name, line);
      });
    this.#leaders.add(child);
    return new Promise((resolve, reject) => {
      child.on('error', reject);
      child.on('exit', () => signalGroup(child, 'SIGKILL'));
      child.on('close', (status, signal) => {
        this.#leaders.delete(child);
        resolve(status ?? signal);
      });
    });
  }

  /** Ends all programs. `run` returns when they have ended. */
  end() {
    this.#signal('SIGTERM');
    setTimeout(() => this.#signal('SIGKILL'), this.#graceMs).unref();
  }

  #signal(signal) {
    for (const leader of this.#leaders) signalGroup(leader, signal);
  }
}

function signalGroup({ pid }, signal) {
  try {
    process.kill(-pid, signal);
  } catch (cause) {
    if (cause.code !== 'ESRCH') throw cause;
  }
}
