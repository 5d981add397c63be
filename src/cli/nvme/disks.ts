/** Files that are served as disks. */
import { constants, statSync } from 'node:fs';
import { fileStorage, type NamespaceOptions } from '../../nvme.js';
import { accessError, folderProblem } from '../access.js';

/** A disk, as a command line or a configuration describes it. */
export interface Disk {
  readonly name: string;
  readonly file: string;
  /** Bytes. Default: as long as the file. */
  readonly size?: number | undefined;
  readonly blockBytes?: number | undefined;
  readonly readOnly?: boolean | undefined;
}

/** Opens the files of disks: all, or none. @throws as `fileStorage` */
export async function openDisks(disks: readonly Disk[]): Promise<NamespaceOptions[]> {
  const opened: NamespaceOptions[] = [];
  try {
    for (const { name, file, size, blockBytes, readOnly = false } of disks) {
      const storage = await fileStorage(file, { readOnly, ...(size !== undefined && { size }) });
      opened.push({ name, storage, ...(blockBytes !== undefined && { blockBytes }) });
    }
    return opened;
  } catch (error) {
    for (const { storage } of opened) await storage.close();
    throw error;
  }
}

/** Returns why the file of a disk cannot be served; undefined if no reason is known. */
export function diskProblem({ file, size, readOnly = false }: Omit<Disk, 'name'>): string | undefined {
  const refused = accessError(file, readOnly ? constants.R_OK : constants.R_OK | constants.W_OK);
  if (refused === 'ENOENT') return readOnly || size === undefined ? 'which does not exist' : folderProblem(file);
  if (refused !== undefined) return `which cannot be ${readOnly ? 'read' : 'read and written'} (${refused})`;
  const found = statSync(file);
  if (found.isDirectory()) return 'which is a folder';
  if (!found.isFile()) return undefined;
  if (size === undefined) return found.size === 0 ? 'which is empty, and the namespace has no size' : undefined;
  const isWrong = found.size > size || (readOnly && found.size < size);
  return isWrong ? `which has ${found.size} bytes, the namespace ${size}` : undefined;
}
