/** A table for the terminal and for a README. */
import Table from 'cli-table3';

export interface Sheet {
  readonly title: string;
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** Remarks on the table, one paragraph each. */
  readonly notes?: readonly string[];
}

/** A row that ends early has a sentence instead of figures, which is printed below the table. */
export function asText({ title, head, rows, notes = [] }: Sheet): string {
  const noLines = { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' };
  const table = new Table({ head: [...head], style: { head: [], border: [] }, chars: noLines });
  for (const row of rows) if (row.length === head.length) table.push([...row]);
  const sentences = rows.filter(({ length }) => length < head.length).map((row) => row.join(': '));
  return [`\n${title}`, ...(table.length > 0 ? [table.toString()] : []), ...sentences, ...notes].join('\n');
}

export function asMarkdown({ title, head, rows, notes = [] }: Sheet): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  const table = [line(head), line(head.map((_, i) => (i === 0 ? '---' : '---:'))), ...rows.map(line)];
  return [`**${title}**`, '', ...table, ...notes.flatMap((note) => ['', note])].join('\n');
}

/** Returns three significant digits without an exponent; an empty text for undefined. */
export function digits(value: number | undefined): string {
  if (value === undefined || !Number.isFinite(value)) return '';
  const places = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toFixed(places);
}

export function ratio(value: number | undefined, to: number | undefined): string {
  return value === undefined || to === undefined || to === 0 ? '' : `${digits(value / to)}×`;
}

export function bytes(count: number): string {
  if (count >= 2 ** 20) return `${count / 2 ** 20} MiB`;
  return count >= 1024 ? `${count / 1024} KiB` : `${count} B`;
}
