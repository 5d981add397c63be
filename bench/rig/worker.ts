/** The caller's view of a worker: a program of bench/workers in a process of its own. */
import { type Answer, PendingCalls } from '../../src/cli/demo/calls.js';
import { type EndName, type Program, type Rig, within } from './program.js';

/** An error that the worker threw, with its error code. */
export class WorkerError extends Error {
  constructor(
    message: string,
    readonly code: string | undefined,
  ) {
    super(message);
  }
}

/** Default timeout of a call in ms; an emulated machine may need it. */
const PATIENCE = 60_000;

export class WorkerProcess {
  readonly #calls: PendingCalls;

  readonly #program: Program;

  /** @param program a running bench/workers/main.ts */
  constructor(program: Program) {
    this.#program = program;
    this.#calls = new PendingCalls(
      (call) => program.write(`${JSON.stringify(call)}\n`),
      ({ message, code }) => new WorkerError(message, code),
    );
    void this.#listen();
  }

  /** @param programs folder of the compiled programs, as the ends see it */
  static start(rig: Rig, end: EndName, kind: string, programs = rig.programs): WorkerProcess {
    return new WorkerProcess(rig.spawn(end, [rig.node, `${programs}/js/bench/workers/main.js`, kind]));
  }

  /** @throws WorkerError the error that the worker threw; Error when the worker has ended or takes too long */
  async call<T>(name: string, ...args: readonly unknown[]): Promise<T> {
    return this.callWithin(PATIENCE, name, ...args);
  }

  async callWithin<T>(ms: number, name: string, ...args: readonly unknown[]): Promise<T> {
    return (await within(ms, `answer to ${name}`, this.#calls.call(name, args))) as T;
  }

  kill(): void {
    this.#program.kill();
  }

  async #listen(): Promise<void> {
    for await (const line of this.#program.lines())
      if (line.startsWith('{"id":')) this.#calls.settle(JSON.parse(line) as Answer);
    const why = await this.#program.exited.then(
      () => new Error('the process of this end has ended'),
      (error: Error) => error,
    );
    this.#calls.fail(why);
  }
}
