/** The log of a service: a line for each event, as text or JSON. */
import { printable, printableJson } from '../../base/printable.js';
import { WcError } from '../../index.js';
import { errorReport } from '../exit.js';

/** Details of an event, in the order in which they are printed. */
export type Fields = Readonly<Record<string, unknown>>;

/** Errors of one event that are logged within one window (ms); the others are counted. Clients can cause any number. */
const ERRORS_PER_WINDOW = 20;
const WINDOW_MS = 10_000;

export class Log {
  /** Errors of each event in its current window. */
  readonly #errors = new Map<string, number>();

  /** @param form `text`: time, level, event, `name=value`; `json`: an object on each line, with the same names */
  constructor(
    readonly form: 'text' | 'json',
    readonly stream: NodeJS.WritableStream = process.stdout,
  ) {}

  info(event: string, fields: Fields = {}): void {
    this.#write('info', event, fields);
  }

  /** An event that may need attention. */
  warn(event: string, fields: Fields = {}): void {
    this.#write('warn', event, fields);
  }

  /**
   * Logs an error, unless there were too many of this event just now: a line tells later how many.
   * @param error logged with its code, likely causes and packets
   */
  error(event: string, error: unknown, fields: Fields = {}): void {
    if (this.#countError(event) > ERRORS_PER_WINDOW) return;
    const { code, message } = errorReport(error);
    const [what = '', ...causes] = message.split(/\n\s*(?:- )?/);
    const { packets = [], decisions = [] } = error instanceof WcError ? error.explanation : {};
    this.#write('error', event, {
      ...fields,
      ...{ code, error: what },
      ...(causes.length > 0 && { likelyCauses: causes }),
      ...(packets.length > 0 && { packets }),
      ...(decisions.length > 0 && { decisions }),
    });
  }

  /** @returns the errors of this event in its window, with this one */
  #countError(event: string): number {
    const count = (this.#errors.get(event) ?? 0) + 1;
    this.#errors.set(event, count);
    if (count === 1) setTimeout(() => this.#endWindow(event), WINDOW_MS).unref();
    return count;
  }

  #endWindow(event: string): void {
    const suppressed = (this.#errors.get(event) ?? 0) - ERRORS_PER_WINDOW;
    this.#errors.delete(event);
    if (suppressed > 0) this.warn(event, { suppressed, seconds: WINDOW_MS / 1000 });
  }

  #write(level: string, event: string, fields: Fields): void {
    const time = new Date().toISOString();
    const line =
      this.form === 'json'
        ? printableJson({ time, level, event, ...fields })
        : [
            time,
            level.padEnd(5),
            event,
            ...Object.entries(fields).map(([name, value]) => `${name}=${quoted(value)}`),
          ].join(' ');
    this.stream.write(`${line}\n`);
  }
}

/** A value as text, in quotes only if it would be ambiguous. */
function quoted(value: unknown): string {
  if (Array.isArray(value) && value.every((item) => typeof item === 'string'))
    return quoted(value.join(value.some((item) => item.includes(' ')) ? '; ' : ','));
  if (typeof value !== 'string') return printableJson(value);
  return /^[^\s"=]+$/.test(value) && printable(value) === value ? value : printableJson(value);
}
