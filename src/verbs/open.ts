/** Opening a device. */
import { createHash, randomBytes } from 'node:crypto';
import type { Writable } from 'node:stream';
import { CARD_DEFAULTS, Card, receiveSlots } from '../device/card.js';
import type { Engine, Mode } from '../device/engine.js';
import { InlineEngine } from '../device/inline.js';
import { type ChosenLink, openHostLink, openMemoryLink } from '../device/links.js';
import { Threads } from '../device/threads.js';
import { WorkerEngine } from '../device/worker.js';
import { type FaultOptions, faultLink } from '../link/fault.js';
import type { Link } from '../link/link.js';
import { MemoryHub } from '../link/memory.js';
import { pcapLink } from '../link/pcap.js';
import { MOST_QUEUES, type XdpOptions } from '../link/xdp.js';
import { checkInteger, show } from './check.js';
import type { CongestionParameters } from './congestion.js';
import { Device, type Parts } from './context.js';

export interface OpenOptions {
  /**
   * Which thread runs the card. `inline`: the program's own, while its event loop is free or it polls; quickest for a
   * program that spins on `cq.poll()`. `worker`: one for it alone, so that peers are served whatever the program does; for
   * the links `packet`, `udp` and `xdp`. Default `inline`.
   */
  readonly mode?: Mode;
  /**
   * In worker mode: for how long at the most the card's thread looks for work before it goes to sleep, microseconds; less
   * where that has not helped lately. 0 = it sleeps at once, Infinity = never. Default 50.
   */
  readonly spin?: number;
  /** Network interface for the links `packet`, `udp` and `xdp`. Default: the first that is up and has an address. */
  readonly interface?: string;
  /** Local addresses to use. Default: all of the interface; on a hub the first free of `10.0.0.n` (and `fd00::n`, `fe80::n`). */
  readonly addresses?: readonly string[];
  /**
   * What moves the frames: `packet` (packet sockets; needs CAP_NET_RAW), `udp` (a UDP socket on port 4791; needs nothing),
   * `xdp` (AF_XDP sockets: the lowest latency; needs libbpf, CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, and queues of the interface
   * to itself), `memory` (devices of this process), or a link of the program's own. Default: `memory` with a `hub`; else
   * `packet` where the process may use it, else `udp`.
   */
  readonly link?: 'packet' | 'udp' | 'xdp' | 'memory' | Link;
  /** How the `xdp` link works: queues, mode, zero copy, busy polling. */
  readonly xdp?: XdpOptions;
  /** Which devices of this process the `memory` link joins. Default: all that name no hub. */
  readonly hub?: MemoryHub;
  /** Captures what is on the wire, both ways, for Wireshark (pcapng): path of a file, which is overwritten, or a stream. */
  readonly pcap?: string | Writable;
  /** Trouble on the wire, repeatable: loss, duplicates, reordering, delay, damage, congestion marks. A capture shows its effect. */
  readonly fault?: FaultOptions;
  /**
   * The link takes most of the ICRC of large packets off the card where it can, which `device.query().link.features` says:
   * `packet` and `udp` on processors with carry-less multiplication. Default true; false leaves all of it to the card.
   */
  readonly icrcOffload?: boolean;
  /** Bytes of the card: all registered memory, queues and queue pairs. 8 MiB to 4 GiB. Default 256 MiB. */
  readonly memoryBytes?: number;
  /** What keys, queue pair numbers and PSNs are drawn from, to repeat a run. Default: random, as security wants it. */
  readonly seed?: number | string | Uint8Array;
  /** A connected queue pair keeps the process running, as a server wants it. Default false: only who waits does. */
  readonly keepAlive?: boolean;
  /** Parameters of congestion control other than their defaults; `{ enabled: false, ect: false }` is without any. */
  readonly congestion?: Partial<CongestionParameters>;
  /** `wasm-roce stat` of the same user sees the device, under this name or its own. Default false. See `device.publish`. */
  readonly publish?: boolean | string;
  /** Keeps the headers of so many of the last frames, 0 to 65536, so that explanations can show packets. Default 0. */
  readonly trace?: number;
  /** The P_Key table, 1 to 128 entries of 16 bits: bit 15 = full member. Default `[0xffff]`, the default partition. */
  readonly pkeys?: readonly number[];
}

/** About what waking a thread costs (µs). */
const SPIN = 50;
/** Room for packet slots (small ones, see receiveSlots) and tables, and some for the program. */
const LEAST_MEMORY = 8 * 2 ** 20;

/**
 * Opens a device: a card with its own memory, on a link.
 * @throws TypeError, RangeError for wrong options; VerbsError ENODEV, EPERM, EADDRINUSE, EADDRNOTAVAIL, EOPNOTSUPP, EIO;
 * Error of node:fs when the capture file cannot be written
 */
export function openDevice(options: OpenOptions = {}): Promise<Device> {
  return openDeviceAs(Device, options);
}

/** @internal As `openDevice`, for a kind of device that can do more. */
export async function openDeviceAs<Kind extends Device>(
  kind: new (parts: Parts) => Kind,
  options: OpenOptions,
): Promise<Kind> {
  const seed = seedBytes(options.seed);
  const memoryBytes = checkInteger(
    'memoryBytes',
    options.memoryBytes ?? CARD_DEFAULTS.memoryBytes,
    LEAST_MEMORY,
    2 ** 32,
  );
  checkThread(options);
  const trace = checkInteger('trace', options.trace ?? 0, 0, 65536);
  const chosen = chooseLink(options);
  const { notes } = chosen;
  let { link } = chosen;
  let engine: Engine | undefined;
  try {
    if (options.pcap !== undefined) link = pcapLink(link, options.pcap);
    if (options.fault !== undefined) link = faultLink(link, options.fault);
    const { features } = link;
    const icrcOffload = features.icrcOffload === true && options.icrcOffload !== false;
    const sizes = { memoryBytes, seed, icrcOffload, ...receiveSlots(features, memoryBytes) };
    const { card, engine: started } = await startCard(sizes, link, trace, options);
    engine = started;
    const { keepAlive = false, pkeys = [0xffff] } = options;
    const device = new kind({ card, link, engine, notes, keepAlive, pkeys });
    if (options.congestion !== undefined) device.congestion.modify(options.congestion);
    if (options.publish) await device.publish(options.publish === true ? undefined : options.publish);
    return device;
  } catch (error) {
    if (engine) engine.close();
    else link.close();
    throw error;
  }
}

/** The card and what gives it its turns. */
async function startCard(
  sizes: Parameters<typeof Card.create>[0],
  link: Link,
  trace: number,
  { mode, spin = SPIN }: OpenOptions,
): Promise<{ card: Card; engine: Engine }> {
  if (mode !== 'worker') {
    const card = await Card.create(sizes);
    return { card, engine: new InlineEngine(card, link, trace) };
  }
  const threads = new Threads();
  const card = await Card.create(sizes, threads);
  return { card, engine: await WorkerEngine.start(card, threads, link, { spin, trace }) };
}

function checkThread({ mode, spin = SPIN }: OpenOptions): void {
  if (mode !== undefined && mode !== 'inline' && mode !== 'worker')
    throw new TypeError(`mode is ${show(mode)}, must be 'inline' or 'worker'`);
  if (typeof spin !== 'number') throw new TypeError(`spin is ${show(spin)}, must be microseconds`);
  if (!(spin >= 0)) throw new RangeError(`spin is ${spin}, must be microseconds from 0 to Infinity`);
}

function chooseLink(options: OpenOptions): ChosenLink {
  const { link } = options;
  if (typeof link === 'object' && link !== null) return { link, notes: [] };
  if (options.hub !== undefined && !(options.hub instanceof MemoryHub))
    throw new TypeError(`hub is ${show(options.hub)}, must be made by createMemoryHub`);
  if (link === 'memory' || (link === undefined && options.hub !== undefined))
    return openMemoryLink(options.hub, options.addresses);
  if (link !== undefined && link !== 'packet' && link !== 'udp' && link !== 'xdp')
    throw new TypeError(`link is ${show(link)}, must be 'packet', 'udp', 'xdp', 'memory' or a link`);
  return openHostLink({
    ...(link && { kind: link }),
    ...(options.xdp && { xdp: checkXdp(options.xdp) }),
    ...(options.interface !== undefined && { interface: options.interface }),
    ...(options.addresses && { addresses: options.addresses }),
  });
}

function checkXdp(options: XdpOptions): XdpOptions {
  const { queues, mode, zeroCopy, busyPoll } = options;
  if (queues !== undefined && !(Array.isArray(queues) && queues.length > 0 && new Set(queues).size === queues.length))
    throw new TypeError(`xdp.queues is ${show(queues)}, must be a list of different queues`);
  for (const queue of queues ?? []) checkInteger('xdp.queues', queue, 0, MOST_QUEUES - 1);
  if (mode !== undefined && mode !== 'native' && mode !== 'generic')
    throw new TypeError(`xdp.mode is ${show(mode)}, must be 'native' or 'generic'`);
  if (zeroCopy !== undefined && typeof zeroCopy !== 'boolean')
    throw new TypeError(`xdp.zeroCopy is ${show(zeroCopy)}, must be true or false`);
  if (busyPoll !== undefined) checkInteger('xdp.busyPoll', busyPoll, 1, 1_000_000);
  return options;
}

function seedBytes(seed: OpenOptions['seed']): Uint8Array {
  if (seed === undefined) return randomBytes(32);
  if (seed instanceof Uint8Array && seed.length === 32) return seed;
  return createHash('sha256')
    .update(typeof seed === 'object' ? seed : String(seed))
    .digest();
}
