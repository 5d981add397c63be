/** Storage for the bytes of a namespace. */

import { type FileHandle, open } from 'node:fs/promises';
import { type Checks, checkBoolean, checkOptions, integer } from '../../../base/options.js';
import { VerbsError } from '../../../index.js';

/** The bytes of a namespace. Calls may overlap; reads see what earlier writes have written. */
export interface Storage {
  /** Its size. It does not change. */
  readonly bytes: number;
  /** Whether it can only be read. */
  readonly isReadOnly: boolean;
  /** Fills `into` with the bytes from `position` on. Rejects when they cannot be read. */
  read(into: Uint8Array, position: number): Promise<void>;
  /** Writes bytes at `position`. Rejects when they cannot be written. */
  write(from: Uint8Array, position: number): Promise<void>;
  /** Resolves when everything written before is durable. */
  flush(): Promise<void>;
  /** Frees it. No other call follows. */
  close(): Promise<void>;
}

/** Options of `fileStorage`. */
export interface FileStorageOptions {
  /** Size in bytes. A missing or shorter file gets it, sparsely. Default: the file's. */
  readonly size?: number;
  /** Opens the file for reading only. Default false. */
  readonly readOnly?: boolean;
}

const FILE_CHECKS: Checks<FileStorageOptions> = { size: integer(1, Number.MAX_SAFE_INTEGER), readOnly: checkBoolean };

/**
 * Opens a file or block device as storage.
 * @throws VerbsError EINVAL for a file of no size, one that is larger than `size`, or a device that is smaller; the
 * error of the file system
 */
export async function fileStorage(path: string, options: FileStorageOptions = {}): Promise<Storage> {
  const { size, readOnly = false } = checkOptions('fileStorage', options, FILE_CHECKS);
  const file = await openFile(path, readOnly, size !== undefined);
  try {
    const status = await file.stat();
    const found = status.isFile() ? status.size : await lengthOf(file);
    const bytes = size ?? found;
    if (bytes === 0) throw new VerbsError('EINVAL', `${path} has no size: give one, such as size=1G`);
    if (found > bytes) throw new VerbsError('EINVAL', `${path} has ${found} bytes, which are more than ${bytes}`);
    if (found < bytes && (readOnly || !status.isFile()))
      throw new VerbsError('EINVAL', `${path} has ${found} bytes, which are less than ${bytes}`);
    if (found < bytes) await file.truncate(bytes);
    return new FileStorage(file, bytes, readOnly);
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function openFile(path: string, readOnly: boolean, mayCreate: boolean): Promise<FileHandle> {
  if (readOnly) return open(path, 'r');
  try {
    return await open(path, 'r+');
  } catch (error) {
    if (!mayCreate || (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return open(path, 'wx+', 0o600);
  }
}

/** The length of a block device, whose status has none: where reading ends, found by halves. */
async function lengthOf(file: FileHandle): Promise<number> {
  const one = Buffer.alloc(1);
  const has = async (position: number) =>
    (await file.read(one, 0, 1, position).catch(() => ({ bytesRead: 0 }))).bytesRead;
  if (!(await has(0))) return 0;
  let [least, most] = [1, 1];
  while (most < 2 ** 52 && (await has(most))) [least, most] = [most + 1, most * 2];
  while (least < most) {
    const middle = Math.floor((least + most) / 2);
    if (await has(middle)) least = middle + 1;
    else most = middle;
  }
  return least;
}

class FileStorage implements Storage {
  readonly #file: FileHandle;

  constructor(
    file: FileHandle,
    readonly bytes: number,
    readonly isReadOnly: boolean,
  ) {
    this.#file = file;
  }

  async read(into: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < into.length; ) {
      const { bytesRead } = await this.#file.read(into, done, into.length - done, position + done);
      // a file that was cut off meanwhile
      if (bytesRead === 0) throw new VerbsError('EIO', `the file ends before byte ${position + into.length}`);
      done += bytesRead;
    }
  }

  async write(from: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < from.length; )
      done += (await this.#file.write(from, done, from.length - done, position + done)).bytesWritten;
  }

  flush(): Promise<void> {
    return this.#file.datasync();
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}
