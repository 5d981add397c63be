/** The command line of `npm run bench`. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { relative, resolve } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { LINKS, MODES, Ours } from './contenders/ours.js';
import { type Kept, keep, kept, originOf } from './report/keep.js';
import { plots } from './report/plots.js';
import { withPart } from './report/readme.js';
import { asMarkdown, asText, digits, type Sheet } from './report/sheet.js';
import { summarySheet } from './report/summary.js';
import { targetsSheet } from './report/targets.js';
import { GuestRig, guestReason } from './rig/guest.js';
import { HostRig, hostUnavailable } from './rig/host.js';
import { type Noise, NoiseMeter } from './rig/noise.js';
import { PROGRAMS, ROOT } from './rig/paths.js';
import { type Context, type Settings, type Subject, Unavailable } from './tables/subject.js';
import { type Results, SUBJECTS, verdicts } from './tables/subjects.js';

const NAMES = SUBJECTS.map(({ name }) => name);
/** Tables that can compare two builds. */
const COMPARING = SUBJECTS.filter(({ comparesBuilds }) => comparesBuilds).map(({ name }) => name);

interface Flags {
  readonly rounds?: number;
  readonly quick?: boolean;
  readonly link?: readonly string[];
  readonly mode?: readonly string[];
  readonly before?: string;
  readonly readme: boolean;
  readonly publish?: boolean;
}

const several = (value: string) => {
  const count = Number(value);
  if (!Number.isInteger(count) || count < 1) throw new InvalidArgumentError('must be an integer of at least 1');
  return count;
};

const program = new Command('npm run bench --')
  .description('Measures this project and its alternatives in one run on one machine')
  .argument('[table...]', `tables to measure: ${NAMES.join(', ')}; default: all`)
  .option('--rounds <n>', 'rounds over all contenders; the tables show the medians', several)
  .option('--quick', 'fewer and shorter rounds: a quarter of the time')
  .option('--link <link...>', `measure these links only: ${LINKS.join(', ')}`)
  .option('--mode <mode...>', `measure these modes only: ${MODES.join(', ')}`)
  .option(
    '--before <folder>',
    'measure another build, too, in the same rounds: a clone of this project where `npm run bench` has run; ' +
      `for the tables ${COMPARING.join(', ')}`,
  )
  .option('--no-readme', 'do not update the tables of bench/README.md, README.md and docs/performance.md')
  .option('--publish', 'update them after a run of some tables too, with stored results for the others')
  .addHelpText(
    'after',
    '\nA run of all tables updates bench/README.md, its plots, and the figures of README.md and\ndocs/performance.md, unless it is quick or restricted.\nThe results of every table are stored in build/bench/TABLE.json.',
  );

program.parse();
const flags = program.opts<Flags>();
const wanted = program.args.length > 0 ? program.args : NAMES;
const unknown = wanted.filter((name) => !NAMES.includes(name));
if (unknown.length > 0) program.error(`unknown table ${unknown.join(', ')}; the tables are ${NAMES.join(', ')}`);

const settings: Settings = {
  rounds: flags.rounds ?? (flags.quick ? 2 : 5),
  ...(flags.quick ? { warmMs: 60, ms: 120 } : { warmMs: 100, ms: 250 }),
  isQuick: flags.quick ?? false,
};

/** The open rigs. Their child processes end with this process, whatever ends it. */
const rigs: { host?: Promise<HostRig>; guest?: Promise<GuestRig> } = {};

const ours = (): Ours[] =>
  (flags.link ?? LINKS).flatMap((link) => (flags.mode ?? MODES).map((mode) => new Ours({ link, mode })));

/** The folder of the compiled programs of the build before. @throws Error if there is none */
function programsBefore(): string | undefined {
  if (flags.before === undefined) return undefined;
  const without = wanted.filter((name) => !COMPARING.includes(name));
  if (without.length > 0)
    program.error(`--before is for the tables ${COMPARING.join(', ')}, not for ${without.join(', ')}`);
  const programs = resolve(flags.before, relative(ROOT, PROGRAMS));
  if (existsSync(`${programs}/js`)) return programs;
  return program.error(`--before is ${flags.before}, where no programs are in ${programs}/js: run npm run bench there`);
}

const before = programsBefore();

const context: Omit<Context, 'noise'> = {
  settings,
  async host(): Promise<HostRig> {
    const reason = hostUnavailable();
    if (reason !== undefined) throw new Unavailable(reason);
    rigs.host ??= HostRig.open();
    return rigs.host;
  },
  async guest(): Promise<GuestRig> {
    const reason = guestReason();
    if (reason !== undefined) throw new Unavailable(`the virtual machine ${reason}`);
    rigs.guest ??= GuestRig.open();
    return rigs.guest;
  },
  ours,
  oursOfBuilds: () =>
    ours().flatMap((each) => [each, ...(before ? [new Ours({ ...each.options, programs: before })] : [])]),
  progress: (what) => process.stderr.write(`bench: ${what}\n`),
};

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    void closeAll().finally(() => process.exit(signal === 'SIGINT' ? 130 : 143));
  });
}

async function closeAll(): Promise<void> {
  for (const rig of Object.values(rigs)) await rig.then((open) => open.close()).catch(() => {});
}

async function measure(subject: Subject): Promise<Kept> {
  const origin = originOf(settings, subject.comparesBuilds ? flags.before : undefined);
  try {
    const noise = new NoiseMeter();
    const data = await subject.measure({ ...context, noise });
    const { summary } = noise;
    return { subject: subject.name, ...origin, ...(summary && { noise: summary }), data };
  } catch (error) {
    // A failure of one table must not lose the others.
    const isExpected = error instanceof Unavailable;
    if (!isExpected) process.exitCode = 1;
    const { message } = error as Error;
    return { subject: subject.name, ...origin, skipped: isExpected ? message : `failed: ${message}` };
  }
}

function sheetsOf(subject: Subject, result: Kept): Sheet[] {
  const { data, noise, skipped } = result;
  if (data === undefined) return [{ title: subject.title, head: ['skipped'], rows: [[skipped ?? '']] }];
  const notes = noise ? [noiseLine(noise)] : [];
  return subject
    .sheets(data)
    .map((sheet, i) => (i === 0 ? { ...sheet, notes: [...(sheet.notes ?? []), ...notes] } : sheet));
}

function resultsOf(names: readonly string[]): Results {
  return Object.fromEntries(names.map((name) => [name, kept(name)?.data]).filter(([, data]) => data !== undefined));
}

function publish(): void {
  const all = SUBJECTS.flatMap((subject) => kept(subject.name) ?? []);
  // Tables of different runs may come from different machines or commits; usually all are the same.
  const origins = [...new Set(all.map(lineOf))];
  const line = origins.join(' — ');
  const results = resultsOf(NAMES);
  const drawn = plots(results, line);
  for (const [name, svg] of Object.entries(drawn)) writeFileSync(`${ROOT}/bench/${name}`, svg);
  const images = Object.keys(drawn).map((name) => `![${name.replace('.svg', '')}](${name})`);
  const targets = asMarkdown(targetsSheet(verdicts(results)));
  const tables = SUBJECTS.map((subject) => {
    const result = kept(subject.name);
    const origin = result && origins.length > 1 ? [lineOf(result)] : [];
    const before = result?.before === undefined ? [] : [`Rows with "before" are of commit ${result.before}.`];
    return [
      `### ${subject.title}`,
      ...origin,
      ...before,
      ...(result ? sheetsOf(subject, result).map(asMarkdown) : []),
    ].join('\n\n');
  });
  const parts = [line, ...images, '### Targets', targets, ...tables];
  rewrite('bench/README.md', 'results', parts.join('\n\n'));
  rewrite('README.md', 'bench', `${asMarkdown(summarySheet(results))}\n\n${line}`);
  rewrite('docs/performance.md', 'bench', `${targets}\n\n${line}`);
}

function lineOf({ machine, commit, date, settings: { rounds } }: Kept): string {
  return `${machine}; commit ${commit}; ${date}; medians of ${rounds} round${rounds === 1 ? '' : 's'}`;
}

/** Says how much the machine varied while a table was measured. */
function noiseLine({ min, max, turns, repeated }: Noise): string {
  return `A loop of fixed length took ${digits(min)} to ${digits(max)} ms meanwhile. Turns that were repeated because this had changed by more than a quarter: ${repeated} of ${turns}.`;
}

function rewrite(path: string, name: string, part: string): void {
  const file = `${ROOT}/${path}`;
  writeFileSync(file, withPart(readFileSync(file, 'utf8'), name, part));
}

try {
  for (const subject of SUBJECTS.filter(({ name }) => wanted.includes(name))) {
    context.progress(subject.title);
    const result = await measure(subject);
    keep(result);
    for (const sheet of sheetsOf(subject, result))
      console.log(asText({ ...sheet, title: `${subject.title}\n${sheet.title}` }));
  }
  const judged = verdicts(resultsOf(wanted)).filter(({ isReached }) => isReached !== undefined);
  if (judged.length > 0) console.log(asText(targetsSheet(judged)));
  const isWhole = wanted.length === NAMES.length && !flags.quick && !flags.link && !flags.mode && !before;
  if (flags.publish || (isWhole && flags.readme)) publish();
} finally {
  await closeAll();
}
