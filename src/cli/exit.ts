/** How a command ends: one exit status for each kind of end, and one line on stderr for each that is not good. */
import { VerbsError } from '../index.js';

export const Exit = {
  OK: 0,
  /** The transfer or its verification failed, or the peer could not be reached. */
  FAILED: 1,
  /** The command line is wrong. */
  USAGE: 2,
  /** This machine does not allow or have what is needed: privileges, interfaces, addresses, the addon. */
  ENVIRONMENT: 3,
  /** Ctrl-C. */
  INTERRUPTED: 130,
  /** SIGTERM. */
  TERMINATED: 143,
} as const;

export const EXIT_HELP = `
Exit status: 0 done, 1 a transfer or its verification failed, 2 wrong usage, 3 something is missing on this machine
(privileges, interface, address, addon), 130 after Ctrl-C.`;

/** An end that a command has foreseen. */
export class CliError extends Error {
  override readonly name = 'CliError';
  /** The result on stdout tells of it already. */
  readonly isReported: boolean;

  constructor(
    readonly exit: number,
    message: string,
    { isReported = false, ...options }: ErrorOptions & { readonly isReported?: boolean } = {},
  ) {
    super(message, options);
    this.isReported = isReported;
  }
}

const STATUS = { SIGINT: Exit.INTERRUPTED, SIGTERM: Exit.TERMINATED } as const;
type StopSignal = keyof typeof STATUS;

/** From now on Ctrl-C asks for the end by this, once; after that it ends the program at once, as ever. */
export function onInterrupt(stop: () => void): void {
  onSignals(['SIGINT'], stop);
}

/** From now on Ctrl-C or SIGTERM asks for the end by this, once; after that it ends the program at once, as ever. */
export function onStop(stop: (signal: string) => void): void {
  onSignals(['SIGINT', 'SIGTERM'], stop);
}

function onSignals(names: readonly StopSignal[], stop: (signal: string) => void): void {
  let isAsked = false;
  for (const name of names) {
    const before = process.listeners(name);
    process.on(name, () => {
      if (isAsked) process.exit(STATUS[name]);
      isAsked = true;
      stop(name);
    });
    // not the other way round: one that came while this thread was busy still waits to be told, and without a listener, be it
    // for a moment, Node forgets it
    for (const listener of before) process.off(name, listener);
  }
}

/** The end that a signal has asked for, and that has come in good order: nothing is to be said. */
export class Stopped extends CliError {
  constructor(signal: string) {
    super(signal === 'SIGINT' ? Exit.INTERRUPTED : Exit.TERMINATED, `stopped by ${signal}`);
  }
}

/** Ctrl-C or SIGTERM aborts this, as `onStop` says, with a `Stopped`. */
export function stopSignal(): AbortSignal {
  const stop = new AbortController();
  onStop((signal) => stop.abort(new Stopped(signal)));
  return stop.signal;
}

export const usageError = (message: string) => new CliError(Exit.USAGE, message);
export const failure = (message: string, options?: ConstructorParameters<typeof CliError>[2]) =>
  new CliError(Exit.FAILED, message, options);
/** @param when what was not yet done */
export const interrupted = (when: string, options?: ConstructorParameters<typeof CliError>[2]) =>
  new CliError(Exit.INTERRUPTED, `interrupted ${when}`, options);

/** What the verbs and the system say when it is the machine that lacks something. */
const ENVIRONMENT = new Set([
  'EPERM',
  'EACCES',
  'ENODEV',
  'ENOENT',
  'ENOMEM',
  'EROFS',
  'ENOSPC',
  'EISDIR',
  'EADDRINUSE',
  'EADDRNOTAVAIL',
  'EOPNOTSUPP',
]);

export function exitOf(error: unknown): number {
  if (error instanceof CliError) return error.exit;
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' && ENVIRONMENT.has(code) ? Exit.ENVIRONMENT : Exit.FAILED;
}

/** For a JSON report. */
export function errorReport(error: unknown): { readonly code: string; readonly message: string } {
  const { name, code, status, message } = error as Error & { code?: string; status?: string };
  const prefix = error instanceof VerbsError ? `${error.code}: ` : '';
  return { code: code ?? status ?? name, message: (message ?? String(error)).slice(prefix.length) };
}
