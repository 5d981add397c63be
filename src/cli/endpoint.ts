/** `wasm-roce endpoint`: a card that serves, from a configuration, until it is told to stop. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { Given } from './endpoint/config.js';
import type { Endpoint } from './endpoint/endpoint.js';
import { Log } from './endpoint/log.js';
import { EXIT_HELP, Exit, onStop, usageError } from './exit.js';
import { addLinkOptions, address, bytes, integer, type LinkOptions, openOptions } from './options.js';

interface Flags extends LinkOptions {
  readonly interface?: string;
  readonly address?: readonly string[];
  readonly memory?: number;
  readonly region: Readonly<Record<string, unknown>>;
  readonly serve: readonly unknown[];
  readonly metrics?: number;
  readonly log: Log['form'];
  readonly check?: boolean;
}

const HELP = `
CONFIG is YAML, or JSON. SIGHUP reads it again: what is the same goes on undisturbed. SIGUSR2 writes regions that persist to
their files. SIGTERM or Ctrl-C ends it in order; the second one ends it at once. Services, with the ports they have otherwise:
  echo (7471)        sends every message of a connection back
  regions (7472)     tells who connects, in a message of JSON, which regions there are and their keys
  rping (7174)       rping's server
  send-bw ... (18515, TCP)  perftest's servers; both ends must be given the same --size and --iters

Examples:
  wasm-roce endpoint /etc/wasm-roce/endpoint.yaml --log json
  wasm-roce endpoint --serve echo --serve regions:7472 --region scratch=64k
  wasm-roce endpoint --address 127.0.0.1 --link udp --serve write-bw --metrics 9401
${EXIT_HELP.replace('0 done', '0 done or stopped')}`;

export function endpointCommand(program: Command): void {
  const command = program
    .command('endpoint')
    .summary('a card that serves: echo, shared memory, rping, perftest')
    .description(
      'Runs a software RoCE endpoint from a configuration file or from options, as a service or in a container: regions of ' +
        'memory that peers read and write, and services on ports. What options say takes the place of what the file ' +
        'says; regions and services come to those of the file.',
    )
    .argument('[config]', 'the configuration file')
    .option('-i, --interface <name>', 'network interface of the device')
    .option('--address <ip...>', 'local addresses, the only ones to use', addresses)
    .option('--memory <bytes>', "the card's memory; default: 256m and what the regions take", bytes(2 ** 23, 2 ** 32))
    .option('--region <name=bytes>', 'memory with all rights for peers; others: CONFIG', region, {})
    .option('--serve <service[:port]>', 'a service, again and again', service, [])
    .option('--metrics <port>', 'counters for Prometheus: HTTP on 127.0.0.1', integer(1, 65535))
    .addOption(new Option('--log <form>', 'lines for people, or objects').choices(['text', 'json']).default('text'))
    .option('--check', 'check the configuration, and what it says of files and memory, and no more')
    .addHelpText('after', HELP);
  addLinkOptions(command).action(endpoint);
}

async function endpoint(file: string | undefined, flags: Flags): Promise<void> {
  if (flags.link === 'memory')
    throw usageError('--link memory is for both ends in one process: nobody could come here');
  if (file === undefined && flags.serve.length === 0) throw usageError('nothing to serve: name a CONFIG, or --serve');
  // other commands need not wait until these are loaded
  const { ConfigError, readConfig } = await import('./endpoint/config.js');
  const { Endpoint } = await import('./endpoint/endpoint.js');
  const { notify } = await import('./endpoint/notify.js');
  const read = () => readConfig(file, given(flags));
  const log = new Log(flags.log);
  const config = await read().catch((error) => {
    if (error instanceof ConfigError && error.problems.length > 1)
      for (const problem of error.problems) process.stderr.write(`${file ?? 'options'}: ${problem}\n`);
    throw error;
  });
  if (flags.check) return;
  const { pcap, fault } = openOptions(flags);
  // before anything is there that must be left in order
  const stopped = new Promise<string>((resolve) => onStop(resolve));
  const opening = Endpoint.open(config, { ...(pcap !== undefined && { pcap }), ...(fault && { fault }) }, log);

  const reload = async (running: Endpoint) => {
    await notify(log, 'RELOADING=1', `MONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`);
    try {
      await running.reload(await read());
      log.info('reloaded');
    } catch (error) {
      if (error instanceof ConfigError) for (const problem of error.problems) log.warn('wrong', { problem });
      log.error('reload refused', error);
    }
    await notify(log, 'READY=1');
  };
  // what signals ask for: one after the other, and not before all is open
  let work: Promise<unknown> = opening;
  const onSignal = (name: NodeJS.Signals, act: (running: Endpoint) => Promise<unknown>) =>
    process.on(name, () => {
      work = work.then(async () => act(await opening));
      work.catch(() => {});
    });
  onSignal('SIGHUP', reload);
  onSignal('SIGUSR2', (running) => running.save());
  const running = await opening;
  log.info('ready', { pid: process.pid });
  await notify(log, 'READY=1');
  const signal = await Promise.race([stopped, running.failed]).catch((error) => {
    log.error('failed', error);
    // nobody can be told goodbye any more
    process.exit(Exit.FAILED);
  });
  log.info('stopping', { signal });
  await notify(log, 'STOPPING=1');
  await work;
  await running.stop();
  log.info('stopped');
}

/** Keys of the configuration that options have given. */
function given(flags: Flags): Given {
  const { interface: name, address: addresses, link, mode, spin, memory, metrics, region: regions, serve } = flags;
  const single = { interface: name, addresses, link, mode, spin, memory, metrics: metrics && { port: metrics } };
  const said = Object.entries(single).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(said), regions, services: serve };
}

function addresses(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, address(text)];
}

const regionBytes = bytes(1, 2 ** 32 - 1);

function region(text: string, before: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const [, name, size] = /^([^=]+)=(.+)$/.exec(text) ?? [];
  if (name === undefined || size === undefined) throw new InvalidArgumentError('It must be NAME=BYTES.');
  return { ...before, [name]: { size: regionBytes(size), access: ['remoteRead', 'remoteWrite', 'remoteAtomic'] } };
}

function service(text: string, before: readonly unknown[]): readonly unknown[] {
  const [type, port] = text.split(':');
  return [...before, { type, ...(port !== undefined && { port }) }];
}
