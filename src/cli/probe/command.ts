/** `wasm-roce probe`: tests what a peer does, packet by packet. */
import type { Command } from 'commander';
import { CliError, EXIT_HELP, errorReport, exitOf, failure, Stopped, stopSignal, usageError } from '../exit.js';
import { addDeviceOptions, address, bytes, integer, quantity } from '../options.js';
import { Output } from '../output.js';
import { readBaseline, writeReports } from './files.js';
import { checksNamed, loadChecks } from './load.js';
import { counts, plannedText } from './report.js';
import { type Flags, Run } from './run.js';

/** Packets per second that no peer notices: at most 90 Mbit/s at a path MTU of 1024. */
const RATE = 10_000;
/** Bytes of a ping that a server of rping takes unless it is told otherwise. */
const RPING_BYTES = 64;

const parsePort = integer(1, 65535);
/** Collects the ports of `--perftest`. */
const ports = (text: string, before: readonly number[] = []) => [...before, parsePort(text)];

/** Collects the addresses of `--peer-gid`. */
const gids = (text: string, before: readonly string[] = []) => [...before, address(text)];

export function probeCommand(program: Command): void {
  const command = program
    .command('probe')
    .summary('test what a peer does, packet by packet')
    .description(
      'Connects queue pairs of the peer, sends packets that a script has written, and judges the answers: of requests, ' +
        'gaps, duplicates, wrong keys, congestion. Each check has a queue pair of its own; other connections of the ' +
        'peer are left alone. The peer needs a server; see docs/probe.md.',
    )
    .argument('<peer>', 'address or name of the peer')
    .option('--check <check>', 'run only this check, by its name or number; may be repeated', collected)
    .option('--load <file>', 'add the checks of this module; may be repeated; see docs/write-a-check.md', collected)
    .option('--intrusive', 'also run checks that send malformed packets or end their connection by an error')
    .option('--dry-run', 'list what would be sent, and send nothing')
    .option('--rate <n>', 'send no more than this many packets per second', integer(1, 1_000_000), RATE)
    .option('--json <file>', 'write the report to this file as JSON; - is standard output')
    .option('--html <file>', 'write the report as a page, with the packets of each check')
    .option('--junit <file>', 'write the results as JUnit XML')
    .option('--packets <file>', 'write the packets of each check as pcapng, with comments')
    .option('--baseline <file>', 'compare with an earlier report, written by --json')
    .option('--regions <port>', "rdma_cm port of the peer's service regions, usually 7472", parsePort)
    .option('--traffic <port>', "rdma_cm port of the peer's service traffic, usually 7473", parsePort)
    .option('--rping <port>', 'rdma_cm port of a server of rping on the peer, usually 7174', parsePort)
    .option('--rping-size <bytes>', 'bytes of a ping that the server takes: its -S', bytes(1, 65535), RPING_BYTES)
    .option(
      '--perftest <port>',
      'TCP port of a server of perftest, stock or the service write-bw, usually 18515; may be repeated',
      ports,
    )
    .option('--cm <port>', 'rdma_cm port on which the peer accepts connections; default: of those found', parsePort)
    .option('--peer-gid <ip>', 'another address of the peer, which check 60 tries as well; may be repeated', gids)
    .option('--no-discovery', 'do not try first what the peer offers at the usual ports')
    .option('--check-time <s>', 'give up a check that takes longer', quantity(1e6, 0.001), 120)
    .option(
      '--time <s>',
      'end the run after this time, with the report so far; default: no limit',
      quantity(1e6, 0.001),
    )
    .option('-w, --timeout <s>', 'give up a connection when the peer is silent for this long', quantity(1e6, 0.001), 5);
  addDeviceOptions(command)
    .addHelpText(
      'after',
      `
Start on the peer:
  wasm-roce endpoint --serve regions --serve write-bw --serve traffic --region probe=64k
Or stock programs: rping for some of the checks of a peer that sends requests, perftest for some of the others:
  rping -s -P
  while :; do ib_write_bw; done

Examples:
  wasm-roce probe 192.0.2.7
  wasm-roce probe 192.0.2.7 --intrusive --html report.html
  wasm-roce probe 192.0.2.7 --perftest 18515 --perftest 18516
  wasm-roce probe 192.0.2.7 --json today.json --baseline yesterday.json
  wasm-roce probe 192.0.2.7 --check psn-gap --check 30 --intrusive --pcap probe.pcapng
${EXIT_HELP}`,
    )
    .action((peer: string, flags: Flags) =>
      probe(peer, flags).catch((error) => {
        throw isFile(flags) ? reported(error) : error;
      }),
    );
}

/** Collects the values of an option that may be repeated. */
const collected = (text: string, before: readonly string[] = []): readonly string[] => [...before, text];

/** Returns an error of which standard output gets no JSON: a report has it, or is a file. */
function reported(error: unknown): unknown {
  if (error instanceof Stopped) return error;
  const { code, message } = errorReport(error);
  return new CliError(exitOf(error), message, { cause: error, code, isReported: true });
}

/** Whether the report is a file, which is the result: standard output stays empty. */
const isFile = ({ json }: Flags): boolean => json !== undefined && json !== '-';

async function probe(peer: string, flags: Flags): Promise<void> {
  const { check: names, intrusive: isIntrusive = false } = flags;
  const all = await loadChecks(flags.load);
  const checks = names === undefined ? all : checksNamed(all, names);
  const output = new Output(flags.json === '-', isFile(flags) ? process.stderr : process.stdout);
  if (flags.dryRun) {
    for (const check of checks) if (isIntrusive || !check.isIntrusive) output.line(plannedText(check));
    return;
  }
  if (flags.link === 'memory' || flags.link === 'udp')
    throw usageError(`--link ${flags.link} sends no packets as they are written; probe needs packet or xdp`);
  if (flags.mode === 'worker') throw usageError('probe needs --mode inline, found --mode worker');
  const baseline = readBaseline(flags.baseline);
  const run = new Run(peer, checks, flags, output);
  let ended: Error | undefined;
  try {
    await run.run(stopSignal());
  } catch (error) {
    ended = error instanceof Error ? error : new Error(String(error));
  }
  try {
    const found = run.found(ended);
    const { pass, deviates, fails, 'not applicable': others, 'not reachable': absent } = counts(found.results);
    output.line(
      `${pass} pass, ${deviates} deviate, ${fails} fail, ${others} not applicable or not run, ${absent} not reachable`,
    );
    if (found.ended !== undefined) output.line(`The run has ended early: ${found.ended}`);
    writeReports(found, output, flags, baseline);
    if (ended !== undefined) throw reported(ended);
    if (fails > 0) throw failure(`${fails} of ${found.results.length} checks fail`, { isReported: true });
    if (pass + deviates === 0 && absent > 0)
      throw failure(`${peer} offers nothing that the checks can use`, { isReported: true });
  } finally {
    await run.close();
  }
}
