/**
 * The contents of the guests, and the locations of their images. The name of an image has the hash of everything it is
 * made of, so a changed recipe gives another image, and an existing image never changes.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cacheFolder } from '../../../scripts/setup/cache.mjs';

export const FOLDER = fileURLToPath(new URL('.', import.meta.url));

export interface Recipe {
  /** Debian suite of the guest. */
  readonly suite: string;
  /** Kernel release. Without it, or if the archive no longer has it: the newest one of the suite. */
  readonly kernel?: string;
  readonly packages: readonly string[];
  /** Programs of an older suite, in /opt/<suite>, which use the libraries of the newer suite. */
  readonly older?: { readonly suite: string; readonly packages: readonly string[] };
  /** Kernel modules, loaded at boot in this order, each after its dependencies. */
  readonly modules: readonly string[];
  /** Packages that the tests of NVMe add to a guest that runs (storage.ts). */
  readonly storage?: StorageRecipe;
}

export interface StorageRecipe {
  readonly packages: readonly string[];
  /** Paths in the packages. The libraries that they need come with them. */
  readonly files: readonly string[];
  readonly modules: readonly string[];
}

const { suites, ...common } = JSON.parse(readFileSync(join(FOLDER, 'packages.json'), 'utf8')).guest as Recipe & {
  readonly suites: Readonly<Record<string, Partial<Recipe>>>;
};

/**
 * Returns the Debian suite of the guest: WASM_ROCE_GUEST, by default the newest stable one.
 * @throws Error when there is no recipe for it
 */
export function guestSuite(): string {
  const suite = process.env.WASM_ROCE_GUEST || 'trixie';
  if (suite in suites) return suite;
  throw new Error(`WASM_ROCE_GUEST is ${suite}, must be ${Object.keys(suites).join(', ')}`);
}

/** Returns the recipe of the guest that WASM_ROCE_GUEST names. */
export function recipe(): Recipe {
  const suite = guestSuite();
  const own = suites[suite];
  // modules of the suite first: some only register an algorithm, which others then find
  return { ...common, ...own, suite, modules: [...(own?.modules ?? []), ...common.modules] };
}

export interface GuestImage {
  readonly folder: string;
  /** Uncompressed ELF kernel, entered through PVH. */
  readonly kernel: string;
  readonly initrd: string;
}

/** The sources on which an image depends, besides those of its programs. */
const BUILDERS: readonly string[] = ['image.ts', 'modules.ts', 'storage.ts'];

/** The folder of this recipe's image, which may not exist. */
export function imageFolder(): string {
  const hash = createHash('sha256').update(JSON.stringify(recipe()));
  for (const name of (readdirSync(FOLDER, { recursive: true }) as string[]).sort()) {
    if (BUILDERS.includes(name) || /\.[ch]$/.test(name)) {
      hash.update(`\0${name}\0`).update(readFileSync(join(FOLDER, name)));
    }
  }
  return join(cacheFolder(), `guest-${guestSuite()}-${hash.digest('hex').slice(0, 16)}`);
}

/** Returns the image of this recipe if it exists; `image.ts` builds it. */
export function findGuestImage(): GuestImage | undefined {
  const folder = imageFolder();
  return existsSync(folder) ? { folder, kernel: join(folder, 'vmlinux'), initrd: join(folder, 'initrd') } : undefined;
}
