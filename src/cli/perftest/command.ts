/** `wasm-roce send-bw` and its variants: either end of the programs of perftest. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { TRACE_FRAMES } from '../device.js';
import { EXIT_HELP, onInterrupt, usageError } from '../exit.js';
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
import { KINDS, MAX_SIZE_OF_ALL, type PerftestOptions, type TestKind } from './parameters.js';
import { slotBytes } from './resources.js';
import { runBoth, runClient, runServer } from './roles.js';

interface Flags extends DeviceFlags {
  readonly port: number;
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
  readonly idle: number;
  readonly trace?: boolean;
  readonly json?: boolean;
}

/** Default receives of a queue pair, and with UC and UD of all together; both as in the stock programs. */
const [RECEIVES, MAX_RECEIVES] = [512, 16_000];
/** Interval of --run_infinitely without --duration (s). */
const INTERVAL_S = 5;
/** Longest spin before sleeping (ms). */
const SPIN_MS = 0.2;
/** Memory that the card needs besides the messages. */
const CARD_BYTES = 2 ** 28;
const MAX_SIZE = 2 ** 30;

/** @param called the only command to define. Default: all */
export function perftestCommands(program: Command, called?: string): void {
  for (const kind of KINDS) if (called === undefined || kind.name === called) perftestCommand(program, kind);
}

function perftestCommand(program: Command, kind: TestKind): void {
  const isBandwidth = kind.measures === 'bw';
  const command = addIbOptions(program.command(kind.name))
    .summary(`either end of ${kind.stock}`)
    .description(
      `Measures the ${isBandwidth ? 'bandwidth' : 'latency'} of ${kind.verb === 'SEND' ? 'SEND' : `RDMA ${kind.verb}`} against ` +
        `${kind.stock} of perftest 4.5 to 25.01 or another wasm-roce. With HOST it is the client, without HOST a server for ` +
        'one client. Options are those of perftest, and some more; give both ends the same.',
    )
    .argument('[host]', 'address or name of the server; omit it to be the server')
    .option('-p, --port <n>', 'TCP port of the handshake', integer(1, 65535), 18515)
    .option('-n, --iters <n>', 'messages per queue pair', integer(isBandwidth ? 1 : 2, 100_000_000), kind.iters)
    .option('-m, --mtu <bytes>', 'path MTU: 256, 512, 1024, 2048 or 4096; default: the largest possible', pathMtu)
    .option('-x, --gid-index <n>', 'index in the GID table (see devinfo)', integer(0, 255))
    .option('-u, --qp-timeout <n>', 'ACK timeout, 4.096 us * 2^n; 0 = no timeout', integer(0, 31), 14)
    .option('-D, --duration <s>', 'run for this many seconds instead of --iters', duration)
    .option(
      '-R, --rdma_cm',
      'exchange parameters and connect by rdma_cm, on port -p, instead of TCP; not with -c UC, -x or -m',
    )
    .option('-z, --comm_rdma_cm', 'exchange parameters by rdma_cm instead of TCP, but connect without it')
    .option('--tclass <n>', 'traffic class of the IP headers', integer(0, 255), 0)
    .option('-T, --tos <n>', 'the same as --tclass, with --rdma_cm', integer(0, 255))
    .option('-S, --sl <n>', 'service level; accepted, no effect on RoCE', integer(0, 15), 0)
    .option('-F, --CPU-freq', 'accepted, no effect')
    .option('--ipv6', 'accepted, no effect: HOST and --gid-index decide')
    .option('--ipv6-addr', 'accepted, no effect: HOST and --gid-index decide')
    .addOption(
      new Option('-c, --connection <type>', 'transport of the queue pairs').choices(transportsOf(kind)).default('RC'),
    );
  if (kind.verb !== 'ATOMIC')
    command
      .option(
        '-s, --size <bytes>',
        `message size, such as 4096, 64k or 1m; default: ${kind.size}${kind.verb === 'SEND' ? ', with -c UD at most the path MTU' : ''}`,
        bytes(1, MAX_SIZE),
      )
      .option('-a, --all', 'run with all powers of two from 2 to 8 MiB');
  if (isBandwidth)
    command
      .option('-t, --tx-depth <n>', 'messages in flight per queue pair', integer(1, 32767), 128)
      .option('-q, --qp <n>', 'number of queue pairs', integer(1, 1024), 1)
      .option('-l, --post_list <n>', 'messages posted by one call; --iters must be a multiple', integer(1, 32767), 1)
      .option('-b, --bidirectional', 'both ends send')
      .option(
        '--run_infinitely',
        `run until Ctrl-C; print the bandwidth every --duration seconds (default: ${INTERVAL_S})`,
      )
      .option('-Q, --cq-mod <n>', 'request a completion for every nth message; default: 1', integer(1, 1024))
      .option('-N, --noPeak', 'do not measure the peak')
      .option('--report_gbits', 'report Gb/sec instead of MiB/sec')
      .option('-w, --limit_bw <n>', 'fail when the average is lower, in the unit of the report', quantity(1e9))
      .option(
        '-y, --limit_msgrate <n>',
        'fail when the rate is lower, in millions of messages per second',
        quantity(1e9),
      );
  else
    command
      .option('-U, --report-unsorted', 'print the time of every message, in order of completion')
      .option('-H, --report-histogram', 'print the time of every message, shortest first');
  if (kind.verb === 'READ' || kind.verb === 'ATOMIC')
    command.option('-o, --outs <n>', `${kind.verb}s in flight per queue pair; default: 16`, integer(1, 128));
  else command.option('-I, --inline_size <bytes>', 'post messages up to this size inline', integer(0, 1024));
  if (kind.verb !== 'WRITE') command.option('-e, --events', 'sleep until a completion instead of polling');
  if (kind.verb === 'SEND' || kind.verb === 'WRITE')
    command
      .option(
        '-r, --rx-depth <n>',
        `receives kept posted per queue pair; default: ${RECEIVES}, with -c UC and UD up to ${MAX_RECEIVES} in all`,
        integer(1, 32767),
      )
      .option('--use-srq', 'use one shared receive queue, of --rx-depth receives, for all queue pairs');
  if (kind.verb === 'WRITE')
    command.option('--write_with_imm', 'send immediate data with every WRITE, which consumes a receive');
  if (kind.verb === 'ATOMIC')
    command.addOption(
      new Option('-A, --atomic_type <type>', 'atomic operation')
        .choices(['CMP_AND_SWAP', 'FETCH_AND_ADD'])
        .default('FETCH_AND_ADD'),
    );
  command
    .option('--address <ip>', 'the only local address to use, also for TCP', address)
    .option('--retry <n>', 'how often to retransmit a packet before giving up', integer(0, 7), 7)
    .option('--idle <s>', 'give up after this much silence of the peer; 0 = never', quantity(1e6), 30)
    .option('--trace', 'record the last packets and show them when a message fails; costs some time')
    .option('--json', 'print only a JSON object')
    .addHelpText('after', help(kind));
  addLinkOptions(command).action((host: string | undefined, flags: Flags) => perftest(kind, host, flags));
}

async function perftest(kind: TestKind, host: string | undefined, flags: Flags): Promise<void> {
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

function read(kind: TestKind, flags: Flags): PerftestOptions {
  const size = flags.all ? MAX_SIZE_OF_ALL : (flags.size ?? kind.size);
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
    commRdmaCm: flags.comm_rdma_cm ?? false,
    transport: flags.connection,
    size,
    isSizeGiven: !flags.all && flags.size !== undefined,
    all: flags.all ?? false,
    iters,
    durationMs: isEndless ? 0 : (flags.duration ?? 0) * 1000,
    txDepth: kind.measures === 'lat' ? 1 : Math.min(flags.txDepth, iters),
    rxDepth: Math.min(flags.useSrq ? Math.floor(rxDepth / qps) : rxDepth, iters),
    useSrq: flags.useSrq ?? false,
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
    // recording packets would cost time in the measurement: only when asked for
    open: {
      ...openOptions(flags),
      trace: flags.trace ? TRACE_FRAMES : 0,
      memoryBytes: CARD_BYTES + 2 * qps * slotBytes(size),
    },
    ...(isEndless && { runInfinitely: { intervalMs: (flags.duration ?? INTERVAL_S) * 1000, onStop: onInterrupt } }),
    ...(flags.outs !== undefined && { outs: flags.outs }),
    ...(flags.inline_size !== undefined && { inline: flags.inline_size }),
    ...(flags.cqMod !== undefined && { cqMod: flags.cqMod }),
    ...(flags.limit_bw !== undefined && { limitBandwidth: flags.limit_bw }),
    ...(flags.limit_msgrate !== undefined && { limitMsgRate: flags.limit_msgrate }),
    ...(flags.mtu !== undefined && { mtu: flags.mtu }),
    ...(flags.gidIndex !== undefined && { gidIndex: flags.gidIndex }),
    ...deviceOptions(flags),
  };
}

/** @throws CliError for combinations that the stock programs refuse as well */
function checkCombination({ verb }: TestKind, flags: Flags, iters: number, rxDepth: number): void {
  const { post_list: list = 1, txDepth, rdma_cm: byCm, qp: qps = 1 } = flags;
  if (flags.useSrq) {
    if (verb === 'WRITE' && !flags.write_with_imm)
      throw usageError('--use-srq is for messages that consume receives: SEND, or WRITE with --write_with_imm');
    if (flags.connection === 'UC') throw usageError('--use-srq is not for -c UC');
    if (rxDepth < qps)
      throw usageError(`--use-srq: ${rxDepth} receives (--rx-depth) are too few for ${qps} queue pairs`);
  }
  if (flags.tos !== undefined && !byCm) throw usageError('--tos (-T) is for --rdma_cm (-R); --tclass is for all');
  if (byCm && flags.connection === 'UC') throw usageError('--rdma_cm (-R) is not for -c UC');
  if (byCm && flags.mtu !== undefined) throw usageError('--rdma_cm (-R) chooses the path MTU: it takes no --mtu');
  if (byCm && flags.gidIndex !== undefined)
    throw usageError('--rdma_cm (-R) chooses the GID by the address: it takes no --gid-index (-x)');
  if (!Number.isFinite(iters) && flags.all) throw usageError('--all needs --iters, not --duration or --run_infinitely');
  if (flags.run_infinitely && flags.bidirectional && (verb === 'SEND' || flags.write_with_imm))
    throw usageError('--run_infinitely is not for messages that consume receives in both directions (--bidirectional)');
  if (list > 1 && Number.isFinite(iters) && iters % list !== 0)
    throw usageError(`${iters} messages (--iters) are not a multiple of the ${list} posted by one call (--post_list)`);
  if (list > txDepth)
    throw usageError(
      `${list} messages posted by one call (--post_list) are more than the ${txDepth} in flight (--tx-depth)`,
    );
}

function receivesOf({ verb }: TestKind, { connection, qp: qps = 1 }: Flags, iters: number): number {
  if (verb === 'READ' || verb === 'ATOMIC') return 1;
  // a test with --duration may lose messages
  if (connection === 'RC' || !Number.isFinite(iters)) return RECEIVES;
  return Math.max(RECEIVES, Math.floor(MAX_RECEIVES / qps));
}

function transportsOf({ verb }: TestKind): string[] {
  return verb === 'SEND' ? ['RC', 'UC', 'UD'] : verb === 'WRITE' ? ['RC', 'UC'] : ['RC'];
}

function help({ name, stock }: TestKind): string {
  return `
Examples:
  wasm-roce ${name}                     server; on the other host: ${stock} -x 1 HOST
  wasm-roce ${name} 192.0.2.7 -n 200    client; the server: ${stock} -x 1 -n 200
  wasm-roce ${name} --link memory --json
${EXIT_HELP}`;
}

function duration(text: string): number {
  const value = quantity(1e6)(text);
  if (value === 0) throw new InvalidArgumentError('It must be more than 0.');
  return value;
}
