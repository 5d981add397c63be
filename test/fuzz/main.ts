/**
 * The command line of `npm run fuzz`. Each target runs in a child process, so that a crash or a hang is found too. The
 * inputs of a failed epoch are kept in corpus/found/, with the command that repeats it.
 *
 * With --asan the child loads an addon that was built with the address sanitizer and the undefined behaviour sanitizer.
 * Of the card itself, the bounds of WebAssembly and the checks of the targets take care. See CONTRIBUTING.md.
 */
import { execFileSync, spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync } from 'node:fs';
import Module from 'node:module';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, InvalidArgumentError } from 'commander';
import { FuzzFailure, type FuzzTarget, fuzz, readJournal, replay } from './fuzzer.js';
import { PROTOCOL_TARGETS } from './protocols/all.js';
import { TARGETS as REAL_TARGETS } from './targets.js';

interface Flags {
  readonly target?: readonly string[];
  readonly seconds: number;
  readonly seed: number;
  readonly asan?: boolean;
  readonly replay?: string;
  readonly child?: boolean;
}

const TARGETS = [...REAL_TARGETS, ...PROTOCOL_TARGETS];
const MAIN = fileURLToPath(import.meta.url);
const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const FOUND = fileURLToPath(new URL('corpus/found/', import.meta.url));
/** A child that reports no batch for so long hangs. */
const SILENCE_MS = 120_000;
const ADDON = process.env.WASM_ROCE_FUZZ_ADDON;
/** The handler of segmentation faults stays V8's, which needs it for WebAssembly. */
const SANITIZER_OPTIONS = {
  ASAN_OPTIONS: 'detect_leaks=0:handle_segv=0:abort_on_error=1',
  UBSAN_OPTIONS: 'print_stacktrace=1:abort_on_error=1',
};

const whole = (value: string) => {
  const number = Number(value);
  if (!Number.isInteger(number) || number < 0) throw new InvalidArgumentError('must be an integer, 0 or more');
  return number;
};

const names = TARGETS.map(({ name, about }) => `  ${name.padEnd(14)} ${about}`).join('\n');
const program = new Command('npm run fuzz --')
  .description('Gives random inputs to the card, the addon, the connection manager, the verbs and all protocols')
  .option('--target <name...>', 'targets; default: all')
  .option('--seconds <n>', 'duration of each target', whole, 60)
  .option('--seed <n>', 'seed; default: random', whole, Math.floor(Math.random() * 2 ** 32))
  .option('--asan', 'with an addon that has the address and undefined behaviour sanitizers')
  .option('--replay <file>', 'repeat the inputs of a file of corpus/found')
  .option('--child', 'run one target in this process')
  .addHelpText('after', `\nTargets:\n${names}\n\nThe exit status is 1 if something was found.`);
program.parse();
const flags = program.opts<Flags>();

const journalOf = ({ name }: FuzzTarget) => `${ROOT}build/fuzz/${name}.hex`;

function chosen(): FuzzTarget[] {
  const wanted = flags.replay === undefined ? flags.target : [readJournal(flags.replay).target];
  return (wanted ?? TARGETS.map(({ name }) => name)).map((name) => {
    const target = TARGETS.find((each) => each.name === name);
    return target ?? program.error(`there is no target ${name}; there are ${TARGETS.map((each) => each.name)}`);
  });
}

/** Runs one target in this process. The number of inputs goes to the parent. */
async function runChild(target: FuzzTarget): Promise<void> {
  // programs that the target starts do without the sanitizers
  delete process.env.LD_PRELOAD;
  if (ADDON !== undefined) useAddon(ADDON);
  if (target.isVirtual) await import('../kit/virtualclock.js');
  let told = 0;
  const onBatch = (inputs: number) => {
    if (Date.now() - told < 1000) return;
    told = Date.now();
    process.send?.(inputs);
  };
  try {
    if (flags.replay !== undefined) await replay(target, readJournal(flags.replay));
    else process.send?.(await fuzz(target, { ...flags, journal: journalOf(target), onBatch }));
  } catch (error) {
    if (!(error instanceof FuzzFailure)) throw error;
    console.error(error.message);
    process.exitCode = 1;
  }
  process.disconnect?.();
}

/** Lets `src/native.ts` load another addon than the one of the package. */
function useAddon(path: string): void {
  const loaders = (Module as unknown as { _extensions: Record<string, (module: object, file: string) => void> })
    ._extensions;
  const load = loaders['.node'] as (module: object, file: string) => void;
  loaders['.node'] = (module, file) => load(module, file.endsWith('/wasm_roce.node') ? path : file);
}

/** Runs one target in a child. @returns the failure, or undefined; and the number of inputs */
function supervise(target: FuzzTarget): Promise<{ failure: string | undefined; inputs: number }> {
  const rest = ['--seconds', flags.seconds, '--seed', flags.seed].map(String);
  const replayed = flags.replay === undefined ? [] : ['--replay', flags.replay];
  const args = ['--import', 'tsx', MAIN, '--child', '--target', target.name, ...rest, ...replayed];
  const sanitizers = ADDON === undefined ? {} : { ...SANITIZER_OPTIONS, LD_PRELOAD: libasan() };
  const child = spawn(process.execPath, args, {
    env: { ...process.env, ...sanitizers },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  let inputs = 0;
  let hangs = false;
  const hang = () => {
    hangs = true;
    child.kill('SIGKILL');
  };
  let watchdog = setTimeout(hang, SILENCE_MS);
  child.on('message', (count) => {
    inputs = count as number;
    clearTimeout(watchdog);
    watchdog = setTimeout(hang, SILENCE_MS);
  });
  return new Promise((resolve) => {
    child.on('close', (status, signal) => {
      clearTimeout(watchdog);
      const how = signal === null ? `ends with status ${status}` : `is ended by ${signal}`;
      const failure = hangs ? `reports nothing for ${SILENCE_MS / 1000} s` : how;
      resolve({ failure: status === 0 ? undefined : failure, inputs });
    });
  });
}

const libasan = () =>
  execFileSync(process.env.CXX ?? 'g++', ['-print-file-name=libasan.so'], { encoding: 'utf8' }).trim();

/** Keeps the inputs of a failed target, and says how to repeat it. */
function keep(target: FuzzTarget): void {
  if (flags.replay !== undefined) return;
  mkdirSync(FOUND, { recursive: true });
  const file = `${FOUND}${target.name}-${flags.seed}.hex`;
  copyFileSync(journalOf(target), file);
  const shown = relative(ROOT, file);
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
  const last = lines.slice(lines.lastIndexOf('') + 1);
  console.error(`the last inputs, of which one is the culprit:\n${last.join('\n')}`);
  console.error(`to repeat: npm run fuzz -- ${flags.asan ? '--asan ' : ''}--replay ${shown}`);
}

if (flags.child) {
  await runChild(chosen()[0] as FuzzTarget);
} else {
  console.log(`seed ${flags.seed}${flags.asan ? ', with sanitizers' : ''}`);
  for (const target of chosen()) {
    const reason = target.unavailable?.();
    if (reason !== undefined) {
      console.log(`${target.name}: skipped: ${reason}`);
      continue;
    }
    const { failure, inputs } = await supervise(target);
    console.log(`${target.name}: ${failure ?? 'nothing found'}, ${inputs} inputs`);
    if (failure === undefined) continue;
    keep(target);
    process.exitCode = 1;
  }
}
