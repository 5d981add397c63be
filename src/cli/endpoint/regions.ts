/** Memory that peers reach: in the card, from a file at the start and back to it. */
import { open, readFile, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { AccessName, Mr, Pd, RemoteMemory } from '../../index.js';
import { failure } from '../exit.js';
import type { RegionConfig } from './config.js';
import type { Fields } from './log.js';

/** What a peer is told of a region, as JSON. */
export interface Offer extends RemoteMemory {
  readonly name: string;
  readonly access: readonly AccessName[];
}

/** @throws CliError when the file does not fit; the system's error when it cannot be read; VerbsError ENOMEM */
export async function openRegion(pd: Pd, name: string, config: RegionConfig): Promise<Region> {
  const content = await contentOf(config);
  const size = config.size ?? content.length;
  if (content.length > size)
    throw failure(`region ${name} has ${size} bytes, its file ${config.file} has ${content.length}`);
  if (size === 0) throw failure(`region ${name} has no bytes: its file ${config.file} is empty, and it has no size`);
  // what peers may write to, the card must be allowed to write
  const mr = await pd.regMr(size, { access: ['localWrite', ...config.access] });
  content.copy(mr.buffer);
  return new Region(name, config, mr);
}

export class Region {
  /** Use `openRegion`. */
  constructor(
    readonly name: string,
    readonly config: RegionConfig,
    readonly mr: Mr,
  ) {}

  /** For the log; without the key. */
  get about(): Fields {
    const { file, persist, access } = this.config;
    return { region: this.name, bytes: this.mr.length, access, ...(file !== undefined && { file, persist }) };
  }

  get offer(): Offer {
    return { name: this.name, ...this.mr.remote, access: this.config.access };
  }

  /**
   * Writes it to its file, if it persists: all of it, or the file stays as it was.
   * @returns whether there was something to write
   */
  async save(): Promise<boolean> {
    const { file, persist } = this.config;
    if (!persist || file === undefined) return false;
    // peers go on writing meanwhile
    const content = Buffer.from(this.mr.buffer);
    const draft = join(dirname(file), `.${basename(file)}.${process.pid}`);
    try {
      const { mode } = await stat(file).catch(() => ({ mode: 0o600 }));
      const handle = await open(draft, 'w', mode);
      try {
        await handle.writeFile(content);
        await handle.sync();
      } finally {
        await handle.close();
      }
      await rename(draft, file);
    } catch (error) {
      await rm(draft, { force: true });
      throw error;
    }
    return true;
  }

  close(): Promise<void> {
    return this.mr.close();
  }
}

/** A file that is to be written back need not be there yet. */
async function contentOf({ file, persist, size }: RegionConfig): Promise<Buffer> {
  if (file === undefined) return Buffer.alloc(0);
  try {
    return await readFile(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT' && persist && size !== undefined) return Buffer.alloc(0);
    throw error;
  }
}

/** Memory that the regions of a configuration take, where that can be known before they are opened. */
export function bytesOf(regions: Readonly<Record<string, RegionConfig>>, sizeOf: (file: string) => number): number {
  return Object.values(regions).reduce((sum, { size, file }) => sum + (size ?? sizeOf(file as string)), 0);
}
