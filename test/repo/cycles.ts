/** Circles of imports. */
import { code, relativeTarget, sources } from './sources.js';

/**
 * Files of the project that a file needs before it can run: what it imports or re-exports, types and `import()` left
 * out.
 */
function valueImports(path: string): string[] {
  const found = code(path).matchAll(/^(?:import|export)\s+(?!type\b)(?:[^;'"]*?\sfrom\s*)?'(\.[^']*)'/gm);
  return Array.from(found, ([, name = '']) => `${relativeTarget(path, name)}.ts`);
}

/**
 * Finds circles of value imports among the TypeScript files of a folder: each set of files that all need each other, as
 * `from -> to` lines.
 */
export function cycles(folder: string): string[][] {
  const files = sources(folder, '.ts');
  const targets = new Map(files.map((path) => [path, valueImports(path).filter((to) => files.includes(to))]));
  const reaches = new Map(files.map((path) => [path, reachable(targets, path)]));
  const inCycle = files.filter((path) => reaches.get(path)?.has(path));
  const together = (a: string, b: string): boolean => Boolean(reaches.get(a)?.has(b) && reaches.get(b)?.has(a));
  const groups = new Map<string, string[]>();
  for (const path of inCycle) {
    const first = inCycle.find((other) => together(path, other)) ?? path;
    const lines = (targets.get(path) ?? []).filter((to) => together(path, to)).map((to) => `${path} -> ${to}`);
    groups.set(first, [...(groups.get(first) ?? []), ...lines]);
  }
  return [...groups.values()];
}

function reachable(targets: ReadonlyMap<string, readonly string[]>, start: string): Set<string> {
  const found = new Set<string>();
  const open = [...(targets.get(start) ?? [])];
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (found.has(path)) continue;
    found.add(path);
    open.push(...(targets.get(path) ?? []));
  }
  return found;
}
