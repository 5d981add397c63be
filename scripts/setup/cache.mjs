// The folder of what all clones of a user share: guest images, other versions of Node, and what the setup has built.
import { readdirSync, rmSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** Versions of one thing that the cache keeps. The one that was used least recently goes first. */
const KEPT = 4;

/** Returns the folder's path. The folder may not exist. */
export function cacheFolder() {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'wasm-roce');
}

/** Removes the entries of a folder that were used least recently. */
export function evict(folder) {
  const entries = readdirSync(folder).map((name) => join(folder, name));
  const used = entries.map((path) => ({ path, ms: statSync(path).mtimeMs })).sort((a, b) => b.ms - a.ms);
  for (const { path } of used.slice(KEPT)) rmSync(path, { recursive: true, force: true });
}
