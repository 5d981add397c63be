#!/usr/bin/env node
/** The command `wasm-roce`. */
import { CommanderError } from 'commander';
import { printable, printableJson, printableText } from '../base/printable.js';
import { WcError } from '../index.js';
import { CliError, Exit, errorReport, exitOf, Stopped } from './exit.js';
import { styled } from './output.js';
import { createProgram } from './program.js';

// Namespaces, interfaces, sockets and memory are released with the processes that hold them, and a capture is complete
// after every turn. Nothing needs cleaning up, so the process exits at once.
process.on('SIGINT', () => process.exit(Exit.INTERRUPTED));
process.on('SIGTERM', () => process.exit(Exit.TERMINATED));
// A reader that closes the pipe early, such as `| head`, is not a failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? Exit.OK : Exit.FAILED),
);

const program = await createProgram(process.argv[2]);
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
    process.stdout.write(`${printableJson({ ok: false, error: errorReport(error) })}\n`);
  // a progress line may be there
  if (process.stderr.isTTY) process.stderr.write('\r\u001b[K');
  process.stderr.write(`${styled('red', 'wasm-roce:', process.stderr)} ${printable(oneLine(error))}\n`);
  if (error instanceof WcError && error.explanation.packets.length > 0) {
    const { packets, decisions } = error.explanation;
    process.stderr.write(`the last packets of this queue pair:\n  ${packets.join('\n  ')}\n`);
    if (decisions.length > 0) process.stderr.write(`what it decided:\n  ${decisions.join('\n  ')}\n`);
  }
  if (debug) process.stderr.write(`${printableText(String((error as Error).stack))}\n`);
}

/** The message of a failed completion lists its likely causes. This keeps the first; the JSON and --debug show all. */
function oneLine(error: unknown): string {
  const [first = '', ...causes] = String((error as Error)?.message ?? error).split('\n');
  return causes.length > 0 ? `${first} (likely: ${causes[0]?.replace(/^\s*- /, '')})` : first;
}
