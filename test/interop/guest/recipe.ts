/**
 * What the guest is made of, and where its image lies. An image is named by the hash of everything that goes into it,
 * so a changed recipe is another image, and an image is never changed once it is there.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const FOLDER = fileURLToPath(new URL('.', import.meta.url));

export interface Recipe {
  /** Debian suite of the guest. */
  readonly suite: string;
  /** Kernel release; the newest of the suite where the archive no longer has it. */
  readonly kernel: string;
  readonly packages: readonly string[];
  /** Of an older suite only the programs, in /opt/<suite>, with the libraries of the newer one. */
  readonly older: { readonly suite: string; readonly packages: readonly string[] };
  /** Loaded at boot in this order, each after what it depends on. */
  readonly modules: readonly string[];
}

export const RECIPE: Recipe = JSON.parse(readFileSync(join(FOLDER, 'packages.json'), 'utf8')).guest;

export interface GuestImage {
  readonly folder: string;
  /** Uncompressed ELF kernel, entered through PVH. */
  readonly kernel: string;
  readonly initrd: string;
}

/** Where images are kept: outside the repository, shared by all clones. */
export function imageCache(): string {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'wasm-roce');
}

/** The folder of this recipe's image, there or not. */
export function imageFolder(): string {
  const hash = createHash('sha256');
  for (const name of (readdirSync(FOLDER, { recursive: true }) as string[]).sort()) {
    if (name === 'packages.json' || name === 'image.ts' || /\.[ch]$/.test(name)) {
      hash.update(`${name}\0`).update(readFileSync(join(FOLDER, name)));
    }
  }
  return join(imageCache(), `guest-${hash.digest('hex').slice(0, 16)}`);
}

/** The image of this recipe if it has been built; `image.ts` builds it. */
export function findGuestImage(): GuestImage | undefined {
  const folder = imageFolder();
  return existsSync(folder) ? { folder, kernel: join(folder, 'vmlinux'), initrd: join(folder, 'initrd') } : undefined;
}
