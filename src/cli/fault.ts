/** `wasm-roce fault`: rules of faults for the devices of running programs. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, InvalidArgumentError } from 'commander';
import { type DeviceStat, type FaultState, type RemoteDevice, remoteDevices } from '../index.js';
import { CliError, EXIT_HELP, Exit, stopSignal, usageError } from './exit.js';
import { faultRules, integer, quantity } from './options.js';
import { Output } from './output.js';

interface Flags {
  readonly interface?: string;
  readonly pid?: readonly number[];
  readonly seed?: number;
  readonly for?: number;
  readonly keep?: boolean;
  readonly list?: boolean;
  readonly remove?: 'all' | number;
  readonly json?: boolean;
}

/** A device that the command works on, with its state. */
interface Target {
  readonly device: RemoteDevice;
  readonly stat: DeviceStat;
}

/** A rule as the command prints it. */
interface Line extends FaultState {
  readonly pid: number;
  readonly device: string;
}

/** A rule that the command has added. */
interface Added {
  readonly target: Target;
  readonly state: FaultState;
}

const MAX_PID = 2 ** 22;

const HELP = `
Without --keep the rules end with this command: by Ctrl-C, after --for, or with the programs. The programs are those that
share the addresses of this host (wasm-roce broker) and run as the broker's user; root reaches all. docs/scripts.md has
the rules for packets. Events of the host are rules too: 'port down', 'gid add ADDRESS', 'gid remove ADDRESS',
'gid move ADDRESS to INDEX', and 'device failure', which cannot be undone.

Examples:
  wasm-roce fault --interface eth0 'drop 1 % of ACK'
  wasm-roce fault --pid 1234 --for 5 'port down'
  wasm-roce fault --keep 'delay by 1ms every WRITE_LAST received'
  wasm-roce fault --list
  wasm-roce fault --remove all
${EXIT_HELP.replace('0 done', '0 done or stopped')}`;

export function faultCommand(program: Command): void {
  program
    .command('fault')
    .summary('disturb the devices of running programs by rules')
    .description(
      'Adds rules of faults to the devices of running programs: packets are dropped, delayed or changed, ports go down, ' +
        'GIDs change, devices fail. Prints how many packets each rule has hit when it ends. Without rules: --list.',
    )
    .argument('[rules...]', "such as 'drop the 5th WRITE_MIDDLE'")
    .option('--interface <name>', 'only devices on this interface')
    .option('--pid <pid>', 'only devices of this process; may be repeated', pids)
    .option('--seed <n>', 'seed of rules by chance: the same seed repeats them', integer(0, 2 ** 31 - 1))
    .option('--for <s>', 'end the rules after so many seconds', quantity(86_400))
    .option('--keep', 'leave the rules in force until --remove, or until the programs end')
    .option('--list', 'show the rules in force')
    .option('--remove <id>', "remove the rule with this number, or 'all'", removed)
    .option('--json', 'print only a JSON array')
    .addHelpText('after', HELP)
    .action(fault);
}

function pids(text: string, before: readonly number[] = []): readonly number[] {
  return [...before, integer(1, MAX_PID)(text)];
}

const removed = (text: string): 'all' | number => (text === 'all' ? text : integer(1, 2 ** 31 - 1)(text));

async function fault(rules: readonly string[], flags: Flags): Promise<void> {
  const { keep = false, remove, seed = Math.floor(Math.random() * 2 ** 31), json = false } = flags;
  if (rules.length > 0 && (flags.list || remove !== undefined)) throw usageError('--list and --remove take no rules');
  if (keep && flags.for !== undefined) throw usageError('--keep and --for exclude each other');
  checkRules(rules);
  const output = new Output(json);
  const stop = stopSignal();
  const targets = await targetsOf(flags);
  try {
    if (remove !== undefined) return print(output, await removeFrom(targets, remove), 'removed');
    if (rules.length === 0) return print(output, await faultsOf(targets), 'no rule of faults is in force');
    const added = await addTo(targets, rules, { seed, keep });
    const lines = added.map(({ target, state }) => lineOf(target, state));
    if (keep) return print(output, lines, '');
    for (const line of lines) output.line(textOf(line));
    await ended(targets, stop, flags.for);
    print(output, await hitsOf(targets, added), 'the programs have ended');
  } finally {
    for (const { device } of targets) device.close();
  }
}

/** @throws CliError */
function checkRules(rules: readonly string[]): void {
  try {
    rules.reduce<readonly string[]>((before, rule) => faultRules(rule, before), []);
  } catch (error) {
    if (error instanceof InvalidArgumentError) throw usageError(error.message);
    throw error;
  }
}

/** @throws CliError ENODEV if there is no such device */
async function targetsOf({ interface: name, pid }: Flags): Promise<Target[]> {
  const devices = await remoteDevices();
  const found = await Promise.all(
    devices.map(async (device) => ({ device, stat: await device.stat().catch(() => undefined) })),
  );
  const all = found.filter((each): each is Target => each.stat !== undefined);
  const isWanted = ({ device, stat }: Target) =>
    (name === undefined || stat.interface === name) && (pid === undefined || pid.includes(device.pid));
  const targets = all.filter(isWanted);
  for (const each of devices) if (!targets.some(({ device }) => device === each)) each.close();
  if (targets.length > 0) return targets;
  const others = all.map(({ device, stat }) => `process ${device.pid} (${stat.command}) on ${stat.interface}`);
  throw new CliError(
    Exit.ENVIRONMENT,
    `no program has such a device; those that share addresses here: ${others.join(', ') || 'none'}`,
    { code: 'ENODEV' },
  );
}

const lineOf = ({ device, stat }: Target, state: FaultState): Line => ({
  pid: device.pid,
  device: stat.device,
  ...state,
});

async function faultsOf(targets: readonly Target[]): Promise<Line[]> {
  const lines = targets.map(async (target) => (await target.device.faults()).map((state) => lineOf(target, state)));
  return (await Promise.all(lines)).flat();
}

async function removeFrom(targets: readonly Target[], which: 'all' | number): Promise<Line[]> {
  const lines: Line[] = [];
  for (const target of targets)
    for (const { id } of await target.device.faults())
      if (which === 'all' || which === id) lines.push(lineOf(target, await target.device.removeFault(id)));
  if (lines.length === 0 && which !== 'all')
    throw new CliError(Exit.ENVIRONMENT, `no device has a rule of faults ${which}`, { code: 'ENOENT' });
  return lines;
}

async function addTo(
  targets: readonly Target[],
  rules: readonly string[],
  { seed, keep }: { readonly seed: number; readonly keep: boolean },
): Promise<Added[]> {
  const added: Added[] = [];
  try {
    for (const target of targets)
      for (const [i, rule] of rules.entries())
        added.push({ target, state: await target.device.addFault(rule, { seed: seed + i, keep }) });
  } catch (error) {
    // all of them or none
    for (const { target, state } of added) await target.device.removeFault(state.id).catch(() => {});
    throw error;
  }
  return added;
}

/** Waits until the command is stopped, the time is over, or all programs have ended. */
async function ended(targets: readonly Target[], stop: AbortSignal, seconds: number | undefined): Promise<void> {
  const gone = Promise.all(targets.map(({ device }) => device.closed()));
  const stopped = new Promise<void>((resolve) => stop.addEventListener('abort', () => resolve(), { once: true }));
  const done = new AbortController();
  const over = seconds === undefined ? [] : [sleep(seconds * 1000, undefined, { signal: done.signal }).catch(() => {})];
  await Promise.race([gone, stopped, ...over]);
  done.abort();
}

/** Returns the rules with the numbers of packets that they have hit by now. */
async function hitsOf(targets: readonly Target[], added: readonly Added[]): Promise<Line[]> {
  const lines = targets.map(async (target) => {
    const own = added.filter((each) => each.target === target).map(({ state }) => state.id);
    return (await faultsOf([target]).catch(() => [])).filter(({ id }) => own.includes(id));
  });
  return (await Promise.all(lines)).flat();
}

function print(output: Output, lines: readonly Line[], none: string): void {
  output.result(lines);
  for (const line of lines) output.line(textOf(line));
  if (lines.length === 0) output.line(none);
}

const textOf = ({ pid, device, id, rule, hits }: Line): string =>
  `process ${pid}, ${device}, rule ${id}: ${rule} (${hits} ${hits === 1 ? 'hit' : 'hits'})`;
