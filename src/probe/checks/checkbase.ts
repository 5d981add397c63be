/** The description of a check, and the rule by which it judges all packets of a peer. */
import type { Decoded } from '../packet/frame.js';
import type { PacketPort } from '../script/port.js';

/** Something that some adapters do otherwise than the specification. */
export interface Deviation {
  /** Adapters that do so. */
  readonly of: string;
  /** Description of the packets. */
  readonly what: string;
}

/** A packet that breaks a rule. */
export interface Breach {
  /** The error of the packet, such as `the ICRC is 0x12345678 instead of 0x9abcdef0`. */
  readonly text: string;
  /** Name of the known deviation that the packet shows, as in `known` of the check. Absent: it shows none. */
  readonly known?: string;
}

/**
 * Judges one packet of the peer after the other.
 * @param port the port that has received it: addresses and path MTU of its connection
 * @returns the breach, `fine`, or undefined for a packet that the rule says nothing about
 */
export type Judge = (packet: Decoded, port: PacketPort) => Breach | 'fine' | undefined;

/** A rule that holds for every packet of the peer, in whichever check it comes. */
export interface PacketRule {
  /** Description of the packets that break it, such as `have a wrong ICRC`. */
  readonly broken: string;
  /** Whether a receiver drops a packet that breaks it, so that no check takes it as an answer. */
  readonly isDropped?: boolean;
  /** Returns the judge of one run. */
  judge(): Judge;
}

/** The description that every check has. */
export interface CheckBase {
  /** Number in the list of checks; checks that sharpen another one share its number. */
  readonly number: number;
  /** Its own name, in lower case with hyphens. */
  readonly name: string;
  /** The rule that holds when it passes, as one sentence. */
  readonly title: string;
  /** The clause of the specification that demands it. */
  readonly clause: string;
  /** The packets that it sends. */
  readonly sends: string;
  /** The answers that it expects. */
  readonly expects: string;
  /** Names of its measurements that are counts; the others are times in nanoseconds. */
  readonly counts?: readonly string[];
  /** Known deviations of some adapters, by a name that `run` uses. */
  readonly known?: Readonly<Record<string, Deviation>>;
  /** Whether it sends malformed packets or ends its connection by an error. */
  readonly isIntrusive?: boolean;
  /** The rule by which all packets of the peer are judged when all checks have run. Absent: it has none. */
  readonly rule?: PacketRule;
}
