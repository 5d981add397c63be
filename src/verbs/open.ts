/** Opens a device. */
import { createHash, randomBytes } from 'node:crypto';
import type { Writable } from 'node:stream';
import { diagnostics, publishTo } from '../base/diagnostics.js';
import {
  anything,
  type Checks,
  checkBoolean,
  checkInteger,
  checkOptions,
  instanceOf,
  integer,
  nested,
  oneOf,
  show,
  text,
  texts,
  wrongType,
} from '../base/options.js';
import { WAIT_CHECKS } from '../base/waiting.js';
import { CARD_DEFAULTS, Card, receiveSlots } from '../device/card.js';
import { type ChosenLink, openHostLink, openMemoryLink } from '../device/chooselink.js';
import { LIMITS } from '../device/codes.js';
import type { Engine, Mode } from '../device/engine.js';
import { InlineEngine } from '../device/inline.js';
import { TurnLock } from '../device/turnlock.js';
import { WorkerEngine } from '../device/worker.js';
import { invalidType, invalidValue, outOfRange, VerbsError, withDetails } from '../errors.js';
import { faultLink } from '../link/fault/link.js';
import type { FaultOptions, FaultRates } from '../link/fault/options.js';
import type { Link } from '../link/link.js';
import { MemoryHub } from '../link/memory/link.js';
import { pcapLink } from '../link/pcap.js';
import { addressTowards } from '../link/peer.js';
import { MAX_QUEUES, type XdpOptions } from '../link/xdp/link.js';
import { checkFaultRules, Faults } from './diagnose/faults.js';
import type { CongestionParameters } from './objects/congestion.js';
import { Context, type ContextInit } from './objects/context.js';

/** Options of `openDevice`. */
export interface OpenOptions {
  /**
   * Thread that runs the card. `inline`: the calling thread, from its event loop and from polls; the lowest latency for
   * a program that spins on `cq.poll()`. `worker`: a thread of its own, so that peers are served while the program is
   * busy; only for the links `packet`, `udp` and `xdp`. Default `inline`.
   */
  readonly mode?: Mode;
  /**
   * Worker mode: maximum time that the card's thread polls for work before it sleeps, microseconds; less when polling
   * has found no work recently. 0 = sleeps at once, Infinity = never sleeps. Default 50.
   */
  readonly spin?: number;
  /**
   * Network interface for the links `packet`, `udp` and `xdp`. Default: the one with the first of `addresses`; else the
   * one by which `peer` is reached; else the first one that is up and has an address.
   */
  readonly interface?: string;
  /**
   * Host name or IP address of a peer: chooses the interface by which the kernel reaches it. No effect where
   * `interface` or `addresses` is given, or on the `memory` link. On the loopback interface the device has only the
   * address from which the kernel reaches the peer, so that each program of the host can have its own.
   */
  readonly peer?: string;
  /**
   * Local IP addresses. Default: all addresses of the interface; on a hub the first free `10.0.0.n` (with `fd00::n` and
   * `fe80::n`).
   */
  readonly addresses?: readonly string[];
  /**
   * Link that moves the frames: `packet` (packet sockets; needs CAP_NET_RAW), `udp` (a UDP socket on port 4791; needs
   * no privilege), `xdp` (AF_XDP sockets: the lowest latency; needs libbpf, CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, and
   * exclusive use of its queues), `memory` (devices of this process), or an object that implements `Link`. Default:
   * `memory` with a `hub`; else `packet` if the process may use it, else `udp`.
   */
  readonly link?: 'packet' | 'udp' | 'xdp' | 'memory' | Link;
  /**
   * Several devices on one interface, each in its own thread or process, share the work of receiving: the kernel gives
   * this device only packets to its own queue pairs (flow steering), so that those of the others take none of its time.
   * It cannot tell whose packets with a UDP checksum are; devices of this library send super-packets so. Packets for no
   * queue pair at all are not counted (`drop_qpn`) if the kernel holds them back. A device that shares its addresses
   * (`broker`) always has it; else link `packet` only. Default false.
   */
  readonly flowSteering?: boolean;
  /**
   * Whether the device shares its addresses with the other programs of this host, and reaches them by these addresses,
   * through the broker, which is started if there is none (`wasm-roce broker`). The device's notes say what came of it.
   * Not on the `memory` link. Default: the environment variable WASM_ROCE_BROKER, which is `on` or `off`; `on` without
   * it.
   */
  readonly broker?: boolean;
  /** Options of the `xdp` link: queues, mode, zero copy, busy polling. */
  readonly xdp?: XdpOptions;
  /**
   * Hub of the `memory` link: devices on the same hub reach each other. Default: a hub shared by all devices without
   * one.
   */
  readonly hub?: MemoryHub;
  /**
   * Captures all frames, in both directions, as pcapng for Wireshark: path of a file, which is overwritten, or a
   * stream.
   */
  readonly pcap?: string | Writable;
  /**
   * Fault injection, repeatable by its seed: loss, duplication, reordering, delay, corruption, congestion marks, by
   * chance or by rules for chosen packets. A capture shows its effect.
   */
  readonly fault?: FaultOptions;
  /**
   * Puts a link around the device's link, to watch, change, hold back or answer frames: gets the link, with its capture
   * and random faults, and returns the link that the card uses, such as an `EventFaultLink` of `wasm-roce/probe`.
   * Called once, before the link is attached. Mode `inline` only.
   */
  readonly wrapLink?: (link: Link) => Link;
  /**
   * Whether the link computes most of the ICRC of large packets, if it can (see `device.query().link.features`):
   * `packet`, `udp` and `xdp` can on x86-64 and arm64. With false, the card computes all of it. Default true.
   */
  readonly icrcOffload?: boolean;
  /**
   * Size of the card's memory in bytes, for registered memory, queues and queue pairs: 8 MiB to 4 GiB. Default 256 MiB.
   */
  readonly memoryBytes?: number;
  /**
   * Seed of keys, queue pair numbers and PSNs, to make a run repeatable. Default: random; a known seed lets others
   * guess keys.
   */
  readonly seed?: number | string | Uint8Array;
  /** Whether a connected queue pair keeps the process running. Default false: only pending waits do. */
  readonly keepAlive?: boolean;
  /** Congestion control parameters other than the defaults; `{ enabled: false, ect: false }` switches it off. */
  readonly congestion?: Partial<CongestionParameters>;
  /**
   * Publishes the device for `wasm-roce stat` of the same user, under this name or its own; see `device.publish`.
   * Default false.
   */
  readonly publish?: boolean | string;
  /** Number of recent frames whose headers are kept, so that explanations can show packets, 0 to 65536. Default 0. */
  readonly trace?: number;
  /**
   * Traces the last decisions of the card, 0 to 65536 of them (rounded up to a power of two), or `true` for 1024:
   * changes of state, retransmissions, failures and NAKs. `device.decisions()` returns them, and explanations show
   * them. Costs nothing for ordinary packets. Default 0.
   */
  readonly decisions?: number | boolean;
  /** P_Key table, 1 to 128 entries of 16 bits; bit 15 = full member. Default `[0xffff]`, the default partition. */
  readonly pkeys?: readonly number[];
  /** Aborted before the device is open: the promise is rejected with the signal's reason. No effect afterwards. */
  readonly signal?: AbortSignal;
}

/** Decisions that are traced by default where the trace is on. */
const DECISIONS = 1024;
/** Environment variable with the default of the option `broker`. */
const BROKER_VARIABLE = 'WASM_ROCE_BROKER';
/** About the time that it takes to wake a thread (µs). */
const DEFAULT_SPIN_US = 50;
/** Room for packet slots (small ones, see receiveSlots) and tables, and some for the application. */
const MIN_MEMORY_BYTES = 8 * 2 ** 20;
/** Checks the size of a card's memory. @throws TypeError, RangeError */
export const checkMemoryBytes = (name: string, value: unknown): number =>
  checkInteger(name, value, MIN_MEMORY_BYTES, 2 ** 32);

const RATE_CHECKS: Checks<FaultRates> = {
  drop: anything,
  duplicate: anything,
  reorder: anything,
  delay: anything,
  delayNs: anything,
  corrupt: anything,
  ecn: anything,
};
const FAULT_CHECKS: Checks<FaultOptions> = {
  seed: anything,
  both: nested(RATE_CHECKS),
  tx: nested(RATE_CHECKS),
  rx: nested(RATE_CHECKS),
  rules: texts,
};
const XDP_CHECKS: Checks<XdpOptions> = {
  queues: (name, queues) => {
    if (!Array.isArray(queues) || queues.length === 0 || new Set(queues).size < queues.length)
      throw wrongType(name, queues, 'an array of different queue numbers');
    for (const queue of queues) checkInteger(name, queue, 0, MAX_QUEUES - 1);
  },
  mode: oneOf('native', 'generic'),
  zeroCopy: checkBoolean,
  busyPoll: integer(1, 1_000_000),
};
/** The names and checks of all options; the values of some are checked by what uses them. */
const CHECKS: Checks<OpenOptions> = {
  mode: oneOf('inline', 'worker'),
  spin: (name, spin) => {
    if (typeof spin !== 'number') throw wrongType(name, spin, 'microseconds');
    if (!(spin >= 0)) throw outOfRange(`${name} is ${spin}, must be microseconds from 0 to Infinity`);
  },
  interface: text,
  peer: text,
  addresses: texts,
  link: (name, link) => {
    if (isObject(link) && 'attach' in link) return;
    if (!['packet', 'udp', 'xdp', 'memory'].includes(link as string))
      throw invalidValue(`${name} is ${show(link)}, must be 'packet', 'udp', 'xdp', 'memory' or a link`);
  },
  flowSteering: checkBoolean,
  broker: checkBoolean,
  xdp: nested(XDP_CHECKS),
  hub: instanceOf(() => MemoryHub, 'made by createMemoryHub'),
  pcap: (name, pcap) => {
    if (typeof pcap !== 'string' && !(isObject(pcap) && 'write' in pcap))
      throw wrongType(name, pcap, 'a path or a stream');
  },
  fault: nested(FAULT_CHECKS),
  wrapLink: (name, wrap) => {
    if (typeof wrap !== 'function') throw wrongType(name, wrap, 'a function');
  },
  icrcOffload: checkBoolean,
  memoryBytes: checkMemoryBytes,
  seed: (name, seed) => {
    if (typeof seed !== 'number' && typeof seed !== 'string' && !(seed instanceof Uint8Array))
      throw wrongType(name, seed, 'a number, text or bytes');
  },
  keepAlive: checkBoolean,
  congestion: anything,
  publish: (name, value) => {
    if (typeof value !== 'boolean') text(name, value);
  },
  trace: integer(0, 65536),
  decisions: (name, value) => {
    if (typeof value !== 'boolean') checkInteger(name, value, 0, LIMITS.maxDecisions);
  },
  pkeys: anything,
  signal: WAIT_CHECKS.signal,
};

/** Opens a device without connections: verbs only. @throws as the public `openDevice` */
export function openDevice(options: OpenOptions = {}): Promise<Context> {
  return openDeviceAs(Context, options);
}

/** @internal Opens a device as an instance of `deviceClass`. @throws as the public `openDevice` */
export async function openDeviceAs<Kind extends Context>(
  deviceClass: new (init: ContextInit) => Kind,
  options: OpenOptions,
): Promise<Kind> {
  checkOptions('openDevice', options, CHECKS);
  const { signal } = options;
  signal?.throwIfAborted();
  const device = await open(deviceClass, options).catch((error) => {
    throw withDetails(error, { syscall: 'openDevice' });
  });
  publishTo(diagnostics.deviceOpen, () => ({ device }));
  if (!signal?.aborted) return device;
  await device.close({ force: true });
  throw signal.reason;
}

async function open<Kind extends Context>(
  deviceClass: new (init: ContextInit) => Kind,
  options: OpenOptions,
): Promise<Kind> {
  const seed = seedBytes(options.seed);
  const { memoryBytes = CARD_DEFAULTS.memoryBytes, trace = 0 } = options;
  const decisions = decisionCount(options.decisions);
  if (options.wrapLink && options.mode === 'worker')
    throw invalidValue("wrapLink was given with mode 'worker', needs mode 'inline'");
  // before packets arrive
  const rules = options.fault?.rules && (await checkFaultRules(options.fault.rules, options.fault.seed));
  const chosen = await chooseLink(options);
  const { notes } = chosen;
  let { link } = chosen;
  let engine: Engine | undefined;
  try {
    if (options.pcap !== undefined) link = pcapLink(link, options.pcap);
    const { fault } = options;
    if (fault !== undefined && hasRates(fault)) link = faultLink(link, fault);
    if (options.wrapLink) link = wrapped(link, options.wrapLink);
    const { features } = link;
    if (options.flowSteering && !features.flowSteering)
      throw new VerbsError('EOPNOTSUPP', `the ${link.kind} link has no flow steering: use the packet link`);
    const icrcOffload = features.icrcOffload === true && options.icrcOffload !== false;
    const cardOptions = { memoryBytes, seed, icrcOffload, ...receiveSlots(features, memoryBytes) };
    const { card, engine: started } = await startCard(cardOptions, link, trace, options);
    engine = started;
    traceDecisions(card, decisions);
    const { keepAlive = false, pkeys = [0xffff] } = options;
    // before the first frame
    const faults = new Faults(engine);
    if (rules) await faults.addAll(rules);
    const device = new deviceClass({ card, link, engine, notes, keepAlive, pkeys, faults });
    if (options.congestion !== undefined) device.congestion.modify(options.congestion);
    if (options.publish) await device.publish(options.publish === true ? undefined : options.publish);
    return device;
  } catch (error) {
    if (engine) engine.close();
    else link.close();
    throw error;
  }
}

/** Whether faults by chance are wanted, also those with rates of 0. */
const hasRates = ({ both, tx, rx, rules }: FaultOptions): boolean =>
  rules === undefined || both !== undefined || tx !== undefined || rx !== undefined;

/** Creates the card, and the engine that runs its turns. */
async function startCard(
  cardOptions: Parameters<typeof Card.create>[0],
  link: Link,
  trace: number,
  { mode, spin = DEFAULT_SPIN_US, fault }: OpenOptions,
): Promise<{ card: Card; engine: Engine }> {
  const turnLock = mode === 'worker' ? new TurnLock() : undefined;
  const { rxSlotBytes: slotBytes, memoryBytes } = { ...CARD_DEFAULTS, ...cardOptions };
  const prepared = link.prepare?.({ slotBytes, memoryBytes });
  const card = await Card.create(cardOptions, turnLock);
  await prepared;
  if (turnLock === undefined) return { card, engine: new InlineEngine(card, link, trace) };
  return {
    card,
    engine: await WorkerEngine.start(card, turnLock, link, {
      spinUs: spin,
      trace,
      waitsForFaults: fault?.rules !== undefined,
    }),
  };
}

/** A power of two, or 0. */
function decisionCount(decisions: OpenOptions['decisions'] = 0): number {
  if (typeof decisions === 'boolean') return decisions ? DECISIONS : 0;
  return decisions === 0 ? 0 : 2 ** Math.ceil(Math.log2(decisions));
}

function traceDecisions(card: Card, count: number): void {
  if (count === 0 || card.exports.traceDecisions(count) === 0) return;
  throw new VerbsError('ENOMEM', `the card has no memory for ${count} decisions`);
}

async function chooseLink(options: OpenOptions): Promise<ChosenLink> {
  const { link, peer } = options;
  if (typeof link === 'object') return { link, notes: [] };
  if (link === 'memory' || (link === undefined && options.hub !== undefined))
    return openMemoryLink(options.hub, options.addresses);
  const isNamed = options.interface !== undefined || options.addresses !== undefined;
  return openHostLink({
    ...(peer !== undefined && !isNamed && { towards: { peer, from: await addressTowards(peer) } }),
    ...(link && { kind: link }),
    ...(options.flowSteering && { flowSteering: true }),
    ...(options.xdp && { xdp: options.xdp }),
    broker: options.broker ?? usesBroker(),
    ...(options.interface !== undefined && { interface: options.interface }),
    ...(options.addresses && { addresses: options.addresses }),
  });
}

/** @throws TypeError */
function usesBroker(): boolean {
  const value = process.env[BROKER_VARIABLE] ?? 'on';
  if (value !== 'on' && value !== 'off') throw invalidValue(`${BROKER_VARIABLE} is '${value}', must be on or off`);
  return value === 'on';
}

function wrapped(link: Link, wrap: (link: Link) => Link): Link {
  const wrapper: unknown = wrap(link);
  if (isObject(wrapper) && 'attach' in wrapper) return wrapper as Link;
  throw invalidType(`wrapLink returned ${show(wrapper)}, must return a link`);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function seedBytes(seed: OpenOptions['seed']): Uint8Array {
  if (seed === undefined) return randomBytes(32);
  if (seed instanceof Uint8Array && seed.length === 32) return seed;
  return createHash('sha256')
    .update(typeof seed === 'object' ? seed : String(seed))
    .digest();
}
