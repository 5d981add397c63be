/** A party of bench/party in its process, seen from here. */
import { type EndName, type Program, type Rig, within } from './program.js';

/** An error that the party threw, with the code that it had. */
export class PartyError extends Error {
  constructor(
    message: string,
    readonly code: string | undefined,
  ) {
    super(message);
  }
}

/** For a call that says nothing else; an emulated machine may need it (ms). */
const PATIENCE = 60_000;

interface Pending {
  resolve(result: unknown): void;
  reject(error: Error): void;
}

export class PartyProcess {
  readonly #pending = new Map<number, Pending>();
  #calls = 0;

  readonly #program: Program;

  /** @param program bench/party/main.ts, started */
  constructor(program: Program) {
    this.#program = program;
    void this.#listen();
  }

  static start(rig: Rig, end: EndName, kind: string): PartyProcess {
    return new PartyProcess(rig.spawn(end, [rig.node, `${rig.programs}/js/party/main.js`, kind]));
  }

  /** @throws PartyError what the party threw; Error when it is gone or takes too long */
  async call<T>(name: string, ...args: readonly unknown[]): Promise<T> {
    return this.callWithin(PATIENCE, name, ...args);
  }

  async callWithin<T>(ms: number, name: string, ...args: readonly unknown[]): Promise<T> {
    const id = ++this.#calls;
    const answer = new Promise<unknown>((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
    });
    this.#program.write(`${JSON.stringify({ id, call: name, args })}\n`);
    return (await within(ms, `answer to ${name}`, answer)) as T;
  }

  kill(): void {
    this.#program.kill();
  }

  async #listen(): Promise<void> {
    for await (const line of this.#program.lines()) {
      if (!line.startsWith('{"id":')) continue;
      const { id, result, error } = JSON.parse(line);
      const pending = this.#pending.get(id);
      this.#pending.delete(id);
      if (error) pending?.reject(new PartyError(error.message, error.code));
      else pending?.resolve(result);
    }
    const why = await this.#program.exited.then(
      () => new Error('the process of this end has ended'),
      (error: Error) => error,
    );
    for (const { reject } of this.#pending.values()) reject(why);
    this.#pending.clear();
  }
}
