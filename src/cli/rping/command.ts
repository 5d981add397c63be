/** `wasm-roce rping`: either end of rping. */
import type { Command } from 'commander';
import { EXIT_HELP, interrupted, onInterrupt, usageError } from '../exit.js';
import {
  addLinkOptions,
  address,
  bytes,
  type DeviceFlags,
  deviceOptions,
  integer,
  openOptions,
  quantity,
} from '../options.js';
import { Output } from '../output.js';
import { MAX_PING_BYTES, MIN_PING_BYTES, RPING_PORT } from './protocol.js';
import { type RpingOptions, runBoth, runClient, runServer } from './roles.js';

interface Flags extends DeviceFlags {
  readonly server?: boolean;
  readonly client?: boolean;
  readonly addr?: string;
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

/** Default size of a client's ping, bytes. */
const SIZE = 64;

const HELP = `
The two ends connect by rdma_cm, without a handshake over TCP. A server without -P serves one client. A client without
-C pings until Ctrl-C. At Ctrl-C a server with -P disconnects its clients in order.

Examples:
  wasm-roce rping -s -v                        server; on the other host: rping -c -a HOST -v -C 10
  wasm-roce rping -c -a 192.0.2.7 -v -V -C 10  client; the server: rping -s
  wasm-roce rping -s -P -a fd00::7 --json
  wasm-roce rping --link memory -v -V -C 10
${EXIT_HELP}`;

export function rpingCommand(program: Command): void {
  const command = program
    .command('rping')
    .summary('either end of rping')
    .description(
      'Exchanges pings with rping or another wasm-roce: the server READs the bytes of a ping from the client and WRITEs ' +
        'them back. Options are those of rping, and some more.',
    )
    .option('-s, --server', 'be the server: wait for a client')
    .option('-c, --client', 'be the client: connect to the server at -a')
    .option('-a, --addr <host>', 'client: address or name of the server; server: the only address to listen on')
    .option('-p, --port <n>', 'rdma_cm port', integer(1, 65535), RPING_PORT)
    .option(
      '-S, --size <bytes>',
      `client: size of a ping (default: ${SIZE}); server: the largest accepted (default: ${MAX_PING_BYTES})`,
      size,
    )
    .option(
      '-C, --count <n>',
      'client: number of pings; default: ping until Ctrl-C; server: no effect',
      integer(1, 1_000_000_000),
    )
    .option('-v, --verbose', 'print the data of each ping')
    .option('-V, --validate', 'verify every byte; at the server only for clients that send the data of rping')
    .option('-d, --debug', 'print connections on stderr')
    .option('-P, --persistent', 'server: serve any number of clients, several at once')
    .option('-q, --own-qp', 'accepted, no effect')
    .option('-I, --address <ip>', 'the only local address to use', address)
    .option('--ib-dev <interface>', 'network interface of the device')
    .option('--idle <s>', 'give up after this much silence of the peer; 0 = never', quantity(1e6), 30)
    .option('--json', 'print only a JSON object; with -P, one for each client')
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
  // the peer is disconnected in order
  onInterrupt(() => stop.abort(interrupted('before there was a connection')));
  return {
    signal: stop.signal,
    port: flags.port,
    size: flags.size ?? (flags.server ? MAX_PING_BYTES : SIZE),
    count: flags.count ?? Number.POSITIVE_INFINITY,
    idleMs: flags.idle * 1000,
    validate: flags.validate ?? false,
    verbose: flags.verbose ?? false,
    debug: flags.debug ?? false,
    persistent: flags.persistent ?? false,
    open: openOptions(flags),
    ...deviceOptions(flags),
  };
}

const size = bytes(MIN_PING_BYTES, MAX_PING_BYTES);
