/** Checks of `--load` and `--check`: those that a user has written, and those that run. */
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { CHECKS, type Check, defineCheck } from '../../probe.js';
import { usageError } from '../exit.js';

/**
 * Returns all checks: those of the package, and those that modules export as `default`, one or an array.
 * @throws CliError for a module that does not load, or has no check, or one whose name there is already
 */
export async function loadChecks(paths: readonly string[] = []): Promise<readonly Check[]> {
  const checks = [...CHECKS];
  for (const path of paths) {
    const found = await exported(path).catch((cause) => {
      throw usageError(`--load ${path}: ${cause instanceof Error ? cause.message : cause}`);
    });
    for (const check of found) {
      const { name } = check;
      if (checks.some((other) => other.name === name))
        throw usageError(`--load ${path}: there is a check ${name} already`);
      checks.push(check);
    }
  }
  return checks;
}

async function exported(path: string): Promise<readonly Check[]> {
  const { default: found } = (await import(pathToFileURL(resolve(path)).href)) as { default?: unknown };
  const list = [found].flat();
  if (list.length === 0 || list.some((one) => typeof one !== 'object' || one === null))
    throw new TypeError('its default export must be a check, or an array of checks');
  return list.map((check) => defineCheck(check as never));
}

/** Returns the checks that have a name or number, in the order of the names. @throws CliError when there is none */
export function checksNamed(checks: readonly Check[], names: readonly string[]): readonly Check[] {
  const found = names.flatMap((text) => {
    const some = checks.filter(({ name, number }) => name === text || String(number) === text);
    if (some.length > 0) return some;
    throw usageError(`--check ${text}: it must be the name or number of a check; --dry-run --intrusive lists them`);
  });
  return [...new Set(found)];
}
