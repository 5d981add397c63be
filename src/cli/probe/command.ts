/** `wasm-roce probe`: tests what a peer does, packet by packet. */
import type { Command } from 'commander';
import { unlessStopped } from '../../base/unlessstopped.js';
import { type Device, gidAddress, type Link } from '../../index.js';
import {
  type Check,
  type CheckResult,
  isNotRun,
  type PacketTimes,
  type ProbeLink,
  type ProbeRun,
  runChecks,
  ScriptedLink,
  type Target,
} from '../../probe.js';
import { openForHost } from '../device.js';
import { CliError, EXIT_HELP, Exit, errorReport, exitOf, failure, Stopped, stopSignal, usageError } from '../exit.js';
import {
  addDeviceOptions,
  bytes,
  type DeviceFlags,
  deviceOptions,
  integer,
  openOptions,
  quantity,
} from '../options.js';
import { Output } from '../output.js';
import { version } from '../version.js';
import { type Candidate, discover, discoveryText } from './discovery.js';
import { type Files, readBaseline, writeReports } from './files.js';
import { checksNamed, loadChecks } from './load.js';
import { PeerManager } from './manager.js';
import { counts, plannedText, resultText } from './report.js';
import { candidatesOf, canScript } from './services.js';
import { LinkTarget, type PeerService, type RequesterService } from './target.js';

interface Flags extends DeviceFlags, Files {
  readonly check?: readonly string[];
  readonly load?: readonly string[];
  readonly intrusive?: boolean;
  readonly dryRun?: boolean;
  readonly regions?: number;
  readonly traffic?: number;
  readonly rping?: number;
  readonly rpingSize: number;
  readonly perftest?: readonly number[];
  readonly discovery: boolean;
  readonly cm?: number;
  readonly timeout: number;
  readonly checkTime: number;
  readonly time?: number;
  readonly rate: number;
}

/** A device whose link takes packets of scripts. */
interface Scripted {
  readonly device: Device;
  readonly link: ScriptedLink;
}

/** Packets per second that no peer notices: at most 90 Mbit/s at a path MTU of 1024. */
const RATE = 10_000;
/** Bytes of a ping that a server of rping takes unless it is told otherwise. */
const RPING_BYTES = 64;

const parsePort = integer(1, 65535);
/** Collects the ports of `--perftest`. */
const ports = (text: string, before: readonly number[] = []) => [...before, parsePort(text)];

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
    .action((peer: string, flags: Flags) => probe(peer, flags).catch((error) => throwReported(error, flags)));
}

/** Collects the values of an option that may be repeated. */
const collected = (text: string, before: readonly string[] = []): readonly string[] => [...before, text];

/** Throws an error of a command whose report is a file: standard output gets no JSON of the error. */
function throwReported(error: unknown, { json }: Flags): never {
  if (json === undefined || json === '-' || error instanceof Stopped) throw error;
  const { code, message } = errorReport(error);
  throw new CliError(exitOf(error), message, { cause: error, code, isReported: true });
}

async function probe(peer: string, flags: Flags): Promise<void> {
  const { check: names, intrusive: isIntrusive = false } = flags;
  const all = await loadChecks(flags.load);
  const checks = names === undefined ? all : checksNamed(all, names);
  // a report in a file is the result: text goes beside it
  const isFile = flags.json !== undefined && flags.json !== '-';
  const output = new Output(flags.json === '-', isFile ? process.stderr : process.stdout);
  if (flags.dryRun) {
    for (const check of checks) if (isIntrusive || !check.isIntrusive) output.line(plannedText(check));
    return;
  }
  if (flags.link === 'memory' || flags.link === 'udp')
    throw usageError(`--link ${flags.link} sends no packets as they are written; probe needs packet or xdp`);
  if (flags.mode === 'worker') throw usageError('probe needs --mode inline, found --mode worker');
  const baseline = readBaseline(flags.baseline);
  const run = new Running(peer, checks, flags, output);
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
    if (ended instanceof Stopped) throw ended;
    if (ended !== undefined) throw new CliError(exitOf(ended), found.ended ?? '', { cause: ended, isReported: true });
    if (fails > 0) throw failure(`${fails} of ${found.results.length} checks fail`, { isReported: true });
    if (pass + deviates === 0 && absent > 0)
      throw failure(`${peer} offers nothing that the checks can use`, { isReported: true });
  } finally {
    await run.close();
  }
}

/** The target of a run that ends before it has one. */
const NOBODY: Target = { responder: async () => '' };

/** A run of checks over a link of this host. Whatever ends it, it knows what was found so far. */
class Running {
  readonly #results: CheckResult[] = [];
  readonly #date = new Date();
  #scripted: Scripted | undefined;
  #links: readonly ProbeLink[] = [];

  constructor(
    readonly peer: string,
    readonly checks: readonly Check[],
    readonly flags: Flags,
    readonly output: Output,
  ) {}

  /** Runs the checks. @throws Error that has ended the run early, when every check has its result nevertheless */
  async run(signal: AbortSignal): Promise<void> {
    const { checks, flags, output } = this;
    const end = new AbortController();
    const stop = () => end.abort(signal.reason);
    signal.addEventListener('abort', stop);
    let target: LinkTarget | undefined;
    try {
      target = await unlessStopped(this.#open(end.signal), end.signal);
    } catch (error) {
      end.abort(error);
    }
    const { intrusive: isIntrusive = false } = flags;
    const limits = { checkTime: flags.checkTime * 1000, ...(flags.time !== undefined && { time: flags.time * 1000 }) };
    const options = { isIntrusive, signal: end.signal, ...limits };
    try {
      for await (const result of runChecks(checks, target ?? NOBODY, options)) {
        this.#results.push(result);
        const check = checks.find(({ name }) => name === result.name) as Check;
        if (!isNotRun(result)) output.line(resultText(check, result));
      }
    } finally {
      if (target !== undefined && this.#scripted) this.#about(this.#scripted.link, target);
    }
  }

  /** Says what is known of the run as a whole. */
  #about({ times }: ScriptedLink, target: LinkTarget): void {
    const { output } = this;
    for (const [start, why] of target.missing) output.note(`not there: ${start}: ${why}`);
    output.note(timesText(times));
    const { error: timeError } = times;
    if (timeError !== undefined) this.#links = this.#links.map((each) => ({ ...each, timeError }));
  }

  /** Returns what the run has found. @param ended why it ended early, if it did */
  found(ended: Error | undefined): ProbeRun {
    const { peer, checks } = this;
    const run = { version, date: this.#date, links: this.#links, peer, checks, results: this.#results };
    return ended === undefined ? run : { ...run, ended: errorReport(ended).message };
  }

  async close(): Promise<void> {
    await this.#scripted?.device.close({ force: true });
  }

  /** Opens the device, and finds what the peer offers. */
  async #open(signal: AbortSignal): Promise<LinkTarget> {
    const { peer, flags, output } = this;
    this.#scripted = await openScripted(peer, flags);
    const { device, link } = this.#scripted;
    this.#links = [linkOf(device)];
    const services = await servicesOf(peer, { device, link }, flags, signal, output);
    return new LinkTarget({ device, link, ...services });
  }
}

/** Finds out which services the peer offers, and says so. */
async function servicesOf(host: string, { device, link }: Scripted, flags: Flags, signal: AbortSignal, output: Output) {
  const timeoutMs = flags.timeout * 1000;
  const candidates = candidatesOf(host, timeoutMs, flags.rpingSize, flags);
  const services = candidates.flatMap(({ service }) => service ?? []);
  const requesters = candidates.flatMap(({ requester }) => requester ?? []);
  const absent = new Map<PeerService | RequesterService, string>();
  const there = new Set(candidates.filter(({ isTold }) => isTold));
  if (flags.discovery)
    for await (const { candidate, why } of discover(candidates, { device, host, timeoutMs, signal })) {
      signal.throwIfAborted();
      output.line(discoveryText({ candidate, ...(why !== undefined && { why }) }));
      if (why === undefined) there.add(candidate);
      else for (const used of [candidate.service, candidate.requester]) if (used) absent.set(used, why);
    }
  // any server over rdma_cm shows how the connection manager connects
  const accepting = candidates.find((one) => one.over === 'rdma_cm' && there.has(one)) ?? candidates[0];
  const port = flags.cm ?? (accepting as Candidate).port;
  const manager = new PeerManager({ device, link, host, port });
  return { services, requesters, absent, manager };
}

/** Returns what a report tells of our end. */
function linkOf(device: Device): ProbeLink {
  const { interface: name, activeMtu } = device.queryPort();
  const address = gidAddress(device.chooseGid().gid);
  return { kind: device.query().link.kind, interface: name, address, mtu: activeMtu };
}

/** Says which clock the times of packets are of. */
function timesText({ kernel, process, error, reason }: PacketTimes): string {
  if (reason !== undefined) return `times are of this process, with its delays: ${reason}`;
  if (error === undefined) return 'times are of this process, with its delays: the kernel told none';
  return `times of ${kernel} packets are of the kernel, of ${process} of this process; error at most ${(error / 1000).toFixed(1)} µs`;
}

async function openScripted(peer: string, flags: Flags): Promise<Scripted> {
  let link: ScriptedLink | undefined;
  const open = openOptions(flags);
  const wrapLink = (inner: Link): Link => {
    link = new ScriptedLink(open.wrapLink?.(inner) ?? inner, { rate: flags.rate });
    return link;
  };
  const device = await openForHost(peer, {
    open: { ...open, wrapLink },
    ...deviceOptions(flags),
  });
  if (link !== undefined && canScript(device)) return { device, link };
  await device.close({ force: true });
  throw new CliError(
    Exit.ENVIRONMENT,
    'probe needs the packet or xdp link, on which packets leave as they are written: it lacks CAP_NET_RAW or the addon',
  );
}
