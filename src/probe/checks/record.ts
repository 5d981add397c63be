/** The record that all conversations of one check share: packets, measurements, notes, and the end of its time. */
import type { Decoded } from '../packet/frame.js';
import type { PacketPort } from '../script/port.js';
import type { Audit } from './audit.js';
import type { CheckBase } from './checkbase.js';
import type { Evidence } from './result.js';

/** The record of one run of a check. */
export class CheckRecord {
  /** Its packets. */
  readonly evidence: Evidence[] = [];
  /** Its measurements by name: nanoseconds or counts. */
  readonly measurements: Record<string, number[]> = {};
  /** The parts that it has not looked at; a result that passes tells them. */
  readonly notes = new Set<string>();
  /** Number of packets of the peer that were no answers, by the check whose rule they break. */
  readonly dropped = new Map<CheckBase, number>();
  /** Gives the check up: its conversations send and receive nothing more, and throw the reason. */
  readonly end = new AbortController();

  constructor(
    /** The check. */
    readonly check: CheckBase,
    /** Judges the packets of the peer. Absent: they are not judged. */
    readonly audit?: Audit,
  ) {}

  /** Says that the peer has answered requests only when they were repeated. */
  repeated(): void {
    this.audit?.repeated(this.check);
  }

  /** Has a packet of the peer judged. @returns whether a receiver drops it, so that it is no answer */
  drops(packet: Decoded, port: PacketPort, evidence: Evidence): boolean {
    const broken = this.audit?.look(packet, port, { check: this.check, evidence, all: this.evidence });
    if (broken !== undefined) this.dropped.set(broken, (this.dropped.get(broken) ?? 0) + 1);
    return broken !== undefined;
  }
}
