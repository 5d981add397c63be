/** The command line of `npm run attack`. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { Command, InvalidArgumentError, Option } from 'commander';
import { asText, digits } from '../report/sheet.js';
import { hostUnavailable } from '../rig/host.js';
import { PROGRAMS } from '../rig/paths.js';
import { FIGURES, type FigureName, ROWS } from './rows.js';
import { type Outcome, runRow, type Setting } from './run.js';
import { type Family, Site } from './site.js';

const LINKS = ['packet', 'udp', 'xdp'];
const MODES = ['inline', 'worker'];
const FAMILIES = ['4', '6'];

interface Flags {
  readonly seconds: number;
  readonly row?: readonly string[];
  readonly link: readonly string[];
  readonly mode: readonly string[];
  readonly family: readonly string[];
  readonly all?: true;
}

const positive = (value: string) => {
  const number = Number(value);
  if (!(number > 0)) throw new InvalidArgumentError('must be a number greater than 0');
  return number;
};
const oneOf = (name: string, values: readonly string[], text: string) =>
  new Option(`--${name} <${name}...>`, text).choices(values).default(values.slice(0, 1));

const program = new Command('npm run attack --')
  .description('Attacks a target and measures what is left for honest clients')
  .option('--row <name...>', 'rows, by the beginning of their names; default: all')
  .addOption(oneOf('link', LINKS, 'links of the target'))
  .addOption(oneOf('mode', MODES, 'modes of the target'))
  .addOption(oneOf('family', FAMILIES, 'versions of IP'))
  .option('--all', 'all links, modes and versions of IP')
  .option('--seconds <n>', 'duration of each attack, and of the honest traffic alone before it', positive, 5)
  .addHelpText(
    'after',
    `\nRows:\n${ROWS.map(({ attack, rate }) => `  ${attack}${rate > 0 ? `, ${rate}/s` : ''}`).join('\n')}`,
  )
  .addHelpText(
    'after',
    '\nThe figures are stored in build/bench/attack.json. The exit status is 1 if a bound does not hold.',
  );
program.parse();
const { seconds, row: names, all, ...chosen } = program.opts<Flags>();
const { link: links, mode: modes, family: families } = all ? { link: LINKS, mode: MODES, family: FAMILIES } : chosen;
const isWanted = (attack: string) =>
  names === undefined || names.some((begin) => attack.toLowerCase().startsWith(begin.toLowerCase()));
const rows = ROWS.filter(({ attack }) => isWanted(attack));
if (rows.length === 0) program.error(`no row begins with ${names?.join(' or ')}`);
const settings = links.flatMap((link) =>
  modes.flatMap((mode) => families.map((family): Setting => ({ link, mode, family: Number(family) as Family }))),
);
const nameOf = ({ link, mode, family }: Setting) => `${link}, ${mode}, IPv${family}`;

const unavailable = hostUnavailable();
if (unavailable !== undefined) program.error(unavailable);

const outcomes: Outcome[] = [];
const failures: string[] = [];
for (const setting of settings) {
  for (const row of rows) {
    process.stderr.write(`attack: ${nameOf(setting)}: ${row.attack}${row.rate > 0 ? `, ${row.rate}/s` : ''}\n`);
    const site = await Site.open();
    try {
      outcomes.push(await runRow(site, setting, row, { ms: seconds * 1000 }));
    } catch (error) {
      failures.push(`${nameOf(setting)}: ${row.attack}: ${(error as Error).message}`);
    } finally {
      await site[Symbol.asyncDispose]();
    }
  }
}

const figureNames = Object.keys(FIGURES) as FigureName[];
const cell = ({ figures, verdicts }: Outcome, name: FigureName) => {
  const verdict = verdicts.find(({ figure }) => figure === name);
  return `${Number.isFinite(figures[name]) ? digits(figures[name]) : 'none'}${verdict?.holds === false ? ' ✗' : ''}`;
};
console.log(
  asText({
    title: `Under attack: ${seconds} s each. ✗: the bound does not hold`,
    head: [
      'target',
      'attack',
      'attacker, a second',
      ...figureNames.map((name) => FIGURES[name]),
      'memory MiB',
      'flow MiB/s',
      'preempted',
    ],
    rows: outcomes.map((outcome) => [
      nameOf(outcome),
      outcome.row.attack,
      digits(outcome.detail.sentPerSecond),
      ...figureNames.map((name) => cell(outcome, name)),
      `${digits(outcome.detail.memoryBefore)} → ${digits(outcome.detail.memoryAfter)}`,
      `${digits(outcome.detail.flowBefore)} → ${digits(outcome.detail.flowDuring)}`,
      `${digits(100 * outcome.detail.preempted)} %`,
    ]),
    notes: [...new Set(outcomes.flatMap(({ verdicts }) => verdicts.map(({ bound }) => `must hold: ${bound}`)))],
  }),
);
for (const failure of failures) console.log(`failed: ${failure}`);
mkdirSync(PROGRAMS, { recursive: true });
writeFileSync(`${PROGRAMS}/attack.json`, `${JSON.stringify(outcomes, undefined, 2)}\n`);
if (failures.length > 0 || outcomes.some(({ verdicts }) => verdicts.some(({ holds }) => !holds))) process.exitCode = 1;
