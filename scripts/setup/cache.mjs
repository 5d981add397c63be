// The folder of what all clones of a user share: guest images, and what the setup has built.
import { homedir } from 'node:os';
import { join } from 'node:path';

/** Returns the folder's path. The folder may not exist. */
export function cacheFolder() {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'wasm-roce');
}
