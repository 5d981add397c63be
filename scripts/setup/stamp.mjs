// Tells whether outputs must be made again, by the content of their input files and not by their dates.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ROOT } from './run.mjs';

function files(path) {
  const full = join(ROOT, path);
  if (!existsSync(full)) return [];
  if (!statSync(full).isDirectory()) return [path];
  return readdirSync(full)
    .sort()
    .flatMap((name) => files(join(path, name)));
}

export class Stamp {
  #file;

  /** @param inputs files and folders @param outputs files that must exist. All are relative to the project's folder. */
  constructor(name, { inputs, outputs }) {
    this.#file = join(ROOT, 'build', 'stamps', name);
    this.inputs = inputs;
    this.outputs = outputs;
  }

  #hash() {
    const hash = createHash('sha256').update(`${process.platform} ${process.arch}`);
    for (const path of this.inputs.flatMap(files)) hash.update(`\0${path}\0`).update(readFileSync(join(ROOT, path)));
    return hash.digest('hex');
  }

  /** Returns whether all outputs exist and were made from the inputs as they are now. */
  isFresh() {
    if (!this.outputs.every((path) => existsSync(join(ROOT, path)))) return false;
    return existsSync(this.#file) && readFileSync(this.#file, 'utf8') === this.#hash();
  }

  /** Makes the outputs, and stores the hash of the inputs from before: an input may change in the meantime. */
  async make(how) {
    const hash = this.#hash();
    await how();
    const missing = this.outputs.filter((path) => !existsSync(join(ROOT, path)));
    if (missing.length > 0) throw new Error(`${missing.join(', ')} was not created`);
    mkdirSync(dirname(this.#file), { recursive: true });
    writeFileSync(this.#file, hash);
  }
}
