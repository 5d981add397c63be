// Tells whether outputs must be made again, by the content of their input files and not by their dates. A cache of the
// user keeps them for other clones.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { cacheFolder, evict } from './cache.mjs';
import { ROOT } from './run.mjs';

/** A folder for each stamp, with a folder for each content of its inputs. */
const CACHE = join(cacheFolder(), 'built');

function files(path) {
  const full = join(ROOT, path);
  if (!existsSync(full)) return [];
  if (!statSync(full).isDirectory()) return [path];
  return readdirSync(full)
    .sort()
    .flatMap((name) => files(join(path, name)));
}

/** Copies files and folders from one folder to the same places in another, with links and modes. */
function copy(paths, from, to) {
  for (const path of paths) {
    mkdirSync(dirname(join(to, path)), { recursive: true });
    rmSync(join(to, path), { recursive: true, force: true });
    cpSync(join(from, path), join(to, path), { recursive: true, verbatimSymlinks: true });
  }
}

export class Stamp {
  #name;
  #file;

  /**
   * @param inputs files and folders
   * @param tools programs outside of the project that make the outputs. The cache keeps what each of their versions
   *   makes. An output stays fresh without them.
   * @param outputs files that must exist
   * @param cached files and folders to keep for other clones, by default the outputs; none = they are always made
   * Files are relative to the project's folder.
   */
  constructor(name, { inputs, tools = [], outputs, cached = outputs }) {
    this.#name = name;
    this.#file = join(ROOT, 'build', 'stamps', name);
    this.inputs = inputs;
    this.tools = tools;
    this.outputs = outputs;
    this.cached = cached;
  }

  #hash() {
    const hash = createHash('sha256').update(`${process.platform} ${process.arch}`);
    for (const path of this.inputs.flatMap(files)) hash.update(`\0${path}\0`).update(readFileSync(join(ROOT, path)));
    return hash.digest('hex');
  }

  /** Returns the folder of the cache for outputs that these tools make of inputs with this hash. */
  #place(inputs) {
    const hash = createHash('sha256').update(inputs);
    for (const tool of this.tools) hash.update(`\0${spawnSync(tool, ['--version']).stdout ?? ''}`);
    return join(CACHE, this.#name, hash.digest('hex').slice(0, 32));
  }

  /** Returns whether all outputs exist and were made from the inputs as they are now. */
  isFresh() {
    if (!this.outputs.every((path) => existsSync(join(ROOT, path)))) return false;
    return existsSync(this.#file) && readFileSync(this.#file, 'utf8') === this.#hash();
  }

  /**
   * Makes the outputs, or takes them from the cache. Stores the hash of the inputs from before: an input may change in
   * the meantime.
   */
  async make(how) {
    const hash = this.#hash();
    const kept = this.cached.length > 0 ? this.#place(hash) : undefined;
    if (kept && existsSync(kept)) {
      copy(this.cached, kept, ROOT);
      const now = new Date();
      utimesSync(kept, now, now);
    } else await how();
    const missing = this.outputs.filter((path) => !existsSync(join(ROOT, path)));
    if (missing.length > 0) throw new Error(`${missing.join(', ')} was not created`);
    if (kept && !existsSync(kept)) this.#keep(kept);
    mkdirSync(dirname(this.#file), { recursive: true });
    writeFileSync(this.#file, hash);
  }

  /** Puts the outputs into the cache. Without room or permission, the next clone makes them itself. */
  #keep(kept) {
    try {
      mkdirSync(dirname(kept), { recursive: true });
      const draft = mkdtempSync(join(CACHE, 'draft-'));
      try {
        copy(this.cached, ROOT, draft);
        renameSync(draft, kept);
      } finally {
        rmSync(draft, { recursive: true, force: true });
      }
      evict(dirname(kept));
    } catch (cause) {
      console.error(`setup: ${kept} is not kept for other clones: ${cause.message}`);
    }
  }
}
