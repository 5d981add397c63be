/** `wasm-roce run`: runs an unchanged program of libibverbs on a card of its own. */
import { spawn } from 'node:child_process';
import { existsSync, statSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { brokerCommandLine } from '../../broker/commandline.js';
import { packageFile } from '../../packagefile.js';
import { CliError, EXIT_HELP, Exit } from '../exit.js';
import { faultRules, integer } from '../options.js';
import { findProgram, unreachable } from './executable.js';

interface Flags {
  readonly interface?: string;
  readonly explain?: true;
  readonly strict?: true;
  readonly report?: string;
  readonly pcap?: string;
  readonly fault?: readonly string[];
  readonly seed?: number;
  readonly stacks?: true;
  readonly printEnv?: true;
}

/** Statuses of a shell for a program that cannot be run. */
const NOT_EXECUTABLE = 126;
const NOT_FOUND = 127;

const HELP = `
The program needs no change, no kernel module and no privilege. It sees one device, wroce0, on a network interface of
this host, and speaks RoCE v2 over UDP port 4791 with rxe, adapters, and other programs run like it. Programs share the
addresses of the interface through the broker; see \`wasm-roce broker --help\`.

Programs that it starts run in the same way. Programs that are linked statically, or that change the user (set-user-id),
cannot be reached. Programs that connect by rdma_cm (librdmacm) need the broker.

Examples:
  wasm-roce run -- ibv_devinfo -v
  wasm-roce run -- ib_write_bw                      the server of perftest
  wasm-roce run --interface eth1 -- ib_write_bw 10.0.0.2
  wasm-roce run --explain --report - -- ./rdma_test
  wasm-roce run --fault 'drop the 5th WRITE_MIDDLE' -- ib_write_bw 10.0.0.2
${EXIT_HELP.replace('0 done, ', `as that of the program; ${NOT_FOUND} it is not found, ${NOT_EXECUTABLE} it cannot be reached;\n`)}`;

export function runCommand(program: Command): void {
  program
    .enablePositionalOptions()
    .command('run')
    .summary('run a program of libibverbs, unchanged')
    .description('Runs a program that uses libibverbs (C, C++, Rust, Go, Python) on a card of its own.')
    .argument('[program]', 'the program')
    .argument('[arguments...]', 'its arguments')
    .option('--interface <name>', 'network interface of the device. Default: the first one that is up, not lo')
    .option('--explain', 'say on stderr why a request or a queue of the program has failed')
    .option('--strict', 'end the program, with the reason, when it misuses verbs as adapters do not forgive')
    .option('--fault <rule>', "rule of faults, such as 'drop the 5th WRITE_MIDDLE'; may be repeated", faultRules)
    .option('--seed <n>', 'seed of rules by chance. Default: 1', integer(0, 2 ** 31 - 1))
    .option('--pcap <file>', 'write the frames of its processes to a pcapng file for Wireshark')
    .option('--report <file>', 'write a report when it ends, to a file or - (stderr)')
    .option('--print-env', 'print the variables of its environment as lines NAME=value, and run nothing')
    .option('--stacks', 'with --report: name the calls that made the objects that it leaves')
    .passThroughOptions()
    .addHelpText('after', HELP)
    .action((name: string | undefined, args: string[], flags: Flags) => run(name, args, flags));
}

async function run(name: string | undefined, args: readonly string[], flags: Flags): Promise<void> {
  if (flags.stacks && flags.report === undefined) throw new CliError(Exit.USAGE, '--stacks needs --report');
  if (flags.seed !== undefined && flags.fault === undefined) throw new CliError(Exit.USAGE, '--seed needs --fault');
  if (flags.printEnv) {
    if (name !== undefined) throw new CliError(Exit.USAGE, `--print-env runs no program: ${name}`);
    for (const [variable, value] of Object.entries(environment(flags))) process.stdout.write(`${variable}=${value}\n`);
    return;
  }
  if (name === undefined) throw new CliError(Exit.USAGE, 'a program is missing');
  const path = findProgram(name);
  if (path === undefined) throw new CliError(NOT_FOUND, `${name}: there is no such program`, { code: 'ENOENT' });
  const reason = unreachable(path);
  if (reason !== undefined) throw new CliError(NOT_EXECUTABLE, `${name} cannot be run on the card: ${reason}`);
  await spawned(path, name, args, { ...process.env, ...environment(flags), WASM_ROCE_RUNNER: `${process.pid}` });
}

/** Returns the variables that make a program use the library. */
function environment(flags: Flags): Record<string, string> {
  const library = packageFile(`prebuilds/linux-${process.arch}/libwasmroce.so`);
  if (!existsSync(library))
    throw new CliError(Exit.ENVIRONMENT, `the package has no library for ${process.platform} on ${process.arch}`);
  return {
    LD_PRELOAD: [library, process.env.LD_PRELOAD].filter(Boolean).join(':'),
    WASM_ROCE_BROKER_COMMAND: process.env.WASM_ROCE_BROKER_COMMAND ?? shellWords(brokerCommandLine()),
    ...settingsOf(flags),
  };
}

/** Returns the variables of the library for the options that are given. */
function settingsOf({
  interface: name,
  explain,
  strict,
  fault,
  seed,
  report,
  pcap,
  stacks,
}: Flags): Record<string, string> {
  return {
    ...(name !== undefined && { WASM_ROCE_INTERFACE: name }),
    ...(explain && { WASM_ROCE_EXPLAIN: '1' }),
    ...(strict && { WASM_ROCE_STRICT: '1' }),
    ...(fault && { WASM_ROCE_FAULT: fault.join('\n') }),
    ...(seed !== undefined && { WASM_ROCE_FAULT_SEED: `${seed}` }),
    ...(report !== undefined && { WASM_ROCE_REPORT: report === '-' ? report : emptied('--report', report) }),
    ...(pcap !== undefined && { WASM_ROCE_PCAP: emptied('--pcap', pcap) }),
    ...(stacks && { WASM_ROCE_STACKS: '1' }),
  };
}

/** Empties a file of an option: programs append to it, wherever they are. @returns its path */
function emptied(option: string, file: string): string {
  try {
    // a pipe, say, is as its reader has made it
    if (statSync(file, { throwIfNoEntry: false })?.isFile() !== false) writeFileSync(file, '', { mode: 0o600 });
  } catch (error) {
    throw new CliError(Exit.USAGE, `${option} ${file}: ${(error as Error).message}`);
  }
  return resolve(file);
}

/** Returns words as a command of the shell. */
const shellWords = (words: readonly string[]) => words.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(' ');

/** Signals of a terminal reach the program, too; the others are passed on. */
const OF_TERMINAL = ['SIGINT', 'SIGQUIT'] as const;
const PASSED_ON = ['SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGUSR2'] as const;

/** Runs a program, and ends as it ends. */
async function spawned(path: string, name: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<void> {
  const child = spawn(path, args, { env, argv0: name, stdio: 'inherit' });
  for (const each of OF_TERMINAL) process.removeAllListeners(each).on(each, () => {});
  for (const each of PASSED_ON) process.removeAllListeners(each).on(each, () => child.kill(each));
  const [status, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.on('exit', (...ended) => resolve(ended));
    child.on('error', ({ message }) =>
      reject(new CliError(NOT_EXECUTABLE, `${name} cannot be run: ${message}`, { code: 'EACCES' })),
    );
  });
  if (signal === null) process.exit(status ?? Exit.FAILED);
  for (const each of [...OF_TERMINAL, ...PASSED_ON]) process.removeAllListeners(each);
  process.kill(process.pid, signal);
  process.exit(128 + constants.signals[signal]);
}
