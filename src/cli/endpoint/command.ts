/** `wasm-roce endpoint`: serves from a configuration until stopped. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { EXIT_HELP, Exit, onStop, usageError } from '../exit.js';
import {
  addIbOptions,
  addLinkOptions,
  address,
  bytes,
  integer,
  type LinkOptions,
  openOptions,
  regionBytes,
} from '../options.js';
import type { ConfigOverrides } from './config.js';
import type { Endpoint } from './endpoint.js';
import { Log } from './log.js';

interface Flags extends LinkOptions {
  readonly ibDev?: string;
  readonly address?: readonly string[];
  readonly memory?: number;
  readonly region: Readonly<Record<string, unknown>>;
  readonly serve: readonly unknown[];
  readonly metrics?: number;
  readonly log: Log['form'];
  readonly check?: boolean;
  readonly schema?: boolean;
}

const HELP = `
CONFIG is a YAML or JSON file. SIGHUP reads it again, without interrupting services and regions that have not changed.
SIGUSR2 writes persistent regions to their files. SIGTERM or Ctrl-C stops the endpoint in order, a second one at once.
Services and their default ports:
  echo (7471)               return every message
  regions (7472)            send each client the regions and their keys, in a JSON message
  traffic (7473)            send each client the SENDs, WRITEs and READs that it orders
  rping (7174)              the server of rping
  valkey (6379)             a proxy to Valkey or Redis over TCP, for clients of Valkey over RDMA
  nvme (4420)               files as disks, for hosts of NVMe over RDMA; CONFIG names the files
  send-bw ... (18515, TCP)  the servers of perftest; give both ends the same --size and --iters

Examples:
  wasm-roce endpoint /etc/wasm-roce/endpoint.yaml --log json
  wasm-roce endpoint --serve echo --serve regions:7472 --region scratch=64k
  wasm-roce endpoint --address 127.0.0.1 --link udp --serve write-bw --metrics 9401
${EXIT_HELP.replace('0 done', '0 done or stopped')}`;

export function endpointCommand(program: Command): void {
  const command = addIbOptions(program.command('endpoint'))
    .summary('serve echo, shared memory, disks, rping, perftest and Valkey until stopped')
    .description(
      'Runs a software RoCE endpoint as a service or in a container: memory regions that peers read and write, and ' +
        'services on ports. The configuration comes from a file, from options, or both: options override keys of the ' +
        'file, and add regions and services to it.',
    )
    .argument('[config]', 'the configuration file')
    .option('--address <ip...>', 'the only local addresses to use', addresses)
    .option('--memory <bytes>', "the card's memory; default: 256m and the size of the regions", bytes(2 ** 23, 2 ** 32))
    .addOption(
      new Option(
        '--region <name=bytes>',
        'add a region that peers may read, write and change by atomics; may be repeated; CONFIG can restrict access',
      )
        .argParser(region)
        .default({}, 'none'),
    )
    .addOption(
      new Option('--serve <service[:port]>', 'add a service; may be repeated').argParser(service).default([], 'none'),
    )
    .option('--metrics <port>', 'serve counters for Prometheus over HTTP on 127.0.0.1', integer(1, 65535))
    .addOption(
      new Option('--log <form>', 'log as lines of text or JSON objects').choices(['text', 'json']).default('text'),
    )
    .option('--check', 'check the configuration, its files and its memory, and exit')
    .option('--schema', 'print the JSON Schema of CONFIG, for editors, and exit')
    .addHelpText('after', HELP);
  addLinkOptions(command).action(endpoint);
}

async function endpoint(file: string | undefined, flags: Flags): Promise<void> {
  if (flags.schema) {
    const { jsonSchema } = await import('./schema.js');
    process.stdout.write(`${JSON.stringify(jsonSchema(), null, 2)}\n`);
    return;
  }
  if (flags.link === 'memory')
    throw usageError('--link memory is for both ends in one process: no client could connect');
  if (file === undefined && flags.serve.length === 0) throw usageError('nothing to serve: name a CONFIG, or --serve');
  // loaded here, so that other commands start faster
  const { ConfigError, readConfig } = await import('./config.js');
  const { Endpoint } = await import('./endpoint.js');
  const { notify } = await import('./notify.js');
  const read = () => readConfig(file, overridesOf(flags));
  const log = new Log(flags.log);
  const config = await read().catch((error) => {
    if (error instanceof ConfigError && error.problems.length > 1)
      for (const problem of error.problems) process.stderr.write(`${file ?? 'options'}: ${problem}\n`);
    throw error;
  });
  if (flags.check) return;
  const { pcap, fault } = openOptions(flags);
  // before anything is open that must be closed in order
  const stopped = new Promise<string>((resolve) => onStop(resolve));
  const debugging = { ...(pcap !== undefined && { pcap }), ...(fault && { fault }) };
  const opening = Endpoint.open(config, debugging, log);

  const reload = async (running: Endpoint) => {
    notify(log, 'RELOADING=1', `MONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`);
    try {
      await running.reload(await read());
      log.info('reloaded');
    } catch (error) {
      if (error instanceof ConfigError) for (const problem of error.problems) log.warn('wrong', { problem });
      log.error('reload refused', error);
    }
    notify(log, 'READY=1');
  };
  // signals are handled one after another, once the endpoint is open
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
  notify(log, 'READY=1');
  const signal = await Promise.race([stopped, running.devices.failed]).catch((error) => {
    log.error('failed', error);
    // no peer can be reached any more
    process.exit(Exit.FAILED);
  });
  log.info('stopping', { signal });
  notify(log, 'STOPPING=1');
  await work;
  await running.stop();
  log.info('stopped');
}

/** The keys of the configuration that options have given. */
function overridesOf(flags: Flags): ConfigOverrides {
  const { ibDev: name, address: addresses, link, mode, spin, memory, metrics, region: regions, serve } = flags;
  const single = { interface: name, addresses, link, mode, spin, memory, metrics: metrics && { port: metrics } };
  const said = Object.entries(single).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(said), regions, services: serve };
}

function addresses(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, address(text)];
}

function region(text: string, before: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const [, name, size] = /^([^=]+)=(.+)$/.exec(text) ?? [];
  if (name === undefined || size === undefined) throw new InvalidArgumentError('It must be NAME=BYTES.');
  return { ...before, [name]: { size: regionBytes(size), access: ['remoteRead', 'remoteWrite', 'remoteAtomic'] } };
}

function service(text: string, before: readonly unknown[]): readonly unknown[] {
  const [type, port] = text.split(':');
  return [...before, { type, ...(port !== undefined && { port }) }];
}
