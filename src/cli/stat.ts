/** `wasm-roce stat`: counters of devices in other processes. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { type PublishedDevice, publishedDevices } from '../index.js';
import { EXIT_HELP, failure, usageError } from './exit.js';
import { quantity } from './options.js';
import { Output } from './output.js';
import { prometheusText } from './stat/prometheus.js';
import { describe } from './stat/table.js';

interface Flags {
  readonly watch?: number | true;
  readonly all?: boolean;
  readonly explain?: boolean;
  readonly json?: boolean;
  readonly prometheus?: boolean;
}

export function statCommand(program: Command): void {
  program
    .command('stat')
    .summary('counters of the devices that are open in other processes')
    .description(
      'Shows the counters of each device that a process of this user has published, and of its queue pairs, under the ' +
        'names of Linux (rdma statistic). The commands of wasm-roce publish their devices; programs do so with the ' +
        'option publish of openDevice. Counters that are 0 everywhere are left out of the table, not of the other forms.',
    )
    .argument('[name]', 'only devices of this name, or of this process id')
    .option('-w, --watch [seconds]', 'again and again, with rates; every second', quantity(86400))
    .option('-a, --all', 'also the counters that are 0')
    .option('-e, --explain', 'say what counters of packets that were dropped in silence mean')
    .option('--json', 'print one JSON array and nothing else; with --watch one line each time')
    .option('--prometheus', 'print the text format of Prometheus and nothing else')
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
      if (seconds !== undefined && process.stdout.isTTY) output.line('\u001b[H\u001b[2J');
      if (devices.length === 0) output.line('no process of this user publishes a device');
      for (const device of devices) {
        const earlier = before.find(({ name, pid }) => name === device.name && pid === device.pid);
        const { all = false, explain = false } = flags;
        output.line(describe(device, { all, explain, before: earlier, seconds: (now - from) / 1000 }));
      }
    }
    if (seconds === undefined) return;
    before = devices;
    from = now;
    await sleep(Math.max(100, seconds * 1000));
  }
}

async function devicesOf(name: string | undefined): Promise<PublishedDevice[]> {
  const devices = await publishedDevices();
  if (name === undefined) return devices;
  const found = devices.filter((device) => device.name === name || String(device.pid) === name);
  if (found.length > 0) return found;
  const names = devices.map((device) => `${device.name} (process ${device.pid})`).join(', ') || 'none';
  throw failure(`no device is published as '${name}'; there is ${names}`);
}
