/** `wasm-roce stat`: shows the counters of devices in other processes. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import type { PublishedDevice } from '../../index.js';
import { EXIT_HELP, failure, usageError } from '../exit.js';
import { quantity } from '../options.js';
import { Output } from '../output.js';
import { devicesOfHost } from './devices.js';
import { prometheusText } from './prometheus.js';
import { describe } from './table.js';

interface Flags {
  readonly watch?: number | true;
  readonly all?: boolean;
  readonly explain?: boolean;
  readonly json?: boolean;
  readonly prometheus?: boolean;
}

/** Shortest interval of --watch (s): a shorter one would only keep the watched processes busy. */
const MIN_WATCH_S = 0.1;

export function statCommand(program: Command): void {
  program
    .command('stat')
    .summary('show the counters of devices in other processes')
    .description(
      'Shows the counters of the devices of other programs, and of their queue pairs, under their Linux names (rdma ' +
        'statistic): of all programs that share the addresses of this host, if the broker runs as this user, or for root, ' +
        'and of those of this user that publish their devices (option publish of openDevice; the wasm-roce commands do). ' +
        'The table omits counters that are 0 everywhere; the other formats include them.',
    )
    .argument('[name]', 'only devices with this name or process ID')
    .option(
      '-w, --watch [seconds]',
      'repeat with rates, every SECONDS seconds (default: 1)',
      quantity(86400, MIN_WATCH_S),
    )
    .option('-a, --all', 'include counters that are 0')
    .option('-e, --explain', 'explain the counters of silently dropped packets')
    .option('--json', 'print only a JSON array; with --watch, one on each line')
    .option('--prometheus', 'print only the Prometheus text format')
    .addHelpText(
      'after',
      `
Examples:
  wasm-roce stat
  wasm-roce stat wasm-eth0 --watch 2
  wasm-roce stat --prometheus > /var/lib/node_exporter/wasm-roce.prom
${EXIT_HELP}`,
    )
    .action(stat);
}

async function stat(name: string | undefined, flags: Flags): Promise<void> {
  if (flags.json && flags.prometheus) throw usageError('--json and --prometheus exclude each other');
  const output = new Output(flags.json ?? false);
  const seconds = flags.watch === true ? 1 : flags.watch;
  let before: PublishedDevice[] = [];
  let from = 0;
  for (;;) {
    const devices = await devicesOf(name);
    const now = performance.now();
    if (flags.prometheus) {
      output.stdout.write(prometheusText(devices));
    } else {
      output.result(devices);
      if (seconds !== undefined && process.stdout.isTTY) output.stdout.write('\u001b[H\u001b[2J');
      if (devices.length === 0)
        output.line('no program shares its addresses, and no process of this user publishes a device');
      for (const device of devices) {
        const earlier = before.find(({ name, pid }) => name === device.name && pid === device.pid);
        const { all = false, explain = false } = flags;
        output.line(describe(device, { all, explain, before: earlier, seconds: (now - from) / 1000 }));
      }
    }
    if (seconds === undefined) return;
    before = devices;
    from = now;
    await sleep(seconds * 1000);
  }
}

async function devicesOf(name: string | undefined): Promise<PublishedDevice[]> {
  const devices = await devicesOfHost();
  if (name === undefined) return devices;
  const found = devices.filter((device) => device.name === name || String(device.pid) === name);
  if (found.length > 0) return found;
  const names = devices.map((device) => `${device.name} (process ${device.pid})`).join(', ') || 'none';
  throw failure(`no device is called '${name}'; the devices are: ${names}`, { code: 'ENODEV' });
}
