/** The folders in which the processes of one user find each other. Nobody else may enter them. */
import { lstatSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { VerbsError } from '../errors.js';

const uid = () => process.getuid?.() ?? 0;

/**
 * Returns the folder of published devices: `$XDG_RUNTIME_DIR/wasm-roce`, or `/tmp/wasm-roce-<user id>` without that
 * variable.
 */
export function runtimeFolder(): string {
  const base = process.env.XDG_RUNTIME_DIR;
  return base ? join(base, 'wasm-roce') : temporaryFolder();
}

/**
 * Returns the folders that all processes of this user can agree on, whatever their environment: that of the system
 * (`/run/wasm-roce` for root, else in `/run/user/<user id>`), the runtime folder, and `/tmp/wasm-roce-<user id>`.
 * Folders that do not exist and cannot be made, or that are not private, are left out: another user may have taken the
 * one in /tmp.
 */
export function userFolders(): string[] {
  const system = uid() === 0 ? '/run/wasm-roce' : `/run/user/${uid()}/wasm-roce`;
  return [...new Set([system, runtimeFolder(), temporaryFolder()])].filter((folder) => {
    try {
      return makePrivate(folder);
    } catch {
      return false;
    }
  });
}

/** Creates the runtime folder if needed, and checks that only this user can access it. @throws VerbsError EPERM */
export function ensureRuntimeFolder(): string {
  const folder = runtimeFolder();
  let isPrivate: boolean;
  try {
    isPrivate = makePrivate(folder);
  } catch (cause) {
    throw new VerbsError('EPERM', `${folder} cannot be created: ${(cause as Error).message}`, { cause });
  }
  if (isPrivate) return folder;
  throw new VerbsError(
    'EPERM',
    `${folder} must be a folder of this user with mode 700, so that nobody else can listen there`,
  );
}

const temporaryFolder = () => `/tmp/wasm-roce-${uid()}`;

/** Creates a folder if needed. @returns whether it is one that only this user can access @throws the system's error */
function makePrivate(folder: string): boolean {
  mkdirSync(folder, { mode: 0o700, recursive: true });
  const found = lstatSync(folder);
  return found.isDirectory() && found.uid === uid() && (found.mode & 0o077) === 0;
}
