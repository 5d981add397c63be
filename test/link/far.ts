/** Another network namespace at the far end of a veth pair. Both ends vanish with their processes. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { readlinkSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const PEER = fileURLToPath(new URL('farpeer.ts', import.meta.url));

export function sh(command: string): string {
  return execFileSync('sh', ['-ec', command], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

/** What `readlink /proc/<pid>/ns/net` says; it differs between network namespaces. */
const netOf = (pid: number | 'self') => readlinkSync(`/proc/${pid}/ns/net`);

export class Far {
  readonly #holder: ChildProcess;
  readonly #peers: ChildProcess[] = [];

  private constructor(
    holder: ChildProcess,
    readonly near: string,
    readonly far: string,
  ) {
    this.#holder = holder;
  }

  /** Interface `<name>a` here has 10.<net>.0.1 and fd00:<net>::1, `<name>b` there has ...2. */
  static async open(name: string, net: number): Promise<Far> {
    const [near, far] = [`${name}a`, `${name}b`];
    // cat ends with its input, and that with this process.
    const holder = spawn('unshare', ['--net', 'cat'], { stdio: ['pipe', 'ignore', 'inherit'] });
    while (netOf(holder.pid as number) === netOf('self')) await new Promise((resolve) => setTimeout(resolve, 5));
    const it = new Far(holder, near, far);
    const up = (dev: string, n: number) =>
      `echo 0 > /proc/sys/net/ipv6/conf/${dev}/accept_dad; ip link set ${dev} up; ip link set lo up; ` +
      `ip addr add 10.${net}.0.${n}/24 dev ${dev}; ip addr add fd00:${net}::${n}/64 dev ${dev} nodad`;
    sh(`ip link add ${near} type veth peer name ${far}; ip link set ${far} netns ${holder.pid}; ${up(near, 1)}`);
    it.sh(up(far, 2));
    return it;
  }

  /** Runs a command at the far end. */
  sh(command: string): string {
    return execFileSync('nsenter', [...this.#enter, 'sh', '-ec', command], { encoding: 'utf8' });
  }

  /** Starts farpeer.ts there. @returns its lines, the first of which has come */
  async peer(...args: string[]): Promise<{ first: string; stop(): Promise<void> }> {
    const child = spawn('nsenter', [...this.#enter, process.execPath, '--import', 'tsx', PEER, ...args], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#peers.push(child);
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
    const first = await new Promise<string>((resolve) => {
      lines.once('line', resolve);
      lines.once('close', () => resolve(''));
    });
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    return {
      first,
      stop: async () => {
        child.stdin?.end();
        await ended;
      },
    };
  }

  close(): void {
    for (const peer of this.#peers) peer.stdin?.end();
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
