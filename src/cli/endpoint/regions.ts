/** Memory that peers reach: in the card, from a file at the start and back to it. */
import { accessSync, constants, statSync } from 'node:fs';
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

/** Why a region's file could not be read at the start, or not be written at the end, if that can be known before. */
export function obstacle({ file, size, persist }: RegionConfig): string | undefined {
  if (file === undefined) return undefined;
  const folder = persist ? refusalOf(dirname(file), constants.W_OK | constants.X_OK) : undefined;
  if (folder !== undefined)
    return folder === 'ENOENT' ? 'whose folder is not there' : `whose folder cannot be written to (${folder})`;
  const refused = refusalOf(file, constants.R_OK);
  if (refused === 'ENOENT' && !persist) return 'which is not there';
  if (refused === 'ENOENT') return size === undefined ? 'which is not there, and the region has no size' : undefined;
  if (refused !== undefined) return `which cannot be read (${refused})`;
  const found = statSync(file);
  if (found.isDirectory()) return 'which is a folder';
  if (size === undefined && found.size === 0) return 'which is empty, and the region has no size';
  if (size !== undefined && found.size > size) return `which has ${found.size} bytes, the region ${size}`;
  return undefined;
}

/** Why there is no such access to a path: the system's code. */
function refusalOf(path: string, mode: number): string | undefined {
  try {
    accessSync(path, mode);
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code;
  }
}
