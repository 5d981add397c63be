/** The project's own source files, and who imports whom. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Files below a folder with one of the endings, as paths from the project's folder. */
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

/** The text without comments (TypeScript's and C's; a `//` inside quotes is left alone when it follows a colon). */
export function code(path: string): string {
  return text(path)
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/(^|[^:])\/\/.*$/gm, '$1');
}

export interface Import {
  from: string;
  /** A path from the project's folder without ending, or a package's name. */
  to: string;
}

/** What a file imports, re-exports, or loads with import(). */
export function imports(path: string): Import[] {
  const found = code(path).matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)'([^']+)'/g);
  return Array.from(found, ([, name = '']) => {
    if (!name.startsWith('.')) return { from: path, to: name };
    const target = relative(ROOT, normalize(join(ROOT, dirname(path), name)));
    return { from: path, to: target.replace(/\.(js|ts)$/, '') };
  });
}
