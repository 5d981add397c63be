/** `wasm-roce rping`: either end of rping. */
import type { Command } from 'commander';
import { EXIT_HELP, interrupted, onInterrupt, usageError } from './exit.js';
import {
  addLinkOptions,
  address,
  bytes,
  hostLink,
  integer,
  type LinkOptions,
  openOptions,
  quantity,
} from './options.js';
import { Output } from './output.js';
import { type RpingOptions, runBoth, runClient, runServer } from './rping/roles.js';
import { LARGEST, PORT, SMALLEST } from './rping/words.js';

interface Flags extends LinkOptions {
  readonly server?: boolean;
  readonly client?: boolean;
  readonly addr?: string;
  readonly address?: string;
  readonly ibDev?: string;
  readonly port: number;
  readonly size?: number;
  readonly count?: number;
  readonly verbose?: boolean;
  readonly validate?: boolean;
  readonly debug?: boolean;
  readonly persistent?: boolean;
  readonly idle: number;
  readonly json?: boolean;
}

/** Bytes of a ping. */
const SIZE = 64;

const HELP = `
There is no hand-shake over TCP: both ends find each other by rdma_cm. A server without -P serves one client; a client
without -C pings until Ctrl-C. What a server with -P serves by then is ended in order.

Examples:
  wasm-roce rping -s -v                        server; at the other machine: rping -c -a HERE -v -C 10
  wasm-roce rping -c -a 192.0.2.7 -v -V -C 10  client of: rping -s
  wasm-roce rping -s -P -a fd00::7 --json
  wasm-roce rping --link memory -v -V -C 10
${EXIT_HELP}`;

export function rpingCommand(program: Command): void {
  const command = program
    .command('rping')
    .summary('either end of rping')
    .description(
      'Pings by RDMA against rping or another wasm-roce: the server READs what the client offers, and WRITEs it back. ' +
        'Options have the letters and the meaning of rping.',
    )
    .option('-s, --server', 'wait for a client')
    .option('-c, --client', 'connect to the server at -a')
    .option('-a, --addr <host>', 'client: the server; server: the only address to listen on')
    .option('-p, --port <n>', 'port of rdma_cm', integer(1, 65535), PORT)
    .option('-S, --size <bytes>', `bytes of a ping (${SIZE}); server: the most that is taken (${LARGEST})`, size)
    .option(
      '-C, --count <n>',
      'client: so many pings; default: until Ctrl-C. At the server without effect',
      integer(1, 1_000_000_000),
    )
    .option('-v, --verbose', 'print what comes with each ping')
    .option('-V, --validate', 'check every byte; at the server those of rping only')
    .option('-d, --debug', 'tell of connections on stderr')
    .option('-P, --persistent', 'server: serve any number of clients, also at once')
    .option('-q, --own-qp', 'accepted, without effect')
    .option('-I, --address <ip>', 'local address, the only one to use', address)
    .option('--ib-dev <interface>', 'network interface of the device')
    .option('--idle <s>', 'give up when the peer is silent for so long; 0 = never', quantity(1e6), 30)
    .option('--json', 'print one JSON object (with -P one for each client) and nothing else')
    .addHelpText('after', HELP);
  addLinkOptions(command).action((flags: Flags) => rping(flags));
}

async function rping(flags: Flags): Promise<void> {
  const output = new Output(flags.json ?? false);
  const { server, client, addr, persistent } = flags;
  const options = read(flags);
  if (flags.link === 'memory') {
    if (server || client || addr !== undefined || flags.ibDev !== undefined || flags.address !== undefined)
      throw usageError('--link memory runs both ends in this process: it takes no -s, -c, -a, -I or --ib-dev');
    return runBoth(options, output);
  }
  if (server === client) throw usageError('one of -s (server) and -c (client) is needed');
  if (server) return runServer({ ...options, ...(addr !== undefined && { listen: addr }) }, output);
  if (persistent) throw usageError('-P is for the server');
  if (addr === undefined) throw usageError('-c needs the server: -a HOST');
  return runClient(addr, options, output);
}

function read(flags: Flags): RpingOptions {
  const stop = new AbortController();
  // the peer is to hear of the end
  onInterrupt(() => stop.abort(interrupted('before there was a connection')));
  return {
    signal: stop.signal,
    port: flags.port,
    size: flags.size ?? (flags.server ? LARGEST : SIZE),
    count: flags.count ?? Number.POSITIVE_INFINITY,
    idleMs: flags.idle * 1000,
    validate: flags.validate ?? false,
    verbose: flags.verbose ?? false,
    debug: flags.debug ?? false,
    persistent: flags.persistent ?? false,
    open: openOptions(flags),
    ...(flags.ibDev !== undefined && { interface: flags.ibDev }),
    ...(flags.address !== undefined && { address: flags.address }),
    ...hostLink(flags),
  };
}

const size = bytes(SMALLEST, LARGEST);
