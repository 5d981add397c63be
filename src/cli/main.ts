#!/usr/bin/env node
/** The command `wasm-roce`. */
import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { WcError } from '../index.js';
import { demoCommand } from './demo.js';
import { devinfoCommand } from './devinfo.js';
import { endpointCommand } from './endpoint.js';
import { CliError, EXIT_HELP, Exit, errorReport, exitOf, Stopped } from './exit.js';
import { netcatCommands } from './netcat.js';
import { perftestCommands } from './perftest.js';
import { pingpongCommand } from './pingpong.js';
import { rpingCommand } from './rping.js';
import { statCommand } from './stat.js';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));

const program = new Command('wasm-roce')
  .description('RDMA over Converged Ethernet (RoCE v2) with a network card made of software')
  // without a letter: -V is an option of rping
  .version(`wasm-roce ${version}`, '--version', 'print the version')
  .option('--debug', 'print the stack of an error')
  .addHelpText(
    'after',
    `
Examples:
  wasm-roce demo                     two cards, every operation, a table of what it took
  wasm-roce devinfo                  what this machine offers
  wasm-roce pingpong                 wait for ibv_rc_pingpong, or for another wasm-roce
  wasm-roce pingpong 192.0.2.7 -c    talk to it
  wasm-roce ud-pingpong              wait for ibv_ud_pingpong; uc-pingpong and srq-pingpong likewise
  wasm-roce rping -s                 wait for rping, which connects by rdma_cm
  wasm-roce listen 7471 > copy       a pipe to wasm-roce connect HERE 7471 < file
  wasm-roce stat --watch             what devices of other processes count
  wasm-roce endpoint --serve echo    a card that serves until it is stopped
${EXIT_HELP}`,
  )
  // one line: commander puts what it suggests instead on a second
  .configureOutput({
    outputError: (text, write) => write(text.replace(/^error: /, 'wasm-roce: ').replace(/\n(?=\()/, ' ')),
  })
  .exitOverride();

// Namespaces, interfaces, sockets and memory all end with the processes that hold them, and a capture is whole after
// every turn: nothing needs tidying up, so the end may be immediate.
process.on('SIGINT', () => process.exit(Exit.INTERRUPTED));
process.on('SIGTERM', () => process.exit(Exit.TERMINATED));
// A reader that has seen enough, `| head` for instance, is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? Exit.OK : Exit.FAILED),
);

devinfoCommand(program);
pingpongCommand(program);
perftestCommands(program);
rpingCommand(program);
netcatCommands(program);
demoCommand(program);
statCommand(program);
endpointCommand(program);
for (const command of program.commands) command.copyInheritedSettings(program);

process.exitCode = await run(process.argv);

async function run(argv: readonly string[]): Promise<number> {
  if (argv.length <= 2) {
    program.outputHelp({ error: true });
    return Exit.USAGE;
  }
  try {
    await program.parseAsync(argv);
    return Exit.OK;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? Exit.OK : Exit.USAGE;
    if (!(error instanceof Stopped)) report(error);
    return exitOf(error);
  }
}

function report(error: unknown): void {
  const { debug = false } = program.opts<{ debug?: boolean }>();
  const wantsJson = process.argv.includes('--json');
  if (wantsJson && !(error instanceof CliError && error.isReported))
    process.stdout.write(`${JSON.stringify({ ok: false, error: errorReport(error) })}\n`);
  process.stderr.write(`wasm-roce: ${oneLine(error)}\n`);
  if (error instanceof WcError && error.explanation.packets.length > 0)
    process.stderr.write(`the last packets of this queue pair:\n  ${error.explanation.packets.join('\n  ')}\n`);
  if (debug) process.stderr.write(`${(error as Error).stack}\n`);
}

/** A failed completion explains itself at length: the likeliest cause is enough here, all are in the JSON and with --debug. */
function oneLine(error: unknown): string {
  const [first = '', ...causes] = String((error as Error)?.message ?? error).split('\n');
  return causes.length > 0 ? `${first} (likely: ${causes[0]?.replace(/^\s*- /, '')})` : first;
}
