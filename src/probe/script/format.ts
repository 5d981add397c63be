/** Writes a script in its one form: indentation, spaces, and comments in a column. */
import type { Expression, Field, Line, PacketSpec, Script, Statement, Time } from './ast.js';

const INDENTATION = '  ';

/** Returns the text of a script in its one form. The text has the same syntax tree, apart from places. */
export function formatScript(script: Script): string {
  const rows = formatLines(script.lines, '');
  return `${rows
    .join('\n')
    .replace(/\n{3,}/g, '\n\n')
    .trim()}\n`;
}

function formatLines(lines: readonly Line[], indentation: string): string[] {
  const rows = lines.flatMap((line) => formatLine(line, indentation));
  return rows.map((row) => row.trimEnd());
}

function formatLine({ time, statement, comment }: Line, indentation: string): string[] {
  const remark = comment === undefined ? '' : `#${comment.trimEnd()}`;
  if (statement === undefined) return [`${indentation}${remark}`];
  const start = `${indentation}${time ? `${formatTime(time)} ` : ''}`;
  const tail = remark === '' ? '' : `  ${remark}`;
  if (statement.kind !== 'repeat') return [`${start}${formatStatement(statement)}${tail}`];
  const head = `${start}repeat ${formatExpression(statement.count)}${formatAs(statement.as)} {`;
  return [head, ...formatLines(statement.body, indentation + INDENTATION), `${indentation}}${tail}`];
}

function formatTime({ from, duration }: Time): string {
  return `${from === 'previous' ? '+' : '@'}${formatExpression(duration)}`;
}

const formatAs = (name: string | undefined): string => (name === undefined ? '' : ` as ${name}`);
const formatPackets = (packets: readonly PacketSpec[]): string => packets.map(formatPacket).join(' or ');

function formatStatement(statement: Exclude<Statement, { kind: 'repeat' }>): string {
  switch (statement.kind) {
    case 'title':
    case 'clause':
      return `${statement.kind} "${statement.text}"`;
    case 'needs':
      return `needs ${statement.what.join(' ')}`;
    case 'let':
    case 'set':
      return `${statement.kind} ${statement.name} = ${formatExpression(statement.value)}`;
    case 'send':
      return `> ${formatPacket(statement.packet)}${formatAs(statement.as)}`;
    case 'expect': {
      const { packets, after, within, as } = statement;
      const times = [after && `after ${formatExpression(after)}`, within && `within ${formatExpression(within)}`];
      return `< ${[formatPackets(packets), ...times.filter(Boolean)].join(' ')}${formatAs(as)}`;
    }
    case 'none':
      return `none < ${formatPackets(statement.packets)} for ${formatExpression(statement.duration)}`;
    case 'ignore':
      return `ignore < ${formatPackets(statement.packets)}`;
    case 'wait':
      return `wait ${formatExpression(statement.duration)}`;
    case 'check': {
      const text = statement.text === undefined ? '' : ` "${statement.text}"`;
      return `check ${formatExpression(statement.condition)}${text}`;
    }
    case 'measure':
      return `measure ${statement.from} to ${statement.to} as ${statement.as}`;
  }
}

/** Returns a packet as a script writes it. */
export function formatPacket({ operation, fields }: PacketSpec): string {
  return [operation, ...fields.map(formatField)].join(' ');
}

function formatField({ name, value, negated }: Field): string {
  switch (value.kind) {
    case 'flag':
      return `${negated ? '!' : ''}${name}`;
    case 'is':
      return `${name}=${formatExpression(value.value)}`;
    case 'not':
      return `${name}!=${formatExpression(value.value)}`;
    case 'range':
      return `${name}=${formatExpression(value.low)}..${formatExpression(value.high)}`;
    case 'bind':
      return `${name}=>${value.name}`;
  }
}

/** Returns an expression as a script writes it. */
export function formatExpression(expression: Expression): string {
  switch (expression.kind) {
    case 'number':
      return expression.text;
    case 'duration':
      return `${expression.text}${expression.unit}`;
    case 'string':
      return `"${expression.value}"`;
    case 'name':
      return expression.path.join('.');
    case 'call':
      return `${expression.name}(${expression.arguments.map(formatExpression).join(', ')})`;
    case 'unary':
      return `${expression.operator}${formatExpression(expression.operand)}`;
    case 'binary':
      return `${formatExpression(expression.left)} ${expression.operator} ${formatExpression(expression.right)}`;
    case 'group':
      return `(${formatExpression(expression.inner)})`;
  }
}
