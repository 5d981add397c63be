/** Reading and checking of option values, and the options that commands share. */
import { isIP } from 'node:net';
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { FaultOptions, OpenOptions } from '../index.js';

/** @returns a parser that names the value and the rule */
export function integer(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^-?(\d+|0x[0-9a-f]+)$/i.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) throw new InvalidArgumentError(`It must be an integer from ${min} to ${max}.`);
    return value;
  };
}

/** Bytes, with k, m or g for KiB, MiB, GiB. */
export function bytes(min: number, max: number): (text: string) => number {
  return (text) => {
    const [, digits, unit = ''] = /^(\d+)([kmg]?)$/i.exec(text) ?? [];
    const value = Number(digits ?? Number.NaN) * 1024 ** ' kmg'.indexOf(unit.toLowerCase() || ' ');
    if (!(value >= min && value <= max))
      throw new InvalidArgumentError(`It must be a number of bytes from ${min} to ${max}, such as 4096 or 64k.`);
    return value;
  };
}

export function probability(text: string): number {
  const value = /^(\d+\.?\d*|\.\d+)(e-?\d+)?$/i.test(text) ? Number(text) : Number.NaN;
  if (!(value >= 0 && value <= 1)) throw new InvalidArgumentError('It must be a probability from 0 to 1.');
  return value;
}

export function address(text: string): string {
  if (isIP(text) === 0) throw new InvalidArgumentError('It must be an IPv4 or IPv6 address.');
  return text;
}

/** A number of microseconds or seconds. */
export function quantity(max: number): (text: string) => number {
  return (text) => {
    const value = /^(\d+\.?\d*|\.\d+)$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= 0 && value <= max)) throw new InvalidArgumentError(`It must be a number from 0 to ${max}.`);
    return value;
  };
}

type Mode = 'inline' | 'worker';

/** Links on a network interface. */
export type HostLinkKind = 'packet' | 'udp' | 'xdp';

/** Which link, what goes wrong on it, and which thread runs the card. */
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
}

export function addLinkOptions(command: Command): Command {
  return command
    .addOption(
      new Option(
        '--link <kind>',
        'packet (needs CAP_NET_RAW), udp (needs nothing), xdp (lowest latency; needs root), memory (both ends in this process)',
      )
        .choices(['packet', 'udp', 'xdp', 'memory'])
        .default(undefined, 'packet where allowed, else udp'),
    )
    .addOption(modeOption())
    .option('--spin <us>', 'worker mode: look so long for work before the thread sleeps', quantity(1e9))
    .option('--pcap <file>', 'write all frames of this end to a pcapng file for Wireshark')
    .option('--drop <p>', 'lose each frame, sent or received, with this probability', probability)
    .option('--duplicate <p>', 'double frames', probability)
    .option('--reorder <p>', 'let frames be overtaken', probability)
    .option('--corrupt <p>', 'flip a bit of frames', probability)
    .option('--delay <us>', 'hold every frame for so many microseconds', quantity(10_000_000))
    .option('--seed <n>', 'draw the same faults as another run with this seed', integer(0, 2 ** 31 - 1));
}

export function modeOption(): Option {
  return new Option(
    '--mode <mode>',
    'inline: this thread runs the card; worker: one for it alone, not with --link memory',
  )
    .choices(['inline', 'worker'])
    .default(undefined, 'inline');
}

/** The part of the device's options that names the link. */
export function hostLink({ link }: LinkOptions): { readonly link?: HostLinkKind } {
  return link === undefined || link === 'memory' ? {} : { link };
}

/** The part of the device's options that is about its thread, captures and trouble. */
export function openOptions(options: LinkOptions): Pick<OpenOptions, 'mode' | 'spin' | 'pcap' | 'fault'> {
  const { mode, spin, pcap, drop, corrupt, reorder, duplicate, delay } = options;
  const rates = {
    ...(drop && { drop }),
    ...(corrupt && { corrupt }),
    ...(reorder && { reorder }),
    ...(duplicate && { duplicate }),
    ...(delay && { delay: 1, delayNs: [delay * 1000, delay * 1000] as const }),
  };
  const fault: FaultOptions = { seed: options.seed ?? Math.floor(Math.random() * 2 ** 31), both: rates };
  return {
    ...(mode !== undefined && { mode }),
    ...(spin !== undefined && { spin }),
    ...(pcap !== undefined && { pcap }),
    ...(Object.keys(rates).length > 0 && { fault }),
  };
}
