/** The project's own source files and their imports. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Returns the files below a folder with one of the endings, as paths from the project's folder. */
export function sources(folder: string, ...endings: string[]): string[] {
  if (!existsSync(join(ROOT, folder))) return [];
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => endings.some((ending) => name.endsWith(ending)))
    .map((name) => join(folder, name))
    .sort();
}

export function text(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

/** Returns the text without comments of TypeScript or C. A `//` that follows a colon is not taken for a comment. */
export function code(path: string): string {
  return text(path)
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/(^|[^:])\/\/.*$/gm, '$1');
}

export interface Import {
  from: string;
  /** A path from the project's folder without ending, or the name of a package. */
  to: string;
}

/** Returns the modules that a file imports, re-exports, or loads by import(). */
export function imports(path: string): Import[] {
  const found = code(path).matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)'([^']+)'/g);
  return Array.from(found, ([, name = '']) => {
    return { from: path, to: name.startsWith('.') ? relativeTarget(path, name) : name };
  });
}

/** The file that a relative import in `path` names: a path from the project's folder without ending. */
export function relativeTarget(path: string, name: string): string {
  return relative(ROOT, normalize(join(ROOT, dirname(path), name))).replace(/\.(js|ts)$/, '');
}
