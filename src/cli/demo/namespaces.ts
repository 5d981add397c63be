/**
 * Network namespaces without names: each belongs to the process that runs in it and is gone with it, the veth pair too,
 * however the process ends. Root makes them directly, others inside a user namespace of their own.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The options of `unshare` that work here, or why none do. */
export type Isolation =
  | { readonly flags: readonly string[]; readonly reason?: undefined }
  | { readonly flags?: undefined; readonly reason: string };

export function isolation(): Isolation {
  for (const program of ['unshare', 'ip']) if (!isOnPath(program)) return { reason: `${program} is not installed` };
  const flags = process.getuid?.() === 0 ? ['--net'] : ['--user', '--map-root-user', '--net'];
  const { status, stderr } = spawnSync('unshare', [...flags, 'ip', 'link', 'set', 'lo', 'up'], { encoding: 'utf8' });
  if (status === 0) return { flags };
  return { reason: `unshare ${flags.join(' ')} is not permitted here (${stderr.trim().split('\n')[0]})` };
}

/** Extension of this very file: the demo also runs from its source. */
const CARD = fileURLToPath(new URL(`card${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url));

/** Starts the program of a card in a new namespace; it ends when this process does. */
export function startCard(flags: readonly string[], role: 'a' | 'b'): ChildProcess {
  // The card ends by itself when its channel to us breaks; the kernel's signal also reaches one that hangs.
  const leash = isOnPath('setpriv') ? ['setpriv', '--pdeathsig', 'KILL'] : [];
  const node = [process.execPath, ...process.execArgv, CARD, role];
  const child = spawn('unshare', [...flags, ...leash, ...node], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  process.once('exit', () => child.kill('SIGKILL'));
  return child;
}

/** The interface of a card in its own namespace, and its address. */
export const INTERFACE = 'roce0';
const ADDRESSES = { a: '10.0.0.1/24', b: '10.0.0.2/24' } as const;
/** Enough for a path MTU of 4096. */
const MTU = 4200;

/** Lays the cable from this namespace to that of another process. @throws Error with what `ip` says */
export function layCable(pid: number): void {
  const end = ['mtu', String(MTU)];
  ip('link', 'add', INTERFACE, ...end, 'type', 'veth', 'peer', 'name', INTERFACE, ...end, 'netns', String(pid));
}

export function configure(role: 'a' | 'b'): void {
  // An IPv6 address would be unusable for its first second; without IPv6 there is nothing to switch off.
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
