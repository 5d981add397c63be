/**
 * Finds the package's own files. It lies as deep in the package as the bundles that the build makes (dist/*.js), so
 * that the same path is right in both.
 */
import { fileURLToPath } from 'node:url';

/** Returns the absolute path of a file of the package. @param path relative to the folder of package.json */
export function packageFile(path: string): string {
  return fileURLToPath(new URL(`../${path}`, import.meta.url));
}
