/** Parsers of option values, and the options that several commands share. */
import { isIP } from 'node:net';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { type FaultOptions, MAX_FAULT_RULES, type OpenOptions } from '../index.js';
import { checkFaultRule, ScriptError } from '../probe.js';
import type { DeviceOptions } from './device.js';

/** Returns a parser for integers from `min` to `max`. */
export function integer(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^-?(\d+|0x[0-9a-f]+)$/i.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) throw new InvalidArgumentError(`It must be an integer from ${min} to ${max}.`);
    return value;
  };
}

/** Returns a parser for a number of bytes, with k, m or g for KiB, MiB or GiB. */
export function bytes(min: number, max: number): (text: string) => number {
  return (text) => {
    const [, digits, unit = ''] = /^(\d+)([kmg]?)$/i.exec(text) ?? [];
    const value = Number(digits ?? Number.NaN) * 1024 ** ' kmg'.indexOf(unit.toLowerCase() || ' ');
    if (!(value >= min && value <= max))
      throw new InvalidArgumentError(`It must be a number of bytes from ${min} to ${max}, such as 4096 or 64k.`);
    return value;
  };
}

/** The least and the most bytes of a memory region. */
export const REGION_BYTES = [1, 2 ** 32 - 1] as const;
export const regionBytes = bytes(...REGION_BYTES);

export function probability(text: string): number {
  const value = /^(\d+\.?\d*|\.\d+)(e-?\d+)?$/i.test(text) ? Number(text) : Number.NaN;
  if (!(value >= 0 && value <= 1)) throw new InvalidArgumentError('It must be a probability from 0 to 1.');
  return value;
}

export function address(text: string): string {
  if (isIP(text) === 0) throw new InvalidArgumentError('It must be an IPv4 or IPv6 address.');
  return text;
}

/** A TCP service on a host. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** Parses `HOST:PORT`; an IPv6 address stands in brackets. */
export function hostPort(text: string): HostPort {
  const [, bracketed, name, digits] = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d+)$/.exec(text) ?? [];
  const [host, port] = [bracketed ?? name, Number(digits)];
  if (host === undefined || !(port >= 1 && port <= 65535))
    throw new InvalidArgumentError('It must be HOST:PORT, such as 127.0.0.1:6379 or [::1]:6379.');
  return { host, port };
}

/** Path MTUs in bytes, in the order of their codes, which start at 1. */
export const PATH_MTUS = [256, 512, 1024, 2048, 4096];

export function pathMtu(text: string): number {
  const value = Number(text);
  if (!PATH_MTUS.includes(value)) throw new InvalidArgumentError(`It must be one of ${PATH_MTUS.join(', ')}.`);
  return value;
}

/** Returns a parser for a number from `min` to `max`, such as microseconds or seconds. */
export function quantity(max: number, min = 0): (text: string) => number {
  return (text) => {
    const value = /^(\d+\.?\d*|\.\d+)$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) throw new InvalidArgumentError(`It must be a number from ${min} to ${max}.`);
    return value;
  };
}

type Mode = 'inline' | 'worker';

/** The links that run on a network interface. */
export type HostLinkKind = 'packet' | 'udp' | 'xdp';

/** The options that choose the link, its faults, its capture and the thread that runs the card. */
export interface LinkOptions {
  readonly mode?: Mode;
  /** Microseconds. */
  readonly spin?: number;
  readonly link?: HostLinkKind | 'memory';
  readonly pcap?: string;
  readonly drop?: number;
  readonly corrupt?: number;
  readonly reorder?: number;
  readonly duplicate?: number;
  /** Microseconds. */
  readonly delay?: number;
  readonly seed?: number;
  /** Rules of faults. */
  readonly fault?: readonly string[];
}

/** The options of a command that names its device. */
export interface DeviceFlags extends LinkOptions {
  readonly ibDev?: string;
  readonly address?: string;
}

/** Adds the options by which rdma-core and perftest name a device and its port, the same in every command. */
export function addIbOptions(command: Command): Command {
  return command
    .option('-d, --ib-dev <interface>', 'network interface of the device')
    .option('-i, --ib-port <n>', 'port of the device; only 1 exists', integer(1, 1), 1);
}

/** Adds the options of `DeviceFlags`. */
export function addDeviceOptions(command: Command): Command {
  return addLinkOptions(addIbOptions(command).option('--address <ip>', 'the only local address to use', address));
}

export function addLinkOptions(command: Command): Command {
  return command
    .addOption(
      new Option(
        '--link <kind>',
        'packet (needs CAP_NET_RAW), udp (no privileges), xdp (lowest latency; needs root) or memory (both ends in this ' +
          'process); default: packet where permitted, else udp',
      ).choices(['packet', 'udp', 'xdp', 'memory']),
    )
    .addOption(modeOption())
    .option('--spin <us>', 'worker mode: poll this long before the thread sleeps', quantity(1e9))
    .option('--pcap <file>', 'write the frames of this end to a pcapng file for Wireshark')
    .option('--drop <p>', 'drop each sent or received frame with this probability', probability)
    .option('--duplicate <p>', 'duplicate each frame with this probability', probability)
    .option('--reorder <p>', 'reorder each frame with this probability', probability)
    .option('--corrupt <p>', 'flip one bit of each frame with this probability', probability)
    .option('--delay <us>', 'delay every frame by this many microseconds', quantity(10_000_000))
    .option('--seed <n>', 'seed of the random faults: the same seed repeats them', integer(0, 2 ** 31 - 1))
    .option(
      '--fault <rule>',
      "apply a fault to chosen packets, such as 'drop the 5th WRITE_MIDDLE of qp 1'; may be repeated; see docs/scripts.md",
      faultRules,
    );
}

/** Collects the rules of `--fault`. @throws InvalidArgumentError */
export function faultRules(rule: string, rules: readonly string[] = []): readonly string[] {
  try {
    checkFaultRule(rule);
  } catch (error) {
    if (error instanceof TypeError) throw new InvalidArgumentError(error.message);
    if (!(error instanceof ScriptError)) throw error;
    throw new InvalidArgumentError(`${error.message}\n  ${rule}\n  ${' '.repeat(error.column - 1)}^`);
  }
  if (rules.length === MAX_FAULT_RULES)
    throw new InvalidArgumentError(`There must be at most ${MAX_FAULT_RULES} rules.`);
  return [...rules, rule];
}

export function modeOption(): Option {
  return new Option(
    '--mode <mode>',
    'run the card inline in the main thread, or in a worker thread of its own (not with --link memory); default: inline',
  ).choices(['inline', 'worker']);
}

/** The device in the options of `openNamed`; without a link for the memory link, which needs a hub. */
export function deviceOptions({ ibDev, address: ip, link }: DeviceFlags): Omit<DeviceOptions, 'open'> {
  return {
    ...(ibDev !== undefined && { interface: ibDev }),
    ...(ip !== undefined && { address: ip }),
    ...(link !== undefined && link !== 'memory' && { link }),
  };
}

/** The thread, capture and faults in the options of `openDevice`. */
export function openOptions(options: LinkOptions): Pick<OpenOptions, 'mode' | 'spin' | 'pcap' | 'fault'> {
  const { mode, spin, pcap, drop, corrupt, reorder, duplicate, delay } = options;
  const rates = {
    ...(drop && { drop }),
    ...(corrupt && { corrupt }),
    ...(reorder && { reorder }),
    ...(duplicate && { duplicate }),
    ...(delay && { delay: 1, delayNs: [delay * 1000, delay * 1000] as const }),
  };
  const rules = options.fault;
  const hasRates = Object.keys(rates).length > 0;
  const fault: FaultOptions = {
    seed: options.seed ?? Math.floor(Math.random() * 2 ** 31),
    ...(hasRates && { both: rates }),
    ...(rules && { rules }),
  };
  return {
    ...(mode !== undefined && { mode }),
    ...(spin !== undefined && { spin }),
    ...(pcap !== undefined && { pcap }),
    ...((hasRates || rules) && { fault }),
  };
}
