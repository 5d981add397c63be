/** Whether a file can be used, asked before it is opened. */
import { accessSync } from 'node:fs';

/** Returns the system's error code if a path does not permit the access. @param mode `constants.R_OK` and so on */
export function accessError(path: string, mode: number): string | undefined {
  try {
    accessSync(path, mode);
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code;
  }
}
