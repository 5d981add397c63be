/** `wasm-roce pingpong` and its kin: either end of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong, ibv_srq_pingpong. */
import { type Command, InvalidArgumentError } from 'commander';
import { EXIT_HELP, usageError } from './exit.js';
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
import { type PingpongOptions, runBoth, runClient, runServer } from './pingpong/roles.js';
import { MOST_QPS, TRANSPORTS, type Transport, type TransportFacts } from './pingpong/transport.js';

interface Flags extends LinkOptions {
  readonly port: number;
  readonly ibDev?: string;
  readonly size: number;
  readonly mtu?: number;
  readonly rxDepth: number;
  readonly iters: number;
  readonly events?: boolean;
  readonly gidIdx?: number;
  readonly chk?: boolean;
  readonly address?: string;
  readonly timeout?: number;
  readonly retry?: number;
  readonly idle: number;
  readonly keep?: boolean;
  readonly json?: boolean;
  readonly numQp?: number;
}

const helpOf = ({ command, tool }: TransportFacts) => `
Both ends must use the same size, number of messages and path MTU. The stock tool needs -g on RoCE; this one chooses
its GID by the peer's address when -g is not given, and its interface by the TCP connection when -d is not.

Examples:
  wasm-roce ${command}                          server; at the other machine: ${tool} -g 1 HERE
  wasm-roce ${command} 192.0.2.7 -s 512 -n 200  client of: ${tool} -g 1 -s 512 -n 200
  wasm-roce ${command} fd00::7 -c --pcap p.pcapng
  wasm-roce ${command} --link memory -c --json
  wasm-roce ${command} --address 127.0.0.1 --link udp &
  wasm-roce ${command} --address 127.0.0.2 --link udp 127.0.0.1
${EXIT_HELP}`;

/** Longest spin before sleeping, without --events (ms). */
const SPIN_MS = 0.2;
/** Memory that the card needs beside the messages. */
const CARD_BYTES = 2 ** 28;
const MAX_SIZE = 2 ** 30;
const MTUS = [256, 512, 1024, 2048, 4096];

export function pingpongCommand(program: Command): void {
  for (const transport of ['RC', 'UC', 'UD', 'SRQ'] as const) addPingpong(program, transport);
}

function addPingpong(program: Command, transport: Transport): void {
  const facts = TRANSPORTS[transport];
  const command = program
    .command(facts.command)
    .summary(`either end of ${facts.tool}`)
    .description(
      `Exchanges messages with ${facts.tool} or another wasm-roce, there and back: a client of HOST, or else a server ` +
        `for one client. Options have the letters and the meaning of ${facts.tool} where it has them. ` +
        `Transport: ${facts.about}.`,
    )
    .argument('[host]', 'the server; without it this is one')
    .option('-p, --port <n>', 'TCP port of the hand-shake', integer(1, 65535), 18515)
    .option('-d, --ib-dev <interface>', 'network interface of the device')
    .option('-i, --ib-port <n>', 'port of the device; there is only 1', integer(1, 1), 1)
    .option('-s, --size <bytes>', 'bytes of a message; 64k, 1m', bytes(0, MAX_SIZE), facts.size)
    .option('-r, --rx-depth <n>', 'receives posted at a time', integer(1, 32767), 500)
    .option('-n, --iters <n>', 'messages that each end sends', integer(1, 100_000_000), 1000)
    .option('-l, --sl <n>', 'service level; accepted, without effect on RoCE', integer(0, 15), 0)
    .option('-e, --events', 'sleep until completions come, instead of polling')
    .option('-g, --gid-idx <n>', 'index in the GID table (see devinfo)', integer(0, 255))
    .option('-c, --chk', 'check every byte that arrives; give it at both ends')
    .option('--address <ip>', 'local address, the only one to use, also for TCP', address)
    .option('--idle <s>', 'give up when the peer is silent for so long; 0 = never', quantity(1e6), 30)
    .option('--keep', 'server: serve one client after the other')
    .option('--json', 'print one JSON object (with --keep one for each client) and nothing else')
    .addHelpText('after', helpOf(facts));
  // a datagram is never cut, and only what is reliable is sent again
  if (transport !== 'UD') command.option('-m, --mtu <bytes>', 'path MTU: 256, 512, 1024, 2048 or 4096', pathMtu, 1024);
  if (facts.type === 'RC')
    command
      .option('--timeout <n>', 'ACK timeout, 4.096 us * 2^n; 0 = for ever', integer(0, 31), 14)
      .option('--retry <n>', 'how often an unanswered packet is sent again', integer(0, 7), 7);
  if (transport === 'SRQ') command.option('-q, --num-qp <n>', 'queue pairs', integer(1, MOST_QPS), 16);
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
    ...(flags.ibDev !== undefined && { interface: flags.ibDev }),
    ...(flags.address !== undefined && { address: flags.address }),
    ...(flags.gidIdx !== undefined && { gidIndex: flags.gidIdx }),
    ...hostLink(flags),
  };
}

function pathMtu(text: string): number {
  const value = Number(text);
  if (!MTUS.includes(value)) throw new InvalidArgumentError(`It must be one of ${MTUS.join(', ')}.`);
  return value;
}
