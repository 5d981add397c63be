/** `wasm-roce listen` and `wasm-roce connect`: standard input and output over a connection, as netcat does it. */
import type { Command } from 'commander';
import { CliError, EXIT_HELP, errorReport, exitOf, Stopped, stopSignal, usageError } from './exit.js';
import { connect, listen, type NetcatOptions } from './netcat/roles.js';
import { addLinkOptions, address, hostLink, integer, type LinkOptions, openOptions, quantity } from './options.js';
import { Output } from './output.js';

interface Flags extends LinkOptions {
  readonly ibDev?: string;
  readonly address?: string;
  readonly timeout?: number;
  readonly keepAlive: number;
  readonly keepOpen?: boolean;
  readonly progress?: boolean;
  readonly quiet?: boolean;
  readonly json?: boolean;
}

/** How long connecting may take (s). */
const TIMEOUT_S = 30;

const ENDS = `
What comes in on standard input goes to the other end, what the other end sends comes out on standard output, bytes as they
are. The end of the input ends one direction, and the other goes on; both ended, the command ends. A terminal as input ends by
Ctrl-D, and by itself with the other end's when the output goes elsewhere. Who reads slowly makes the other end wait.`;

const LISTEN_HELP = `${ENDS}

Examples:
  wasm-roce listen 7471 > copy            at the other machine: wasm-roce connect HERE 7471 < file
  wasm-roce listen 7471 < file            hands the file to the first who connects
  wasm-roce listen -k 7471 < /dev/null | tee -a log
  wasm-roce listen --address 127.0.0.1 --link udp 7471
${EXIT_HELP}`;

const CONNECT_HELP = `${ENDS}

Examples:
  wasm-roce connect 192.0.2.7 7471 < file
  tar c folder | wasm-roce connect 192.0.2.7 7471 --progress
  wasm-roce connect --address 127.0.0.2 --link udp 127.0.0.1 7471
  wasm-roce connect 192.0.2.7 7471 --drop 0.01 --pcap talk.pcapng < file
${EXIT_HELP}`;

export function netcatCommands(program: Command): void {
  const listening = program
    .command('listen')
    .summary('standard input and output over RDMA: the end that waits')
    .description('Waits for a connection by rdma_cm on a port, and is a pipe to whoever connects (wasm-roce connect).')
    .argument('<port>', 'port to listen on; 0 = any that is free, which is told', integer(0, 65535))
    .option('-k, --keep-open', 'after a connection wait for the next; others wait while one is served')
    .option('-w, --timeout <s>', 'give up when nobody connects for so long; default: never', quantity(1e6));
  addNetcatOptions(listening, LISTEN_HELP).action((port: number, flags: Flags) =>
    netcat(flags, (options, output, stop) => listen(port, options, output, stop)),
  );
  const connecting = program
    .command('connect')
    .summary('standard input and output over RDMA: the end that calls')
    .description('Connects by rdma_cm to an address and port, and is a pipe to whoever listens (wasm-roce listen).')
    .argument('<host>', 'address or name of the other end')
    .argument('<port>', 'port that it listens on', integer(1, 65535))
    .option('-w, --timeout <s>', 'give up when there is no connection after so long', quantity(1e6), TIMEOUT_S);
  addNetcatOptions(connecting, CONNECT_HELP).action((host: string, port: number, flags: Flags) =>
    netcat(flags, (options, output, stop) => connect(host, port, options, output, stop)),
  );
}

function addNetcatOptions(command: Command, help: string): Command {
  command
    .option('-d, --ib-dev <interface>', 'network interface of the device')
    .option('--address <ip>', 'local address, the only one to use', address)
    .option(
      '--keep-alive <s>',
      'ask after so much silence whether the other end is there; 0 = never',
      quantity(1e6),
      10,
    )
    .option('--progress', 'tell bytes and rate on stderr also when that is no terminal')
    .option('-q, --quiet', 'nothing on stderr but errors')
    .option('--json', 'print one JSON object for each connection on stderr');
  return addLinkOptions(command).addHelpText('after', help);
}

async function netcat(
  flags: Flags,
  work: (options: NetcatOptions, output: Output, stop: AbortSignal) => Promise<void>,
): Promise<void> {
  // standard output is the other end's: reports go to stderr
  const output = new Output(flags.json ?? false, process.stderr);
  try {
    await work(read(flags), output, stopSignal());
  } catch (error) {
    if (error instanceof Stopped || (error instanceof CliError && error.isReported)) throw error;
    output.result({ ok: false, error: errorReport(error) });
    throw new CliError(exitOf(error), (error as Error).message, { cause: error, isReported: true });
  }
}

function read(flags: Flags): NetcatOptions {
  if (flags.link === 'memory')
    throw usageError('--link memory is for two ends of one process; here each is a process of its own');
  const { stdin, stdout, stderr } = process;
  const isTyped = stdin.isTTY && stdout.isTTY;
  return {
    keepOpen: flags.keepOpen ?? false,
    quiet: flags.quiet ?? false,
    progress: !flags.quiet && !flags.json && (flags.progress ?? (stderr.isTTY && !isTyped)),
    keepAliveMs: flags.keepAlive * 1000,
    open: openOptions(flags),
    ...(flags.timeout !== undefined && { timeoutMs: flags.timeout * 1000 }),
    ...(flags.ibDev !== undefined && { interface: flags.ibDev }),
    ...(flags.address !== undefined && { address: flags.address }),
    ...hostLink(flags),
  };
}
