/** A veth pair to another network namespace, the peer's. The namespace ends with its processes. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readlinkSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const LINK_PEER = fileURLToPath(new URL('peerlink.ts', import.meta.url));
const DEMO_PEER = fileURLToPath(new URL('peerdemo.ts', import.meta.url));

export function sh(command: string): string {
  return execFileSync('sh', ['-ec', command], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

/**
 * Adds addresses with their prefix lengths to the loopback interface, and waits until they receive: the kernel inserts
 * the route of an IPv6 address in the background.
 */
export function addToLoopback(addresses: readonly string[]): void {
  for (const address of addresses) sh(`ip addr add ${address} dev lo ${address.includes(':') ? 'nodad' : ''}`);
  const missing = addresses.map((address) => `local ${address.split('/')[0]} dev lo`);
  const isThere = (line: string) =>
    `{ ip -4 route show table local; ip -6 route show table local; } | grep -q '^${line} '`;
  for (const line of missing) sh(`timeout 10 sh -c "until ${isThere(line)}; do sleep 0.01; done"`);
}

/** Removes addresses that `addToLoopback` has added. */
export function removeFromLoopback(addresses: readonly string[]): void {
  for (const address of addresses) sh(`ip addr del ${address} dev lo`);
}

/** Returns the command that brings an interface up as host `n` of 10.<net>.0.0/24 and fd00:<net>::/64. */
const upCommand = (dev: string, net: number, n: number, mtu: number) =>
  `echo 0 > /proc/sys/net/ipv6/conf/${dev}/accept_dad; ip link set ${dev} mtu ${mtu} up; ` +
  `ip addr add 10.${net}.0.${n}/24 dev ${dev}; ip addr add fd00:${net}::${n}/64 dev ${dev} nodad`;

/** Creates a veth pair in this namespace. Its ends are hosts 1 and 2 of `net`. */
export function vethPair([a, b]: readonly [string, string], net: number, mtu: number): void {
  sh(
    `ip link add ${a} mtu ${mtu} type veth peer name ${b}; ${upCommand(a, net, 1, mtu)}; ${upCommand(b, net, 2, mtu)}`,
  );
}

/** Returns the network namespace of a process as text. */
const netOf = (pid: number | 'self') => readlinkSync(`/proc/${pid}/ns/net`);

/** A child process that reads and writes lines. */
export class ChildProgram {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #ended: Promise<void>;

  constructor(command: string, args: string[]) {
    this.#child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    const output = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    this.#lines = output[Symbol.asyncIterator]();
    this.#ended = new Promise((resolve) => this.#child.once('exit', () => resolve()));
  }

  /** Returns the next line of output; empty at the end of the output. */
  async line(): Promise<string> {
    const { value, done } = await this.#lines.next();
    return done ? '' : value;
  }

  /** Writes a line and returns the next line of output. */
  request(line: string): Promise<string> {
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

export class PeerNamespace {
  readonly #holder: ChildProcess;
  readonly #programs: ChildProgram[] = [];

  private constructor(
    holder: ChildProcess,
    readonly near: string,
    readonly far: string,
    readonly farAddresses: readonly [string, string],
  ) {
    this.#holder = holder;
  }

  /**
   * Interface `<name>a` here has 10.<net>.0.1 and fd00:<net>::1, `<name>b` in the peer's namespace has 10.<net>.0.2 ...
   */
  static async open(name: string, net: number, mtu = 1500): Promise<PeerNamespace> {
    const [near, far] = [`${name}a`, `${name}b`];
    // cat ends when its input ends, which is when this process ends.
    const holder = spawn('unshare', ['--net', 'cat'], { stdio: ['pipe', 'ignore', 'inherit'] });
    while (netOf(holder.pid as number) === netOf('self')) await new Promise((resolve) => setTimeout(resolve, 5));
    const it = new PeerNamespace(holder, near, far, [`10.${net}.0.2`, `fd00:${net}::2`]);
    it.sh('ip link set lo up');
    it.connect(near, far, net, mtu);
    return it;
  }

  /** Adds another pair of interfaces, with the addresses of `net`. */
  connect(near: string, far: string, net: number, mtu = 1500): void {
    sh(
      `ip link add ${near} type veth peer name ${far}; ip link set ${far} netns ${this.#holder.pid}; ` +
        upCommand(near, net, 1, mtu),
    );
    this.sh(upCommand(far, net, 2, mtu));
  }

  /** Runs a command in the peer's namespace. */
  sh(command: string): string {
    return execFileSync('nsenter', [...this.enter, 'sh', '-ec', command], { encoding: 'utf8' });
  }

  /** Starts peerlink.ts in the peer's namespace. @returns its first line of output */
  async linkPeer(...args: string[]): Promise<{ first: string; stop(): Promise<void> }> {
    const program = this.start(LINK_PEER, args);
    return { first: await program.line(), stop: () => program.stop() };
  }

  /**
   * Starts a program in the peer's namespace. It must end with its standard input.
   * @param wrap a command that runs it
   */
  start(path: string, args: string[], wrap: string[] = []): ChildProgram {
    const node = [process.execPath, '--import', 'tsx', path, ...args];
    const program = new ChildProgram('nsenter', [...this.enter, ...wrap, ...node]);
    this.#programs.push(program);
    return program;
  }

  /** Starts peerdemo.ts in the peer's namespace. It ends with its IPC channel to this process. */
  async demoPeer(link: string, mode: string): Promise<ChildProcess> {
    const program = [process.execPath, '--import', 'tsx', DEMO_PEER, link, this.far, mode];
    const stdio = ['ignore', 'inherit', 'inherit', 'ipc'] as const;
    const child = spawn('nsenter', [...this.enter, ...program], { stdio: [...stdio] });
    await once(child, 'message');
    return child;
  }

  close(): void {
    for (const program of this.#programs) program.end();
    this.#holder.stdin?.end();
    try {
      sh(`ip link del ${this.near}`);
    } catch {
      // The interface no longer exists.
    }
  }

  /** Options of nsenter for the namespace. */
  get enter(): string[] {
    return [`--net=/proc/${this.#holder.pid}/ns/net`];
  }
}
