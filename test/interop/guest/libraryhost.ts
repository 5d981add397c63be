/**
 * The library for C programs in place of rxe: the agent and its commands run on this host, in a network namespace and a
 * process namespace of their own, with the library's variables in their environment.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { programPrivilege } from '../../kit/privileges.js';
import { built } from '../../programs/ends.js';
import { ROOT } from '../../repo/sources.js';
import { Guest, type GuestOptions, PORT_FD } from './guest.js';

const HERE = import.meta.dirname;
const BOOT_MS = 10_000;

/** Returns the first reason why the library cannot run here, for the name of a skipped test; undefined when it can. */
export function libraryUnavailable(): string | undefined {
  const missing = [built, ...['gcc', 'unshare', 'setpriv'].map(programPrivilege)].find(({ ok }) => !ok);
  return missing?.reason;
}

export interface LibraryHostOptions extends Pick<GuestOptions, 'mtu' | 'addresses'> {
  /** Puts the interface eth0 into the network namespace of a process. */
  readonly plug: (pid: number) => void;
}

/** See the head of this file. */
export class LibraryHost extends Guest {
  readonly #folder: string;

  /** Starts the agent, and sets up eth0. @throws Error with what the compiler says */
  static async open(options: LibraryHostOptions): Promise<LibraryHost> {
    const host = new LibraryHost(compile());
    try {
      await host.booted(BOOT_MS);
      options.plug(host.machine.pid as number);
      await host.setUpNetwork(options);
      return host;
    } catch (error) {
      await host.stop();
      throw error;
    }
  }

  private constructor(folder: string) {
    const environment = variables();
    super([
      ...['unshare', '--net', '--pid', '--fork', '--kill-child', '--mount-proc'],
      ...['env', `PATH=${folder}:${process.env.PATH}`, 'LC_ALL=C', ...environment],
      ...[join(folder, 'agent'), 'port', `${PORT_FD}`],
    ]);
    this.#folder = folder;
  }

  override async renew(options: Pick<GuestOptions, 'mtu' | 'addresses'>): Promise<void> {
    await this.killCommands(new Set());
    await this.cleanUp('ip link set eth0 down && ip address flush dev eth0');
    await this.setUpNetwork(options);
  }

  override async stop(): Promise<void> {
    await super.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  protected override async setUpNetwork({ mtu = 1500, addresses = [] }: GuestOptions): Promise<void> {
    const steps = [
      'ip link set lo up',
      'echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad',
      `ip link set eth0 mtu ${mtu}`,
      ...addresses.map((address) => `ip address add ${address} dev eth0`),
      'ip link set eth0 up',
    ];
    await this.run(steps.join(' && '));
  }
}

/** Compiles the agent and rxpeer. @returns their folder */
function compile(): string {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-library-'));
  const peer = readdirSync(join(HERE, 'peer')).filter((file) => file.endsWith('.c'));
  execFileSync('gcc', ['-O2', '-o', join(folder, 'agent'), join(HERE, 'agent.c')]);
  const files = peer.map((file) => join(HERE, 'peer', file));
  execFileSync('gcc', ['-O2', '-o', join(folder, 'rxpeer'), ...files, '-libverbs']);
  return folder;
}

/** Returns the variables of the library, as words NAME=value. */
function variables(): string[] {
  const words = [join(ROOT, 'dist/cli/main.js'), 'run', '--interface', 'eth0', '--print-env'];
  return execFileSync(process.execPath, words, { encoding: 'utf8' }).trim().split('\n');
}
