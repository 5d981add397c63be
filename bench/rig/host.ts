/**
 * Two network namespaces of this machine and a veth pair between them. The namespaces have no names: each exists as
 * long as a child process holds it. They and the veth pair vanish when this process ends, however it ends.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { startChild } from './child.js';
import { cpusOf } from './cpus.js';
import { PROGRAMS, ROOT } from './paths.js';
import { busySeconds, type EndInfo, type EndName, lineLike, type Program, type Rig } from './program.js';

const ENDS: Readonly<Record<EndName, EndInfo>> = {
  a: { interface: 'roce0', address: '10.99.0.1', mac: '02:00:00:00:00:0a' },
  b: { interface: 'roce0', address: '10.99.0.2', mac: '02:00:00:00:00:0b' },
};

/** The mount makes /sys show the namespace's interfaces. `cat` ends with its input, which this process holds open. */
const HOLD = 'mount -t sysfs none /sys; ip link set lo up && echo held && exec cat';

/** Time that a server may take to listen (ms). */
const LISTEN_MS = 10_000;

/** Returns why namespaces cannot be made here; undefined when they can. */
export function hostUnavailable(): string | undefined {
  const net = process.env.WASM_ROCE_NET ?? '';
  if (net.startsWith('none:')) return net.slice('none:'.length);
  const { status, stderr } = spawnSync('unshare', ['--net', '--mount', 'ip', 'link', 'set', 'lo', 'up'], {
    encoding: 'utf8',
  });
  return status === 0 ? undefined : `network namespaces need root (${(stderr ?? '').trim().split('\n')[0]})`;
}

export class HostRig implements Rig {
  readonly a = ENDS.a;
  readonly b = ENDS.b;
  readonly programs = PROGRAMS;
  readonly node = process.execPath;
  readonly command = `${ROOT}/dist/cli/main.js`;
  readonly #holders: Readonly<Record<EndName, Program & { pid: number }>>;
  readonly #cpus = cpusOf();
  #mtu = 0;
  readonly #files: string[] = [];

  static async open(): Promise<HostRig> {
    const [a, b] = await Promise.all([hold(), hold()]);
    const rig = new HostRig({ a, b });
    rig.#layCable();
    return rig;
  }

  private constructor(holders: Readonly<Record<EndName, Program & { pid: number }>>) {
    this.#holders = holders;
  }

  get description(): string {
    const { a, b, isShared } = this.#cpus;
    return `two network namespaces and a veth pair, one end on CPU ${a}, the other on CPU ${b}${isShared ? ' (the only one)' : ''}`;
  }

  sharedFile(): string {
    const path = `/dev/shm/wasm-roce-bench-${process.pid}-${this.#files.length}`;
    this.#files.push(path);
    return path;
  }

  async setMtu(mtu: number): Promise<void> {
    if (mtu === this.#mtu) return;
    for (const end of ['a', 'b'] as const) this.#ip(end, `link set ${ENDS[end].interface} mtu ${mtu}`);
    this.#mtu = mtu;
  }

  /**
   * Sets whether the kernel handles what an end receives on a CPU of that end (RPS), as it does after an adapter's
   * interrupt. Otherwise that is the work of the CPU that sends, because a veth pair has no interrupts. Frames for an
   * AF_XDP socket are not affected.
   */
  steer(isOn: boolean): void {
    for (const end of ['a', 'b'] as const) {
      const [cpu] = this.#cpus[end].split(',');
      const mask = isOn ? maskOf(Number(cpu)) : '0';
      const file = `/sys/class/net/${ENDS[end].interface}/queues/rx-0/rps_cpus`;
      this.#run(end, ['sh', '-c', `echo ${mask} > ${file}`]);
    }
  }

  spawn(end: EndName, command: readonly string[]): Program {
    return startChild(['taskset', '-c', this.#cpus[end], ...this.#enter(end)], command);
  }

  async listening(end: EndName, port: number): Promise<void> {
    const state = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, '0')} [0-9A-F]+:0000 0A `);
    const until = performance.now() + LISTEN_MS;
    const tables = ['tcp', 'tcp6'].map((name) => `/proc/${this.#holders[end].pid}/net/${name}`);
    while (!tables.some((file) => state.test(readFileSync(file, 'utf8')))) {
      if (performance.now() > until) throw new Error(`nobody listens on port ${port} within ${LISTEN_MS} ms`);
      await sleep(20);
    }
  }

  async cpuSeconds(): Promise<number> {
    const [all = ''] = readFileSync('/proc/stat', 'utf8').split('\n', 1);
    return busySeconds(all);
  }

  async close(): Promise<void> {
    for (const path of this.#files) rmSync(path, { force: true });
    for (const holder of Object.values(this.#holders)) holder.kill();
    await Promise.all(Object.values(this.#holders).map(({ exited }) => exited));
  }

  #layCable(): void {
    const { a, b } = ENDS;
    const peer = `peer name ${b.interface} address ${b.mac} netns ${this.#holders.b.pid}`;
    this.#ip('a', `link add ${a.interface} address ${a.mac} type veth ${peer}`);
    for (const end of ['a', 'b'] as const) {
      const { interface: name, address } = ENDS[end];
      // An IPv6 address is unusable during its first second, and its multicast traffic would mix with the frames.
      this.#ip(end, `link set ${name} addrgenmode none`);
      this.#ip(end, `addr add ${address}/24 dev ${name}`);
      this.#ip(end, `link set ${name} up`);
    }
  }

  #enter(end: EndName): string[] {
    return ['nsenter', '--net', '--mount', '--target', String(this.#holders[end].pid), '--'];
  }

  #ip(end: EndName, words: string): void {
    this.#run(end, ['ip', ...words.split(' ')]);
  }

  #run(end: EndName, command: readonly string[]): void {
    const [file, ...args] = [...this.#enter(end), ...command];
    execFileSync(file as string, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  }
}

/** Returns a mask of one CPU in the format of sysfs: words of 32 bits, the highest first. */
function maskOf(cpu: number): string {
  const words = Array.from({ length: (cpu >> 5) + 1 }, (_, i) => (i === 0 ? (1 << (cpu & 31)) >>> 0 : 0));
  return words.map((word) => word.toString(16)).join(',');
}

async function hold(): Promise<Program & { pid: number }> {
  const program = startChild([], ['unshare', '--net', '--mount', 'sh', '-c', HOLD]);
  await lineLike(program, /^held$/);
  // setpriv and unshare exec the shell, and the shell execs cat: the process id stays the same.
  return Object.assign(program, { pid: (program as unknown as { child: { pid: number } }).child.pid });
}
