/** `wasm-roce script`: checks and formats scripts of packets. */
import { readFileSync, writeFileSync } from 'node:fs';
import { Argument, type Command } from 'commander';
import { checkScript, formatScript, parseScript, type Script, ScriptError } from '../probe.js';
import { CliError, EXIT_HELP, Exit } from './exit.js';
import { Output } from './output.js';

export function scriptCommand(program: Command): void {
  program
    .command('script')
    .summary('check and format scripts of packets')
    .description(
      'Works on scripts of packets (.roce). A script says which packets go to a peer and which ones it must answer; ' +
        'see docs/scripts.md. `check` names each mistake with its line and column. `format` writes the scripts in their ' +
        'one form: indentation, spaces, empty lines.',
    )
    .addArgument(new Argument('<action>', 'what to do').choices(['check', 'format']))
    .argument('<file...>', 'scripts')
    .option('--dry-run', 'format: write nothing, and fail if a script is not in its one form')
    .option('--json', 'check: print a JSON object with the mistakes')
    .addHelpText(
      'after',
      `
Examples:
  wasm-roce script check gap.roce
  wasm-roce script format --dry-run *.roce
${EXIT_HELP}`,
    )
    .action((action: 'check' | 'format', files: string[], { dryRun = false, json = false }) =>
      action === 'check' ? check(files, new Output(json)) : format(files, dryRun),
    );
}

function check(files: readonly string[], output: Output): void {
  const mistakes = files.flatMap(mistakesIn);
  for (const { message } of mistakes) output.line(message);
  const ok = mistakes.length === 0;
  if (ok) output.line(`${files.length} scripts without mistakes`);
  const places = mistakes.map(({ script, line, column, message }) => ({ script, line, column, message }));
  output.result({ ok, scripts: files.length, mistakes: places });
  if (!ok) throw new CliError(Exit.FAILED, `${mistakes.length} mistakes in scripts`, { isReported: true });
}

function mistakesIn(path: string): readonly ScriptError[] {
  try {
    return checkScript(read(path));
  } catch (error) {
    if (error instanceof ScriptError) return [error];
    throw error;
  }
}

function format(files: readonly string[], isDry: boolean): void {
  // all are read before one is written, so that a mistake leaves every file as it is
  const scripts = files.map((path) => ({ path, text: textOf(path), formed: formed(path) }));
  const others = scripts.filter(({ text, formed }) => text !== formed);
  if (isDry && others.length > 0)
    throw new CliError(Exit.FAILED, `not in their one form: ${others.map(({ path }) => path).join(', ')}`);
  for (const { path, formed } of others)
    try {
      writeFileSync(path, formed);
    } catch (cause) {
      throw new CliError(Exit.ENVIRONMENT, `${path} cannot be written: ${(cause as Error).message}`, { cause });
    }
}

function formed(path: string): string {
  try {
    return formatScript(read(path));
  } catch (error) {
    if (error instanceof ScriptError) throw new CliError(Exit.FAILED, error.message, { cause: error });
    throw error;
  }
}

const read = (path: string): Script => parseScript(textOf(path), path);

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new CliError(Exit.ENVIRONMENT, `${path} cannot be read: ${(cause as Error).message}`, { cause });
  }
}
