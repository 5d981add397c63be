/**
 * Unnamed network namespaces. Each exists as long as the process that runs in it, however that process ends, and its
 * veth interface goes with it. Root creates them directly, other users inside a user namespace.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { packageFile } from '../../packagefile.js';

/** The options of `unshare` that work here, or the reason why none do. */
export type Isolation =
  | { readonly flags: readonly string[]; readonly reason?: undefined }
  | { readonly flags?: undefined; readonly reason: string };

export function findIsolation(): Isolation {
  for (const program of ['unshare', 'ip']) if (!isOnPath(program)) return { reason: `${program} is not installed` };
  const flags = process.getuid?.() === 0 ? ['--net'] : ['--user', '--map-root-user', '--net'];
  const { status, stderr } = spawnSync('unshare', [...flags, 'ip', 'link', 'set', 'lo', 'up'], { encoding: 'utf8' });
  if (status === 0) return { flags };
  return { reason: `unshare ${flags.join(' ')} is not permitted here (${stderr.trim().split('\n')[0]})` };
}

/** The program of a card: the built one, or its source if the demo runs from its source. */
const CARD = packageFile(import.meta.url.endsWith('.ts') ? 'src/cli/demo/card.ts' : 'dist/democard.js');

/** Starts the program of a card in a new namespace. It ends when this process ends. */
export function startCard(flags: readonly string[], role: 'a' | 'b'): ChildProcess {
  // The card exits when its channel to us breaks. The kernel's signal also ends one that hangs.
  const deathSignal = isOnPath('setpriv') ? ['setpriv', '--pdeathsig', 'KILL'] : [];
  const node = [process.execPath, ...process.execArgv, CARD, role];
  const child = spawn('unshare', [...flags, ...deathSignal, ...node], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  process.once('exit', () => child.kill('SIGKILL'));
  return child;
}

/** The interface of a card in its namespace. */
export const INTERFACE = 'roce0';
const ADDRESSES = { a: '10.0.0.1/24', b: '10.0.0.2/24' } as const;
/** Enough for a path MTU of 4096. */
const MTU = 4200;

/** Creates a veth pair from this namespace to that of another process. @throws Error with the message of `ip` */
export function createVethPair(pid: number): void {
  const end = ['mtu', String(MTU)];
  ip('link', 'add', INTERFACE, ...end, 'type', 'veth', 'peer', 'name', INTERFACE, ...end, 'netns', String(pid));
}

/** Sets the address of a card's interface, and brings it up. */
export function configure(role: 'a' | 'b'): void {
  // An IPv6 address would be unusable for its first second. The command fails without IPv6, which does not matter.
  spawnSync('ip', ['link', 'set', INTERFACE, 'addrgenmode', 'none']);
  ip('addr', 'add', ADDRESSES[role], 'dev', INTERFACE);
  ip('link', 'set', INTERFACE, 'up');
}

function ip(...words: string[]): void {
  const { status, stderr } = spawnSync('ip', words, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`ip ${words.join(' ')}: ${stderr.trim()}`);
}

function isOnPath(name: string): boolean {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, name), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
