/** One run of the checks over a link of this host: its device, the services of the peer, and the results so far. */
import { setMaxListeners } from 'node:events';
import { waitFor } from '../../base/waiting.js';
import { type Device, gidAddress, type Link } from '../../index.js';
import {
  type Check,
  type CheckResult,
  EventFaultLink,
  isNotRun,
  type PacketTimes,
  type ProbeLink,
  type ProbeRun,
  runChecks,
  ScriptedLink,
  type Target,
} from '../../probe.js';
import { openForHost } from '../device.js';
import { CliError, Exit, errorReport } from '../exit.js';
import { type DeviceFlags, deviceOptions, openOptions } from '../options.js';
import type { Output } from '../output.js';
import { version } from '../version.js';
import { type Candidate, discover, discoveryText } from './discovery.js';
import type { Files } from './files.js';
import { PeerManager } from './manager.js';
import { resultText } from './report.js';
import { candidatesOf, canScript } from './services.js';
import { LinkTarget, type PeerService, type RequesterService } from './target.js';

/** The options of the command. */
export interface Flags extends DeviceFlags, Files {
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
  readonly peerGid?: readonly string[];
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

/** The target of a run that ends before it has one. */
const NOBODY: Target = { responder: async () => '' };

/** A run of checks over a link of this host. Whatever ends it, it knows what was found so far. */
export class Run {
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
    // each connect of the discovery listens, all at once
    setMaxListeners(0, end.signal);
    const stop = () => end.abort(signal.reason);
    signal.addEventListener('abort', stop);
    let target: LinkTarget | undefined;
    try {
      target = await waitFor(this.#open(end.signal), '', { signal: end.signal });
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

  /** Returns the results of the run. @param ended the reason for an early end */
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
  const manager = new PeerManager({ device, link, host, port, ...(flags.peerGid && { gids: flags.peerGid }) });
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
  const { fault: { rules, ...fault } = {}, ...open } = openOptions(flags);
  const wrapLink = (inner: Link): Link => {
    // the rules meet the packets of scripts too, which the card does not know
    link = new ScriptedLink(rules ? new EventFaultLink(inner, rules, fault.seed) : inner, { rate: flags.rate });
    return link;
  };
  const device = await openForHost(peer, {
    open: { ...open, ...(fault.both && { fault }), wrapLink },
    ...deviceOptions(flags),
  });
  if (link !== undefined && canScript(device)) return { device, link };
  await device.close({ force: true });
  throw new CliError(
    Exit.ENVIRONMENT,
    'probe needs the packet or xdp link, on which packets leave as they are written: it lacks CAP_NET_RAW or the addon',
  );
}
