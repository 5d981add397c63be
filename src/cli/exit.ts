/** The end of a command: an exit status for each kind of end, and one line on stderr for each failure. */
import { VerbsError } from '../index.js';

export const Exit = {
  OK: 0,
  /** The transfer or its verification failed, or the peer could not be reached. */
  FAILED: 1,
  /** The command line is wrong. */
  USAGE: 2,
  /** This machine lacks something or does not permit it: privileges, interfaces, addresses, the addon. */
  ENVIRONMENT: 3,
  /** Ctrl-C. */
  INTERRUPTED: 130,
  /** SIGTERM. */
  TERMINATED: 143,
} as const;

export const EXIT_HELP = `
Exit status: 0 done, 1 a transfer or its verification failed, 2 wrong usage, 3 this machine lacks something
(privileges, interface, address, addon), 130 interrupted by Ctrl-C.`;

/** Codes of failures that have neither a code of their own nor a cause with one, by exit status. */
const CODES = new Map<number, string>([
  [Exit.FAILED, 'EIO'],
  [Exit.USAGE, 'ERR_INVALID_ARG_VALUE'],
  [Exit.ENVIRONMENT, 'EOPNOTSUPP'],
  [Exit.INTERRUPTED, 'EINTR'],
  [Exit.TERMINATED, 'EINTR'],
]);

/** Options of `CliError`. */
interface FailureOptions extends ErrorOptions {
  /** Name of an errno. Default: the code of the cause, else that of the exit status. */
  readonly code?: string;
  /** The result on stdout reports the failure already. Default false. */
  readonly isReported?: boolean;
}

/** A failure with its exit status. */
export class CliError extends Error {
  override readonly name = 'CliError';
  /** Name of an errno or of a completion's status, as in JSON reports. */
  readonly code: string;
  /** The result on stdout reports the failure already. */
  readonly isReported: boolean;

  constructor(
    readonly exit: number,
    message: string,
    { isReported = false, code, ...options }: FailureOptions = {},
  ) {
    super(message, options);
    this.code = code ?? codeOf(options.cause) ?? CODES.get(exit) ?? 'EIO';
    this.isReported = isReported;
  }
}

/** Returns the code of an error, or of its nearest cause that has one. */
function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code } = error as Error & { code?: unknown };
  if (error.name === 'AbortError') return 'ABORT_ERR';
  return typeof code === 'string' ? code : codeOf(error.cause);
}

const STATUS = { SIGINT: Exit.INTERRUPTED, SIGTERM: Exit.TERMINATED } as const;
type StopSignal = keyof typeof STATUS;

/** Calls `stop` at the first Ctrl-C from now on. The next one ends the process at once. */
export function onInterrupt(stop: () => void): void {
  onSignals(['SIGINT'], stop);
}

/** Calls `stop` at the first Ctrl-C or SIGTERM from now on. The next one ends the process at once. */
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
    // Remove the old listeners only after the new one is there: a signal that came while this thread was busy is still
    // pending, and Node drops it when there is no listener, even for a moment.
    for (const listener of before) process.off(name, listener);
  }
}

/** An orderly end that a signal has asked for. Nothing is printed for it. */
export class Stopped extends CliError {
  constructor(signal: string) {
    super(signal === 'SIGINT' ? Exit.INTERRUPTED : Exit.TERMINATED, `stopped by ${signal}`);
  }
}

/** Returns a signal that the first Ctrl-C or SIGTERM aborts with a `Stopped`; see `onStop`. */
export function stopSignal(): AbortSignal {
  const stop = new AbortController();
  onStop((signal) => stop.abort(new Stopped(signal)));
  return stop.signal;
}

export const usageError = (message: string) => new CliError(Exit.USAGE, message);
export const failure = (message: string, options?: FailureOptions) => new CliError(Exit.FAILED, message, options);
/** @param when completes the sentence: before or after what the command was interrupted */
export const interrupted = (when: string, options?: FailureOptions) =>
  new CliError(Exit.INTERRUPTED, `interrupted ${when}`, options);

/** Error codes of the verbs and the system that mean that this machine lacks something. */
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

/** The exit status for an error. */
export function exitOf(error: unknown): number {
  if (error instanceof CliError) return error.exit;
  // what a peer answers says nothing about this machine
  if (error instanceof Error && error.name === 'NvmeError') return Exit.FAILED;
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' && ENVIRONMENT.has(code) ? Exit.ENVIRONMENT : Exit.FAILED;
}

/** An error as a JSON report shows it. */
export function errorReport(error: unknown): { readonly code: string; readonly message: string } {
  const message = error instanceof Error ? error.message : String(error);
  const prefix = error instanceof VerbsError ? `${error.code}: ` : '';
  return { code: codeOf(error) ?? 'EIO', message: message.slice(prefix.length) };
}
