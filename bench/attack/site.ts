/**
 * Three hosts of one network: a target, an honest client and an attacker, each in a network namespace of its own. The
 * namespaces have no names: each exists as long as a child process holds it.
 */
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { startChild } from '../rig/child.js';
import { cpusOf } from '../rig/cpus.js';
import { ROOT } from '../rig/paths.js';
import { lineLike, type Program } from '../rig/program.js';
import { WorkerProcess } from '../rig/worker.js';

/** The processes of a row. */
export type HostName = 'target' | 'honest' | 'attacker';

/** A host's end of the network. */
export interface Host {
  readonly interface: string;
  readonly address: string;
  readonly mac: string;
}

/** IPv4 or IPv6. */
export type Family = 4 | 6;
const FAMILIES: readonly Family[] = [4, 6];

/** The hosts with their numbers in the networks 10.98.0.0/24 and fd00:98::/64. */
const NUMBERS: Readonly<Record<HostName, number>> = { target: 1, honest: 2, attacker: 66 };
const HOST_NAMES = Object.keys(NUMBERS) as HostName[];

/** Network part of the addresses, up to the host's number in decimal, and its length. */
const NETWORKS: Readonly<Record<Family, { readonly prefix: string; readonly bits: number }>> = {
  4: { prefix: '10.98.0.', bits: 24 },
  6: { prefix: 'fd00:98::', bits: 64 },
};

/** Returns the address of the target's network with this number. @param number 1 to 254 */
export function addressIn(family: Family, number: number): string {
  return `${NETWORKS[family].prefix}${number}`;
}

/** Returns the hosts, each with its address of a family. */
export function hostsOf(family: Family): Readonly<Record<HostName, Host>> {
  const host = (name: HostName) => {
    const number = NUMBERS[name];
    const mac = `02:00:00:00:98:${String(number).padStart(2, '0')}`;
    return { interface: 'roce0', address: addressIn(family, number), mac };
  };
  return Object.fromEntries(HOST_NAMES.map((name) => [name, host(name)])) as Record<HostName, Host>;
}

/** An interface of the attacker whose frames go nowhere: sending there costs it the same, and the target nothing. */
export const NOWHERE = 'nowhere0';

/** By its path: the programs of the hosts run in another folder. */
const TSX = createRequire(import.meta.url).resolve('tsx');

const BRIDGE = 'attack0';

const HOLD = 'mount -t sysfs none /sys; ip link set lo up && echo held && exec cat';

type Holder = Program & { readonly pid: number };

export class Site implements AsyncDisposable {
  readonly #cpus = cpusOf();

  static async open(): Promise<Site> {
    const [target, honest, attacker] = await Promise.all([hold(), hold(), hold()]);
    const site = new Site({ target, honest, attacker } as Record<HostName, Holder>);
    site.#connect();
    return site;
  }

  private constructor(readonly holders: Readonly<Record<HostName, Holder>>) {}

  /**
   * Starts the program of a host; the target has CPUs of its own where there are two.
   * @param isThreaded the program has two busy threads: it may use the others' CPUs, too, if it has only one
   * @param on the host that it runs on. Default: its own
   */
  start(host: HostName, isThreaded = false, on = host): WorkerProcess {
    const { a, b } = this.#cpus;
    const own = host === 'target' ? a : b;
    const cpus = isThreaded && !own.includes(',') ? `${a},${b}` : own;
    const command = [process.execPath, '--expose-gc', '--import', TSX, `${ROOT}/bench/attack/end.ts`, host];
    return new WorkerProcess(startChild(['taskset', '-c', cpus, ...this.#enter(on)], command));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const host of HOST_NAMES) run('ip', 'link', 'del', `to-${host}`);
    for (const holder of Object.values(this.holders)) holder.kill();
    await Promise.all(Object.values(this.holders).map(({ exited }) => exited));
    run('ip', 'link', 'del', BRIDGE);
  }

  /** A bridge in this process's namespace, and a veth pair from it to each host. */
  #connect(): void {
    run('ip', 'link', 'add', BRIDGE, 'type', 'bridge', 'forward_delay', '0', 'mcast_snooping', '0');
    run('ip', 'link', 'set', BRIDGE, 'up');
    for (const host of HOST_NAMES) {
      const { interface: name, mac } = hostsOf(4)[host];
      const peer = `peer name ${name} address ${mac} netns ${this.holders[host].pid}`;
      run('ip', ...`link add to-${host} type veth ${peer}`.split(' '));
      run('ip', ...`link set to-${host} master ${BRIDGE} up`.split(' '));
      this.#ip(host, `link set ${name} addrgenmode none`);
      for (const family of FAMILIES) {
        const address = `${addressIn(family, NUMBERS[host])}/${NETWORKS[family].bits}`;
        this.#ip(host, `-${family} addr add ${address} dev ${name}${family === 6 ? ' nodad' : ''}`);
      }
      this.#ip(host, `link set ${name} up`);
    }
    this.#ip('attacker', `link add ${NOWHERE} type veth peer name nowhere1`);
    this.#ip('attacker', `addr add 10.97.0.1/24 dev ${NOWHERE}`);
    for (const name of [NOWHERE, 'nowhere1']) this.#ip('attacker', `link set ${name} addrgenmode none up`);
    // a router, so that the target has a route to sources that are not in its network
    for (const family of FAMILIES)
      this.#ip('target', `-${family} route add default via ${hostsOf(family).honest.address}`);
  }

  #enter(host: HostName): string[] {
    return ['nsenter', '--net', '--mount', '--target', String(this.holders[host].pid), '--'];
  }

  #ip(host: HostName, words: string): void {
    run(...this.#enter(host), 'ip', ...words.split(' '));
  }
}

function run(...[file, ...args]: string[]): void {
  execFileSync(file as string, args, { stdio: ['ignore', 'ignore', 'pipe'] });
}

async function hold(): Promise<Holder> {
  const program = startChild([], ['unshare', '--net', '--mount', 'sh', '-c', HOLD]);
  await lineLike(program, /^held$/);
  return Object.assign(program, { pid: (program as unknown as { child: { pid: number } }).child.pid });
}
