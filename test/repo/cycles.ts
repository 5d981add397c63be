/** Circles of imports. */
import { code, imports, relativeTarget, sources } from './sources.js';

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
  const targets = graph(folder, valueImports);
  return circlesOf(targets).map((group) =>
    group.flatMap(
      (path) =>
        targets
          .get(path)
          ?.filter((to) => group.includes(to))
          .map((to) => `${path} -> ${to}`) ?? [],
    ),
  );
}

/** Finds the circles of imports of values and types: each set of files that all name each other. */
export function typeCycles(folder: string): string[][] {
  return circlesOf(graph(folder, (path) => imports(path).map(({ to }) => `${to}.ts`)));
}

type Graph = ReadonlyMap<string, readonly string[]>;

function graph(folder: string, importsOf: (path: string) => readonly string[]): Graph {
  const files = sources(folder, '.ts');
  return new Map(files.map((path) => [path, importsOf(path).filter((to) => files.includes(to))]));
}

function circlesOf(targets: Graph): string[][] {
  const reaches = new Map([...targets.keys()].map((path) => [path, reachable(targets, path)]));
  const inCycle = [...targets.keys()].filter((path) => reaches.get(path)?.has(path));
  const together = (a: string, b: string): boolean => Boolean(reaches.get(a)?.has(b) && reaches.get(b)?.has(a));
  const groups = new Map<string, string[]>();
  for (const path of inCycle) {
    const first = inCycle.find((other) => together(path, other)) ?? path;
    groups.set(first, [...(groups.get(first) ?? []), path]);
  }
  return [...groups.values()];
}

function reachable(targets: Graph, start: string): Set<string> {
  const found = new Set<string>();
  const open = [...(targets.get(start) ?? [])];
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (found.has(path)) continue;
    found.add(path);
    open.push(...(targets.get(path) ?? []));
  }
  return found;
}
