/** Whether a file can be used, asked before it is opened. */
import { accessSync, constants } from 'node:fs';
import { dirname } from 'node:path';

/** Returns the system's error code if a path does not permit the access. @param mode `constants.R_OK` and so on */
export function accessError(path: string, mode: number): string | undefined {
  try {
    accessSync(path, mode);
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code;
  }
}

/** Returns why no file can be made in the folder of a path; undefined if no reason is known. */
export function folderProblem(path: string): string | undefined {
  const refused = accessError(dirname(path), constants.W_OK | constants.X_OK);
  if (refused === 'ENOENT') return 'whose folder does not exist';
  return refused && `whose folder cannot be written to (${refused})`;
}
