/** `wasm-roce send-bw` and the like: either end of perftest's programs. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { TRACE } from './device.js';
import { EXIT_HELP, onInterrupt, usageError } from './exit.js';
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
import { slotBytes } from './perftest/end.js';
import { KINDS, type Kind, LARGEST_OF_ALL, type PerftestOptions } from './perftest/kinds.js';
import { runBoth, runClient, runServer } from './perftest/roles.js';

interface Flags extends LinkOptions {
  readonly port: number;
  readonly ibDev?: string;
  readonly size?: number;
  readonly iters: number;
  readonly txDepth: number;
  readonly rxDepth?: number;
  readonly mtu?: number;
  readonly qp?: number;
  readonly bidirectional?: boolean;
  readonly all?: boolean;
  readonly connection: 'RC' | 'UC' | 'UD';
  readonly gidIndex?: number;
  readonly duration?: number;
  readonly run_infinitely?: boolean;
  readonly events?: boolean;
  readonly post_list?: number;
  readonly tclass: number;
  readonly write_with_imm?: boolean;
  readonly useSrq?: boolean;
  readonly atomic_type?: 'CMP_AND_SWAP' | 'FETCH_AND_ADD';
  readonly report_gbits?: boolean;
  readonly limit_bw?: number;
  readonly limit_msgrate?: number;
  readonly rdma_cm?: boolean;
  readonly comm_rdma_cm?: boolean;
  readonly tos?: number;
  readonly outs?: number;
  readonly inline_size?: number;
  readonly cqMod?: number;
  readonly noPeak?: boolean;
  readonly reportUnsorted?: boolean;
  readonly reportHistogram?: boolean;
  readonly qpTimeout: number;
  readonly retry: number;
  readonly address?: string;
  readonly idle: number;
  readonly trace?: boolean;
  readonly json?: boolean;
}

/** Receives of a queue pair, and of all together where what finds none is lost; both are numbers of the stock programs. */
const [RECEIVES, MOST_RECEIVES] = [512, 16_000];
/** How often --run_infinitely tells its bandwidth without --duration (s). */
const INTERVAL_S = 5;
/** Longest spin before sleeping (ms). */
const SPIN_MS = 0.2;
/** Memory that the card needs beside the messages. */
const CARD_BYTES = 2 ** 28;
const MAX_SIZE = 2 ** 30;
const MTUS = [256, 512, 1024, 2048, 4096];

export function perftestCommands(program: Command): void {
  for (const kind of KINDS) perftestCommand(program, kind);
}

function perftestCommand(program: Command, kind: Kind): void {
  const isBandwidth = kind.measures === 'bw';
  const command = program
    .command(kind.name)
    .summary(`either end of ${kind.stock}`)
    .description(
      `Measures the ${isBandwidth ? 'bandwidth' : 'latency'} of ${kind.verb === 'SEND' ? 'SEND' : `RDMA ${kind.verb}`} against ` +
        `${kind.stock} of perftest 4.5 to 25.01 or another wasm-roce: a client of HOST, or else a server for one client. Options ` +
        'have the letters and the meaning of perftest where it has them; both ends must be given the same.',
    )
    .argument('[host]', 'the server; without it this is one')
    .option('-p, --port <n>', 'TCP port of the hand-shake', integer(1, 65535), 18515)
    .option('-d, --ib-dev <interface>', 'network interface of the device')
    .option('-i, --ib-port <n>', 'port of the device; there is only 1', integer(1, 1), 1)
    .option('-n, --iters <n>', 'messages of each queue pair', integer(isBandwidth ? 1 : 2, 100_000_000), kind.iters)
    .option('-m, --mtu <bytes>', 'path MTU: 256, 512, 1024, 2048 or 4096; default: the most', pathMtu)
    .option('-x, --gid-index <n>', 'index in the GID table (see devinfo)', integer(0, 255))
    .option('-u, --qp-timeout <n>', 'ACK timeout, 4.096 us * 2^n; 0 = for ever', integer(0, 31), 14)
    .option('-D, --duration <s>', 'for so many seconds instead of --iters', duration)
    .option(
      '-R, --rdma_cm',
      'meet and connect by rdma_cm instead of TCP: -p is its port; not for UC, without -x and -m',
    )
    .option('-z, --comm_rdma_cm', 'meet by rdma_cm instead of TCP, and connect as over TCP')
    .option('--tclass <n>', 'traffic class of the IP headers', integer(0, 255), 0)
    .option('-T, --tos <n>', 'the same, with --rdma_cm', integer(0, 255))
    .option('-S, --sl <n>', 'service level; accepted, without effect on RoCE', integer(0, 15), 0)
    .option('-F, --CPU-freq', 'accepted, without effect')
    .option('--ipv6', 'accepted: HOST and --gid-index decide')
    .option('--ipv6-addr', 'accepted: HOST and --gid-index decide')
    .addOption(new Option('-c, --connection <type>', 'RC, UC or UD').choices(transportsOf(kind)).default('RC'));
  if (kind.verb !== 'ATOMIC')
    command
      .option(
        '-s, --size <bytes>',
        `bytes of a message; 64k, 1m; default: ${kind.size}${kind.verb === 'SEND' ? ', or with -c UD the path MTU if less' : ''}`,
        bytes(1, MAX_SIZE),
      )
      .option('-a, --all', 'all powers of two from 2 to 8 MiB');
  if (isBandwidth)
    command
      .option('-t, --tx-depth <n>', 'messages on the way of each queue pair', integer(1, 32767), 128)
      .option('-q, --qp <n>', 'queue pairs', integer(1, 1024), 1)
      .option('-l, --post_list <n>', 'messages posted at once; --iters must be a multiple', integer(1, 32767), 1)
      .option('-b, --bidirectional', 'both ends send')
      .option('--run_infinitely', `until Ctrl-C; tells the bandwidth every --duration (${INTERVAL_S}) seconds`)
      .option('-Q, --cq-mod <n>', 'one completion for so many messages; default: 1', integer(1, 1024))
      .option('-N, --noPeak', 'tell no peak')
      .option('--report_gbits', 'Gb/sec instead of MiB/sec')
      .option('-w, --limit_bw <n>', 'fail when the average is less, in the unit of the report', quantity(1e9))
      .option('-y, --limit_msgrate <n>', 'fail when there are fewer millions of messages a second', quantity(1e9));
  else
    command
      .option('-U, --report-unsorted', 'print the time of every message, as they came')
      .option('-H, --report-histogram', 'print the time of every message, the shortest first');
  if (kind.verb === 'READ' || kind.verb === 'ATOMIC')
    command.option(
      '-o, --outs <n>',
      `on the way of each queue pair, ${kind.verb}s alone; default: 16`,
      integer(1, 128),
    );
  else command.option('-I, --inline_size <bytes>', 'post messages up to this size inline', integer(0, 1024));
  if (kind.verb !== 'WRITE') command.option('-e, --events', 'sleep until completions come, instead of polling');
  if (kind.verb === 'SEND' || kind.verb === 'WRITE')
    command
      .option(
        '-r, --rx-depth <n>',
        `receives posted of each queue pair; default: ${RECEIVES}, with -c UC and UD up to ${MOST_RECEIVES} of all`,
        integer(1, 32767),
      )
      .option('--use-srq', 'all queue pairs take receives from one queue, of --rx-depth');
  if (kind.verb === 'WRITE') command.option('--write_with_imm', 'every WRITE has an immediate and takes a receive');
  if (kind.verb === 'ATOMIC')
    command.addOption(
      new Option('-A, --atomic_type <type>', 'which atomic')
        .choices(['CMP_AND_SWAP', 'FETCH_AND_ADD'])
        .default('FETCH_AND_ADD'),
    );
  command
    .option('--address <ip>', 'local address, the only one to use, also for TCP', address)
    .option('--retry <n>', 'how often an unanswered packet is sent again', integer(0, 7), 7)
    .option('--idle <s>', 'give up when the peer is silent for so long; 0 = never', quantity(1e6), 30)
    .option('--trace', 'keep the last packets, and show them when a message fails; costs some time')
    .option('--json', 'print one JSON object and nothing else')
    .addHelpText('after', help(kind));
  addLinkOptions(command).action((host: string | undefined, flags: Flags) => perftest(kind, host, flags));
}

async function perftest(kind: Kind, host: string | undefined, flags: Flags): Promise<void> {
  const output = new Output(flags.json ?? false);
  const options = read(kind, flags);
  if (flags.link === 'memory') {
    if (host !== undefined || flags.ibDev !== undefined || flags.address !== undefined)
      throw usageError('--link memory runs both ends in this process: it takes no HOST, --ib-dev or --address');
    await runBoth(options, output);
  } else if (host === undefined) {
    await runServer(options, output);
  } else {
    await runClient(host, options, output);
  }
}

function read(kind: Kind, flags: Flags): PerftestOptions {
  const size = flags.all ? LARGEST_OF_ALL : (flags.size ?? kind.size);
  const qps = flags.qp ?? 1;
  const isEndless = flags.run_infinitely ?? false;
  const iters = isEndless || flags.duration ? Number.POSITIVE_INFINITY : flags.iters;
  const rxDepth = flags.rxDepth ?? receivesOf(kind, flags, iters);
  checkCombination(kind, flags, iters, rxDepth);
  if (qps * 2 * slotBytes(size) > 2 ** 31)
    throw usageError(
      `${qps} queue pairs with ${size} bytes each way need ${qps * 2 * slotBytes(size)} bytes, over 2 GiB`,
    );
  return {
    kind,
    port: flags.port,
    rdmaCm: flags.rdma_cm ?? false,
    cmControl: flags.comm_rdma_cm ?? false,
    transport: flags.connection,
    size,
    sizeIsGiven: !flags.all && flags.size !== undefined,
    all: flags.all ?? false,
    iters,
    durationMs: isEndless ? 0 : (flags.duration ?? 0) * 1000,
    txDepth: kind.measures === 'lat' ? 1 : Math.min(flags.txDepth, iters),
    rxDepth: Math.min(flags.useSrq ? Math.floor(rxDepth / qps) : rxDepth, iters),
    sharesReceives: flags.useSrq ?? false,
    qps,
    postList: flags.post_list ?? 1,
    bidirectional: flags.bidirectional ?? false,
    immediate: flags.write_with_imm ?? false,
    atomic: flags.atomic_type ?? 'FETCH_AND_ADD',
    timeout: flags.qpTimeout,
    retryCnt: flags.retry,
    trafficClass: flags.tos ?? flags.tclass,
    gigabits: flags.report_gbits ?? false,
    noPeak: flags.noPeak ?? false,
    unsorted: flags.reportUnsorted ?? false,
    histogram: flags.reportHistogram ?? false,
    idleMs: flags.idle * 1000,
    spinMs: flags.events ? 0 : SPIN_MS,
    // measured: not a nanosecond for what may be explained, unless that is asked for
    open: {
      ...openOptions(flags),
      trace: flags.trace ? TRACE : 0,
      memoryBytes: CARD_BYTES + 2 * qps * slotBytes(size),
    },
    ...(isEndless && { endless: { intervalMs: (flags.duration ?? INTERVAL_S) * 1000, onStop: onInterrupt } }),
    ...(flags.outs !== undefined && { outs: flags.outs }),
    ...(flags.inline_size !== undefined && { inline: flags.inline_size }),
    ...(flags.cqMod !== undefined && { cqMod: flags.cqMod }),
    ...(flags.limit_bw !== undefined && { leastBandwidth: flags.limit_bw }),
    ...(flags.limit_msgrate !== undefined && { leastRate: flags.limit_msgrate }),
    ...(flags.mtu !== undefined && { mtu: flags.mtu }),
    ...(flags.gidIndex !== undefined && { gidIndex: flags.gidIndex }),
    ...(flags.ibDev !== undefined && { interface: flags.ibDev }),
    ...(flags.address !== undefined && { address: flags.address }),
    ...hostLink(flags),
  };
}

/** @throws CliError for what the stock programs refuse as well */
function checkCombination({ verb }: Kind, flags: Flags, iters: number, rxDepth: number): void {
  const { post_list: list = 1, txDepth, rdma_cm: byCm, qp: qps = 1 } = flags;
  if (flags.useSrq) {
    if (verb === 'WRITE' && !flags.write_with_imm)
      throw usageError('--use-srq is for messages that take receives: SEND, or WRITE with --write_with_imm');
    if (flags.connection === 'UC') throw usageError('--use-srq is not for -c UC');
    if (rxDepth < qps)
      throw usageError(`--use-srq: ${rxDepth} receives (--rx-depth) are too few for ${qps} queue pairs`);
  }
  if (flags.tos !== undefined && !byCm) throw usageError('--tos (-T) is for --rdma_cm (-R); --tclass is for all');
  if (byCm && flags.connection === 'UC') throw usageError('--rdma_cm (-R) is not for -c UC');
  if (byCm && flags.mtu !== undefined) throw usageError('--rdma_cm (-R) chooses the path MTU: it takes no --mtu');
  if (byCm && flags.gidIndex !== undefined)
    throw usageError('--rdma_cm (-R) chooses the GID by the address: it takes no --gid-index (-x)');
  if (!Number.isFinite(iters) && flags.all)
    throw usageError('--all goes by --iters, not --duration or --run_infinitely');
  if (flags.run_infinitely && flags.bidirectional && (verb === 'SEND' || flags.write_with_imm))
    throw usageError('--run_infinitely is not for messages that take receives in both directions (--bidirectional)');
  if (list > 1 && Number.isFinite(iters) && iters % list !== 0)
    throw usageError(`${iters} messages (--iters) are no multiple of ${list} posted at once (--post_list)`);
  if (list > txDepth)
    throw usageError(`${list} messages posted at once (--post_list) are more than ${txDepth} on the way (--tx-depth)`);
}

function receivesOf({ verb }: Kind, { connection, qp: qps = 1 }: Flags, iters: number): number {
  if (verb === 'READ' || verb === 'ATOMIC') return 1;
  // of a test for a time some may be lost
  if (connection === 'RC' || !Number.isFinite(iters)) return RECEIVES;
  return Math.max(RECEIVES, Math.floor(MOST_RECEIVES / qps));
}

function transportsOf({ verb }: Kind): string[] {
  return verb === 'SEND' ? ['RC', 'UC', 'UD'] : verb === 'WRITE' ? ['RC', 'UC'] : ['RC'];
}

function help({ name, stock }: Kind): string {
  return `
Examples:
  wasm-roce ${name}                     server; at the other machine: ${stock} -x 1 HERE
  wasm-roce ${name} 192.0.2.7 -n 200    client of: ${stock} -x 1 -n 200
  wasm-roce ${name} --link memory --json
${EXIT_HELP}`;
}

function duration(text: string): number {
  const value = quantity(1e6)(text);
  if (value === 0) throw new InvalidArgumentError('It must be more than 0.');
  return value;
}

function pathMtu(text: string): number {
  const value = Number(text);
  if (!MTUS.includes(value)) throw new InvalidArgumentError(`It must be one of ${MTUS.join(', ')}.`);
  return value;
}
