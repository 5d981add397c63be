/** Programs on shared addresses, as processes of their own. */
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import type { OpenOptions } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { ChildProgram, type PeerNamespace } from '../link/netns.js';
import type { CALLS } from './program.js';

const PROGRAM = fileURLToPath(new URL('program.ts', import.meta.url));
/** Runs a program without capabilities, but still as root: another user may not be allowed to read the project. */
export const UNPRIVILEGED = ['setpriv', '--inh-caps=-all', '--bounding-set=-all'];
const FIRST_PORT = 7600;

type Calls = typeof CALLS;

/** A program, which serves echoes on a port of its own. */
export class Program {
  private constructor(
    readonly child: ChildProgram,
    readonly port: number,
  ) {}

  /**
   * @param host undefined: the namespace of the test
   * @param wrap a command that runs the program
   */
  static async start(host: PeerNamespace | undefined, number: number, wrap: string[] = []): Promise<Program> {
    const node = [process.execPath, '--import', 'tsx', PROGRAM];
    const [command = '', ...args] = [...wrap, ...node];
    const child = host?.start(PROGRAM, [], wrap) ?? new ChildProgram(command, args);
    assert.equal(await child.line(), 'ready');
    return new Program(child, FIRST_PORT + number);
  }

  /**
   * Starts a program that has opened a device, and serves on its port.
   * @param user becomes its user, if it is started as root
   */
  static async serve(
    host: PeerNamespace | undefined,
    number: number,
    options: OpenOptions,
    wrap: string[] = [],
    user = 0,
  ): Promise<Program> {
    const program = await Program.start(host, number, wrap);
    if (user !== 0) await program.call('become', user);
    const opened = await program.call('open', options);
    if (opened === null || !('slot' in opened) || opened.slot === 0) assert.fail(`no slot: ${JSON.stringify(opened)}`);
    assert.equal(await program.call('listen', program.port), null);
    return program;
  }

  async call<Name extends keyof Calls>(name: Name, ...call: Parameters<Calls[Name]>) {
    const line = await this.child.request(JSON.stringify([name, ...call]));
    return JSON.parse(line) as Awaited<ReturnType<Calls[Name]>> | null;
  }

  async counts() {
    const counts = await this.call('counts');
    if (counts === null) throw new Error('no counts');
    return counts;
  }

  /** Waits until the program has exchanged other messages. */
  async goesOn(): Promise<void> {
    const before = await this.counts();
    await eventually(async () => assert((await this.counts()).echoes > before.echoes + 5, 'no echo comes any more'));
  }

  /** Talks with each of the others, by the addresses in turn. */
  async talkTo(others: readonly Program[], addresses: readonly string[]): Promise<void> {
    for (const [i, { port }] of others.entries())
      if (port !== this.port)
        assert.equal(await this.call('talk', addresses[i % addresses.length] as string, port), null);
  }
}
