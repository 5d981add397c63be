/** What a service tells while it runs: a line for each thing that happens, for people or for programs. */
import { WcError } from '../../index.js';
import { errorReport } from '../exit.js';

/** What happened to whom; in the order in which it is to be read. */
export type Fields = Readonly<Record<string, unknown>>;

export class Log {
  /** @param form `text`: time, level, event, `name=value`; `json`: an object a line with the same names */
  constructor(
    readonly form: 'text' | 'json',
    readonly stream: NodeJS.WritableStream = process.stdout,
  ) {}

  info(event: string, fields: Fields = {}): void {
    this.#write('info', event, fields);
  }

  /** Something that somebody may have to do something about. */
  warn(event: string, fields: Fields = {}): void {
    this.#write('warn', event, fields);
  }

  /** @param error is told with all that it explains itself by */
  error(event: string, error: unknown, fields: Fields = {}): void {
    const { code, message } = errorReport(error);
    const [what = '', ...causes] = message.split(/\n\s*(?:- )?/);
    const packets = error instanceof WcError ? error.explanation.packets : [];
    this.#write('error', event, {
      ...fields,
      ...{ code, error: what },
      ...(causes.length > 0 && { likelyCauses: causes }),
      ...(packets.length > 0 && { packets }),
    });
  }

  #write(level: string, event: string, fields: Fields): void {
    const time = new Date().toISOString();
    const line =
      this.form === 'json'
        ? JSON.stringify({ time, level, event, ...fields })
        : [
            time,
            level.padEnd(5),
            event,
            ...Object.entries(fields).map(([name, value]) => `${name}=${word(value)}`),
          ].join(' ');
    this.stream.write(`${line}\n`);
  }
}

/** Without quotes where nothing could be misread. */
function word(value: unknown): string {
  if (Array.isArray(value) && value.every((item) => typeof item === 'string'))
    return word(value.join(value.some((item) => item.includes(' ')) ? '; ' : ','));
  if (typeof value !== 'string') return JSON.stringify(value);
  return /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
}
