/** `wasm-roce pingpong` and its variants: either end of ibv_rc_, ibv_uc_, ibv_ud_ and ibv_srq_pingpong. */
import type { Command } from 'commander';
import { EXIT_HELP, usageError } from '../exit.js';
import {
  addIbOptions,
  addLinkOptions,
  address,
  bytes,
  type DeviceFlags,
  deviceOptions,
  integer,
  openOptions,
  pathMtu,
  quantity,
} from '../options.js';
import { Output } from '../output.js';
import { type PingpongOptions, runBoth, runClient, runServer } from './roles.js';
import { MAX_QPS, TRANSPORTS, type Transport, type TransportInfo } from './transport.js';

interface Flags extends DeviceFlags {
  readonly port: number;
  readonly size: number;
  readonly mtu?: number;
  readonly rxDepth: number;
  readonly iters: number;
  readonly events?: boolean;
  readonly gidIdx?: number;
  readonly chk?: boolean;
  readonly timeout?: number;
  readonly retry?: number;
  readonly idle: number;
  readonly keep?: boolean;
  readonly json?: boolean;
  readonly numQp?: number;
}

const helpOf = ({ command, tool }: TransportInfo) => `
Both ends must use the same size, number of messages and path MTU. ${tool} needs -g on RoCE. Without -g,
wasm-roce chooses its GID by the peer's address; without -d, it uses the interface of the TCP connection.

Examples:
  wasm-roce ${command}                          server; on the other host: ${tool} -g 1 HOST
  wasm-roce ${command} 192.0.2.7 -s 512 -n 200  client; the server: ${tool} -g 1 -s 512 -n 200
  wasm-roce ${command} fd00::7 -c --pcap p.pcapng
  wasm-roce ${command} --link memory -c --json
  wasm-roce ${command} --address 127.0.0.1 --link udp &
  wasm-roce ${command} --address 127.0.0.2 --link udp 127.0.0.1
${EXIT_HELP}`;

/** Longest spin before sleeping, without --events (ms). */
const SPIN_MS = 0.2;
/** Memory that the card needs besides the messages. */
const CARD_BYTES = 2 ** 28;
const MAX_SIZE = 2 ** 30;

export function pingpongCommand(program: Command): void {
  for (const transport of ['RC', 'UC', 'UD', 'SRQ'] as const) addPingpong(program, transport);
}

function addPingpong(program: Command, transport: Transport): void {
  const info = TRANSPORTS[transport];
  const command = addIbOptions(program.command(info.command))
    .summary(`either end of ${info.tool}`)
    .description(
      `Exchanges messages with ${info.tool} or another wasm-roce. With HOST it is the client, without HOST a server ` +
        `for one client. Options are those of ${info.tool}, and some more. Transport: ${info.description}.`,
    )
    .argument('[host]', 'address or name of the server; omit it to be the server')
    .option('-p, --port <n>', 'TCP port of the handshake', integer(1, 65535), 18515)
    .option('-s, --size <bytes>', 'message size, such as 4096, 64k or 1m', bytes(0, MAX_SIZE), info.size)
    .option('-r, --rx-depth <n>', 'receives kept posted', integer(1, 32767), 500)
    .option('-n, --iters <n>', 'messages that each end sends', integer(1, 100_000_000), 1000)
    .option('-l, --sl <n>', 'service level; accepted, no effect on RoCE', integer(0, 15), 0)
    .option('-e, --events', 'sleep until a completion instead of polling')
    .option('-g, --gid-idx <n>', 'index in the GID table (see devinfo)', integer(0, 255))
    .option('-c, --chk', 'verify every byte received; give it at both ends')
    .option('--address <ip>', 'the only local address to use, also for TCP', address)
    .option('--idle <s>', 'give up after this much silence of the peer; 0 = never', quantity(1e6), 30)
    .option('--keep', 'server: serve one client after another')
    .option('--json', 'print only a JSON object; with --keep, one for each client')
    .addHelpText('after', helpOf(info));
  // a datagram is never segmented, and only RC retransmits
  if (transport !== 'UD') command.option('-m, --mtu <bytes>', 'path MTU: 256, 512, 1024, 2048 or 4096', pathMtu, 1024);
  if (info.type === 'RC')
    command
      .option('--timeout <n>', 'ACK timeout, 4.096 us * 2^n; 0 = no timeout', integer(0, 31), 14)
      .option('--retry <n>', 'how often to retransmit a packet before giving up', integer(0, 7), 7);
  if (transport === 'SRQ') command.option('-q, --num-qp <n>', 'number of queue pairs', integer(1, MAX_QPS), 16);
  addLinkOptions(command).action((host: string | undefined, flags: Flags) => pingpong(transport, host, flags));
}

async function pingpong(transport: Transport, host: string | undefined, flags: Flags): Promise<void> {
  const output = new Output(flags.json ?? false);
  const options = read(transport, flags);
  if (flags.link === 'memory') {
    if (host !== undefined || flags.keep || flags.ibDev !== undefined || flags.address !== undefined)
      throw usageError('--link memory runs both ends in this process: it takes no HOST, --ib-dev, --address or --keep');
    await runBoth(options, output);
  } else if (host === undefined) {
    await runServer(options, output);
  } else {
    if (flags.keep) throw usageError('--keep is for the server; with a HOST this is a client');
    await runClient(host, options, output);
  }
}

function read(transport: Transport, flags: Flags): PingpongOptions {
  return {
    transport,
    qps: flags.numQp ?? 1,
    port: flags.port,
    size: flags.size,
    mtu: flags.mtu ?? 0,
    rxDepth: flags.rxDepth,
    iters: flags.iters,
    check: flags.chk ?? false,
    timeout: flags.timeout ?? 0,
    retryCnt: flags.retry ?? 0,
    idleMs: flags.idle * 1000,
    spinMs: flags.events ? 0 : SPIN_MS,
    keep: flags.keep ?? false,
    open: { ...openOptions(flags), memoryBytes: CARD_BYTES + 2 * flags.size },
    ...(flags.gidIdx !== undefined && { gidIndex: flags.gidIdx }),
    ...deviceOptions(flags),
  };
}
