/** Memory regions that peers access, loaded from files and saved to them. */
import { randomBytes } from 'node:crypto';
import { constants, statSync } from 'node:fs';
import { open, readFile, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { AccessName, Mr, Pd, RemoteMemory } from '../../index.js';
import { accessError, folderProblem } from '../access.js';
import { failure } from '../exit.js';
import type { Fields } from './log.js';
import type { RegionConfig } from './schema.js';

/** Address, key and length of a region for peers, sent as JSON. */
export interface RegionInfo extends RemoteMemory {
  readonly name: string;
  readonly access: readonly AccessName[];
}

/**
 * Registers a region and loads its file.
 * @throws CliError when the file does not fit; the system's error when it cannot be read; VerbsError ENOMEM
 */
export async function openRegion(pd: Pd, name: string, config: RegionConfig): Promise<Region> {
  const content = await initialContent(config);
  const size = config.size ?? content.length;
  if (content.length > size)
    throw failure(`region ${name} has ${size} bytes, its file ${config.file} has ${content.length}`);
  if (size === 0) throw failure(`region ${name} has no size, and its file ${config.file} is empty`);
  // memory that peers may write needs local write access, too
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

  /** Fields for the log, without the key. */
  get about(): Fields {
    const { file, persist, access } = this.config;
    return { region: this.name, bytes: this.mr.length, access, ...(file !== undefined && { file, persist }) };
  }

  get info(): RegionInfo {
    return { name: this.name, ...this.mr.remote, access: this.config.access };
  }

  /**
   * Writes a persistent region to its file: all of it, or the file stays as it was.
   * @returns whether the region is persistent
   */
  async save(): Promise<boolean> {
    const { file, persist } = this.config;
    if (!persist || file === undefined) return false;
    // a copy, since peers go on writing
    const content = Buffer.from(this.mr.buffer);
    // Others may have access to the folder: a name that they cannot prepare.
    const draft = join(dirname(file), `.${basename(file)}.${randomBytes(8).toString('hex')}`);
    try {
      const { mode } = await stat(file).catch(() => ({ mode: 0o600 }));
      const handle = await open(draft, 'wx', mode);
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

/** The content of the file. The file of a persistent region may be missing. */
async function initialContent({ file, persist, size }: RegionConfig): Promise<Buffer> {
  if (file === undefined) return Buffer.alloc(0);
  try {
    return await readFile(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT' && persist && size !== undefined) return Buffer.alloc(0);
    throw error;
  }
}

/** Returns why a region's file cannot be read at the start or written at the end; undefined if no reason is known. */
export function fileProblem({ file, size, persist }: RegionConfig): string | undefined {
  if (file === undefined) return undefined;
  const folder = persist ? folderProblem(file) : undefined;
  if (folder !== undefined) return folder;
  const refused = accessError(file, constants.R_OK);
  if (refused === 'ENOENT' && !persist) return 'which does not exist';
  if (refused === 'ENOENT') return size === undefined ? 'which does not exist, and the region has no size' : undefined;
  if (refused !== undefined) return `which cannot be read (${refused})`;
  const found = statSync(file);
  if (found.isDirectory()) return 'which is a folder';
  if (size === undefined && found.size === 0) return 'which is empty, and the region has no size';
  if (size !== undefined && found.size > size) return `which has ${found.size} bytes, the region ${size}`;
  return undefined;
}
