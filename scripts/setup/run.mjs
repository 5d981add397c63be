// Runs the commands of the setup. They print nothing unless they fail; then the error has the end of their output.
import { spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of package.json. */
export const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const LAST_LINES = 60;

/** A failure whose message is enough: it is printed without a stack. */
export class SetupError extends Error {}

/**
 * Runs a command in the project's folder.
 * @returns its standard output
 * @throws SetupError with the end of its output
 */
export function run(command, args, env = {}) {
  return new Promise((resolve, reject) => {
    const printed = [];
    const all = [];
    const child = spawn(command, args, {
      cwd: ROOT,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    child.stdout.on('data', (chunk) => printed.push(chunk));
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => all.push(chunk));
    child.on('error', (cause) => reject(new SetupError(`${command} cannot be run: ${cause.message}`)));
    child.on('close', (status, signal) => {
      const text = (chunks) => Buffer.concat(chunks).toString();
      if (status === 0) return resolve(text(printed));
      const tail = text(all).trimEnd().split('\n').slice(-LAST_LINES).join('\n  ');
      reject(new SetupError(`${[command, ...args].join(' ')}: ${signal ?? `exit status ${status}`}\n  ${tail}`));
    });
  });
}

/** Runs a program of node_modules without npx, which would ask the registry for a missing program. */
export function tool(name, ...args) {
  return run(join(ROOT, 'node_modules', '.bin', name), args);
}

/** Returns whether a command is on the PATH. */
export function onPath(command) {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, command), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
