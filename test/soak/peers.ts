/** The peers of a soak: processes of ours in another network namespace, and stock programs in guests. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Guest } from '../interop/guest/guest.js';
import { findGuestImage } from '../interop/guest/recipe.js';
import type { Report } from './report.js';
import type { Tally } from './tally.js';

const CLIENT = fileURLToPath(new URL('client.ts', import.meta.url));
const NAMESPACE = 'soak';

export function ip(...commands: string[]): void {
  for (const command of commands) execFileSync('ip', command.split(' '), { stdio: ['ignore', 'ignore', 'pipe'] });
}

/** A kind of peer that uses the endpoint again and again until it is stopped. */
export interface Peer {
  readonly name: string;
  /** Kills what runs now, in the middle of whatever it does. It starts anew by itself. */
  kill(): Promise<void>;
  /** Lets what runs now come to its end. */
  stop(): Promise<void>;
}

/** Creates the namespace of our clients, with an interface on the bridge. */
export function createClientNetwork(address: string): void {
  ip(`netns add ${NAMESPACE}`, `link add soak0 type veth peer name soak0p`, 'link set soak0p addrgenmode none');
  ip('link set soak0p master br0', 'link set soak0p up', `link set soak0 netns ${NAMESPACE}`);
  ip(`-n ${NAMESPACE} link set lo up`, `-n ${NAMESPACE} address add ${address}/24 dev soak0`);
  ip(`-n ${NAMESPACE} link set soak0 up`);
}

/** A client of ours. */
export class OurPeer implements Peer {
  readonly name = 'our client';
  #child: ChildProcess;
  #isStopped = false;

  constructor(
    readonly slot: number,
    readonly hosts: readonly string[],
    readonly tally: Tally,
  ) {
    this.#child = this.#start();
  }

  #start(): ChildProcess {
    const words = ['netns', 'exec', NAMESPACE, process.execPath, '--import', 'tsx', CLIENT, 'soak0', String(this.slot)];
    const child = spawn('ip', [...words, ...this.hosts], { stdio: ['pipe', 'pipe', 'inherit'] });
    child.stdin.on('error', () => {});
    createInterface(child.stdout).on('line', (line) => this.#take(line));
    child.on('exit', (status, signal) => {
      if (status !== 0 && signal !== 'SIGKILL') this.tally.add(`FAILED: our client ended with ${status ?? signal}`);
      if (!this.#isStopped) this.#child = this.#start();
    });
    return child;
  }

  #take(line: string): void {
    // a killed process leaves half a line
    if (!line.endsWith('}')) return;
    const { did, bytes = 0, code, wrong }: Report = JSON.parse(line);
    this.tally.add(code === undefined ? `our clients: ${did}` : `our clients: ${code}`);
    if (bytes > 0) this.tally.add('our clients: bytes', bytes);
    if (wrong !== undefined) this.tally.add(`FAILED: ${did}: ${wrong}`);
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    const child = this.#child;
    child.stdin?.end();
    if (child.exitCode !== null || child.signalCode !== null) return;
    const timer = setTimeout(() => {
      this.tally.add('FAILED: our client did not end within 60 s');
      child.kill('SIGKILL');
    }, 60_000);
    await once(child, 'exit');
    clearTimeout(timer);
  }
}

/** Programs of rdma-core and perftest, each in turn, with what each must print. */
const PROGRAMS = (host: string): readonly (readonly [string, readonly string[]])[] => [
  ['rping', ['rping', '-c', '-a', host, '-V', '-C', '5']],
  ['ib_write_bw', ['ib_write_bw', '-d', 'rxe0', '-F', '-x', '1', '-n', '20', '-s', '20000', host]],
];
const PROGRAM_MS = 60_000;

/** A guest with rxe. */
export class GuestPeer implements Peer {
  #running: ReturnType<Guest['spawn']> | undefined;
  #isKilled = false;
  #isStopped = false;
  readonly #work: Promise<void>;

  /** Starts the guest of a Debian suite, if its image exists. @param number of the guest, from 0 */
  static async boot(suite: string, number: number): Promise<Guest | undefined> {
    process.env.WASM_ROCE_GUEST = suite;
    if (!findGuestImage()) return undefined;
    const tap = `tap${number}`;
    if (number > 0)
      ip(`tuntap add dev ${tap} mode tap`, `link set ${tap} addrgenmode none`, `link set ${tap} master br0 up`);
    const [mac, address] = [`52:54:00:77:00:1${number}`, `10.77.0.${10 + number}/24`];
    return Guest.start({ tap, mac, addresses: [address] });
  }

  constructor(
    readonly name: string,
    readonly guest: Guest,
    readonly host: string,
    readonly tally: Tally,
  ) {
    this.#work = this.#loop();
  }

  async #loop(): Promise<void> {
    const programs = PROGRAMS(this.host);
    while (!this.#isStopped) {
      const [name, command] = programs[randomInt(programs.length)] as (typeof programs)[number];
      this.#isKilled = false;
      this.#running = this.guest.spawn(command);
      const late = setTimeout(() => {
        this.tally.add(`${this.name}: ${name} hung`);
        this.#isKilled = true;
        void this.#running?.kill();
      }, PROGRAM_MS);
      const { status } = await this.#running.exited;
      clearTimeout(late);
      this.tally.add(`${this.name}: ${name} ${this.#isKilled ? 'killed' : status === 0 ? 'done' : 'failed'}`);
      await sleep(50);
    }
  }

  async kill(): Promise<void> {
    this.#isKilled = true;
    await this.#running?.kill();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#work;
    const qps = (await this.guest.run('rdma resource show qp')).split('\n').filter((line) => line.includes('pid'));
    if (qps.length > 0) this.tally.add(`FAILED: ${this.name} has queue pairs left: ${qps.join('; ')}`);
  }
}
