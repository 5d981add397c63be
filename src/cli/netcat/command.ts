/** `wasm-roce listen` and `wasm-roce connect`: standard input and output over a connection, as netcat does. */
import type { Command } from 'commander';
import { CliError, EXIT_HELP, errorReport, exitOf, Stopped, stopSignal, usageError } from '../exit.js';
import { addDeviceOptions, type DeviceFlags, deviceOptions, integer, openOptions, quantity } from '../options.js';
import { Output } from '../output.js';
import { connect, listen, type NetcatOptions } from './roles.js';

interface Flags extends DeviceFlags {
  readonly timeout?: number;
  readonly keepAlive: number;
  readonly peerTimeout: number;
  readonly rsocket?: boolean;
  readonly keepOpen?: boolean;
  readonly progress?: boolean;
  readonly quiet?: boolean;
  readonly json?: boolean;
}

/** Default timeout of connect (s). */
const TIMEOUT_S = 30;

const ENDS = `
Standard input is sent to the other end unchanged, and what the other end sends is written to standard output. End of
input closes one direction; the command ends when both are closed. On a terminal, Ctrl-D ends the input. Terminal input
also ends with the other end's input if the output is not a terminal. A slow reader applies backpressure to the sender.`;

const LISTEN_HELP = `${ENDS}

Examples:
  wasm-roce listen 7471 > copy            on the other host: wasm-roce connect HOST 7471 < file
  wasm-roce listen 7471 < file            send the file to the first client
  wasm-roce listen -k 7471 < /dev/null | tee -a log
  wasm-roce listen --address 127.0.0.1 --link udp 7471
  wasm-roce listen --rsocket 7471         on the other host: LD_PRELOAD=librspreload.so nc HOST 7471
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
    .summary('pipe standard input and output over RDMA: listening end')
    .description(
      'Waits for an rdma_cm connection on a port and pipes standard input and output to the client (wasm-roce connect).',
    )
    .argument('<port>', 'port to listen on; 0 = any free port, which is printed', integer(0, 65535))
    .option('-k, --keep-open', 'keep listening after a connection ends; one client is served at a time')
    .option(
      '-w, --timeout <s>',
      'give up when no client connects within this time; default: wait forever',
      quantity(1e6),
    );
  addNetcatOptions(listening, LISTEN_HELP).action((port: number, flags: Flags) =>
    netcat(flags, (options, output, stop) => listen(port, options, output, stop)),
  );
  const connecting = program
    .command('connect')
    .summary('pipe standard input and output over RDMA: connecting end')
    .description('Connects by rdma_cm and pipes standard input and output to the listening end (wasm-roce listen).')
    .argument('<host>', 'address or name of the listening end')
    .argument('<port>', 'port on which it listens', integer(1, 65535))
    .option('-w, --timeout <s>', 'give up when there is no connection within this time', quantity(1e6), TIMEOUT_S);
  addNetcatOptions(connecting, CONNECT_HELP).action((host: string, port: number, flags: Flags) =>
    netcat(flags, (options, output, stop) => connect(host, port, options, output, stop)),
  );
}

function addNetcatOptions(command: Command, help: string): Command {
  command
    .option('--keep-alive <s>', 'ask the other end for a sign after this much silence; 0 = never', quantity(1e6), 15)
    .option('--peer-timeout <s>', 'end when it then sends nothing for this long; 0 = never', quantity(1e6), 75)
    .option('--rsocket', 'the other end is a program of rsockets, or of TCP under librspreload.so')
    .option('--progress', 'print bytes and rate on stderr even if it is not a terminal')
    .option('-q, --quiet', 'print only errors on stderr')
    .option('--json', 'print one JSON object for each connection on stderr');
  return addDeviceOptions(command).addHelpText('after', help);
}

async function netcat(
  flags: Flags,
  work: (options: NetcatOptions, output: Output, stop: AbortSignal) => Promise<void>,
): Promise<void> {
  // standard output carries the other end's data: reports go to stderr
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
    throw usageError('--link memory connects two ends of one process; listen and connect are two processes');
  const { stdin, stdout, stderr } = process;
  const isTyped = stdin.isTTY && stdout.isTTY;
  return {
    keepOpen: flags.keepOpen ?? false,
    quiet: flags.quiet ?? false,
    progress: !flags.quiet && !flags.json && (flags.progress ?? (stderr.isTTY && !isTyped)),
    watch: { keepAlive: Math.round(flags.keepAlive * 1000), peerTimeout: Math.round(flags.peerTimeout * 1000) },
    rsocket: flags.rsocket ?? false,
    open: openOptions(flags),
    ...(flags.timeout !== undefined && { timeoutMs: flags.timeout * 1000 }),
    ...deviceOptions(flags),
  };
}
