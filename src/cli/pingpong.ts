/** `wasm-roce pingpong`: either end of ibv_rc_pingpong. */
import { type Command, InvalidArgumentError } from 'commander';
import { EXIT_HELP, usageError } from './exit.js';
import { addLinkOptions, address, bytes, integer, type LinkOptions, quantity, troubleOptions } from './options.js';
import { Output } from './output.js';
import { type PingpongOptions, runBoth, runClient, runServer } from './pingpong/roles.js';

interface Flags extends LinkOptions {
  readonly port: number;
  readonly ibDev?: string;
  readonly size: number;
  readonly mtu: number;
  readonly rxDepth: number;
  readonly iters: number;
  readonly events?: boolean;
  readonly gidIdx?: number;
  readonly chk?: boolean;
  readonly address?: string;
  readonly timeout: number;
  readonly retry: number;
  readonly idle: number;
  readonly keep?: boolean;
  readonly json?: boolean;
}

const HELP = `
Both ends must use the same size, number of messages and path MTU. The stock tool needs -g on RoCE; this one chooses
its GID by the peer's address when -g is not given, and its interface by the TCP connection when -d is not.

Examples:
  wasm-roce pingpong                          server; at the other machine: ibv_rc_pingpong -g 1 HERE
  wasm-roce pingpong 192.0.2.7 -s 64k -n 200  client of: ibv_rc_pingpong -g 1 -s 65536 -n 200
  wasm-roce pingpong fd00::7 -c --pcap p.pcapng
  wasm-roce pingpong --link memory -c --drop 0.05 --json
  wasm-roce pingpong --address 127.0.0.1 --link udp &
  wasm-roce pingpong --address 127.0.0.2 --link udp 127.0.0.1
${EXIT_HELP}`;

/** Longest spin before sleeping, without --events (ms). */
const SPIN_MS = 0.2;
/** Memory that the card needs beside the messages. */
const CARD_BYTES = 2 ** 28;
const MAX_SIZE = 2 ** 30;
const MTUS = [256, 512, 1024, 2048, 4096];

export function pingpongCommand(program: Command): void {
  const command = program
    .command('pingpong')
    .summary('either end of ibv_rc_pingpong')
    .description(
      'Exchanges messages with ibv_rc_pingpong or another wasm-roce, there and back: a client of HOST, or else a server ' +
        'for one client. Options have the letters and the meaning of ibv_rc_pingpong where it has them.',
    )
    .argument('[host]', 'the server; without it this is one')
    .option('-p, --port <n>', 'TCP port of the hand-shake', integer(1, 65535), 18515)
    .option('-d, --ib-dev <interface>', 'network interface of the device')
    .option('-i, --ib-port <n>', 'port of the device; there is only 1', integer(1, 1), 1)
    .option('-s, --size <bytes>', 'bytes of a message; 64k, 1m', bytes(0, MAX_SIZE), 4096)
    .option('-m, --mtu <bytes>', 'path MTU: 256, 512, 1024, 2048 or 4096', pathMtu, 1024)
    .option('-r, --rx-depth <n>', 'receives posted at a time', integer(1, 32767), 500)
    .option('-n, --iters <n>', 'messages that each end sends', integer(1, 100_000_000), 1000)
    .option('-l, --sl <n>', 'service level; accepted, without effect on RoCE', integer(0, 15), 0)
    .option('-e, --events', 'sleep until completions come, instead of polling')
    .option('-g, --gid-idx <n>', 'index in the GID table (see devinfo)', integer(0, 255))
    .option('-c, --chk', 'check every byte that arrives; give it at both ends')
    .option('--address <ip>', 'local address, the only one to use, also for TCP', address)
    .option('--timeout <n>', 'ACK timeout, 4.096 us * 2^n; 0 = for ever', integer(0, 31), 14)
    .option('--retry <n>', 'how often an unanswered packet is sent again', integer(0, 7), 7)
    .option('--idle <s>', 'give up when the peer is silent for so long; 0 = never', quantity(1e6), 30)
    .option('--keep', 'server: serve one client after the other')
    .option('--json', 'print one JSON object (with --keep one for each client) and nothing else')
    .addHelpText('after', HELP);
  addLinkOptions(command).action((host: string | undefined, flags: Flags) => pingpong(host, flags));
}

async function pingpong(host: string | undefined, flags: Flags): Promise<void> {
  const output = new Output(flags.json ?? false);
  const options = read(flags);
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

function read(flags: Flags): PingpongOptions {
  return {
    port: flags.port,
    size: flags.size,
    mtu: flags.mtu,
    rxDepth: flags.rxDepth,
    iters: flags.iters,
    check: flags.chk ?? false,
    timeout: flags.timeout,
    retryCnt: flags.retry,
    idleMs: flags.idle * 1000,
    spinMs: flags.events ? 0 : SPIN_MS,
    keep: flags.keep ?? false,
    open: { ...troubleOptions(flags), memoryBytes: CARD_BYTES + 2 * flags.size },
    ...(flags.ibDev !== undefined && { interface: flags.ibDev }),
    ...(flags.address !== undefined && { address: flags.address }),
    ...(flags.gidIdx !== undefined && { gidIndex: flags.gidIdx }),
    ...((flags.link === 'packet' || flags.link === 'udp') && { link: flags.link }),
  };
}

function pathMtu(text: string): number {
  const value = Number(text);
  if (!MTUS.includes(value)) throw new InvalidArgumentError(`It must be one of ${MTUS.join(', ')}.`);
  return value;
}
