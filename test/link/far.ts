/** Another network namespace at the far end of a veth pair. Both ends vanish with their processes. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readlinkSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const PEER = fileURLToPath(new URL('farpeer.ts', import.meta.url));
const PARTY = fileURLToPath(new URL('farparty.ts', import.meta.url));

export function sh(command: string): string {
  return execFileSync('sh', ['-ec', command], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

/** Brings an interface up, as number `n` of 10.<net>.0.0/24 and fd00:<net>::/64. */
const upCommand = (dev: string, net: number, n: number, mtu: number) =>
  `echo 0 > /proc/sys/net/ipv6/conf/${dev}/accept_dad; ip link set ${dev} mtu ${mtu} up; ` +
  `ip addr add 10.${net}.0.${n}/24 dev ${dev}; ip addr add fd00:${net}::${n}/64 dev ${dev} nodad`;

/** A veth pair of this namespace, its ends numbers 1 and 2 of `net`. */
export function vethPair([a, b]: readonly [string, string], net: number, mtu: number): void {
  sh(
    `ip link add ${a} mtu ${mtu} type veth peer name ${b}; ${upCommand(a, net, 1, mtu)}; ${upCommand(b, net, 2, mtu)}`,
  );
}

/** What `readlink /proc/<pid>/ns/net` says; it differs between network namespaces. */
const netOf = (pid: number | 'self') => readlinkSync(`/proc/${pid}/ns/net`);

/** A program that is talked with in lines. */
export class Program {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #ended: Promise<void>;

  constructor(command: string, args: string[]) {
    this.#child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    const output = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    this.#lines = output[Symbol.asyncIterator]();
    this.#ended = new Promise((resolve) => this.#child.once('exit', () => resolve()));
  }

  /** The next line that it says; empty when it says no more. */
  async line(): Promise<string> {
    const { value, done } = await this.#lines.next();
    return done ? '' : value;
  }

  /** What it answers to a line. */
  ask(line: string): Promise<string> {
    this.#child.stdin?.write(`${line}\n`);
    return this.line();
  }

  end(): void {
    this.#child.stdin?.end();
  }

  async stop(): Promise<void> {
    this.end();
    await this.#ended;
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#ended;
  }
}

export class Far {
  readonly #holder: ChildProcess;
  readonly #programs: Program[] = [];

  private constructor(
    holder: ChildProcess,
    readonly near: string,
    readonly far: string,
    readonly farAddresses: readonly [string, string],
  ) {
    this.#holder = holder;
  }

  /** Interface `<name>a` here has 10.<net>.0.1 and fd00:<net>::1, `<name>b` there has ...2. */
  static async open(name: string, net: number, mtu = 1500): Promise<Far> {
    const [near, far] = [`${name}a`, `${name}b`];
    // cat ends with its input, and that with this process.
    const holder = spawn('unshare', ['--net', 'cat'], { stdio: ['pipe', 'ignore', 'inherit'] });
    while (netOf(holder.pid as number) === netOf('self')) await new Promise((resolve) => setTimeout(resolve, 5));
    const it = new Far(holder, near, far, [`10.${net}.0.2`, `fd00:${net}::2`]);
    const up = (dev: string, n: number) => `ip link set lo up; ${upCommand(dev, net, n, mtu)}`;
    sh(`ip link add ${near} type veth peer name ${far}; ip link set ${far} netns ${holder.pid}; ${up(near, 1)}`);
    it.sh(up(far, 2));
    return it;
  }

  /** Runs a command at the far end. */
  sh(command: string): string {
    return execFileSync('nsenter', [...this.#enter, 'sh', '-ec', command], { encoding: 'utf8' });
  }

  /** Starts farpeer.ts there. @returns its first line */
  async peer(...args: string[]): Promise<{ first: string; stop(): Promise<void> }> {
    const program = this.start(PEER, args);
    return { first: await program.line(), stop: () => program.stop() };
  }

  /** Starts a program there that ends with its standard input. @param wrap a command that runs commands */
  start(path: string, args: string[], wrap: string[] = []): Program {
    const node = [process.execPath, '--import', 'tsx', path, ...args];
    const program = new Program('nsenter', [...this.#enter, ...wrap, ...node]);
    this.#programs.push(program);
    return program;
  }

  /** Starts farparty.ts there, which ends with its channel to us. */
  async party(link: string, mode: string): Promise<ChildProcess> {
    const program = [process.execPath, '--import', 'tsx', PARTY, link, this.far, mode];
    const stdio = ['ignore', 'inherit', 'inherit', 'ipc'] as const;
    const child = spawn('nsenter', [...this.#enter, ...program], { stdio: [...stdio] });
    await once(child, 'message');
    return child;
  }

  close(): void {
    for (const program of this.#programs) program.end();
    this.#holder.stdin?.end();
    try {
      sh(`ip link del ${this.near}`);
    } catch {
      // It is gone already.
    }
  }

  get #enter(): string[] {
    return [`--net=/proc/${this.#holder.pid}/ns/net`];
  }
}
