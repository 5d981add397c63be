/**
 * Finds where a connection of the same two queue pairs ends and another begins, if its PSNs do not jump: a new
 * responder counts its messages from zero.
 */
import { psnAfter, psnDistance } from '../packet/psn.js';
import { isResponse, isSequenced } from './packet.js';
import type { Seen } from './ways.js';

/** A packet of a connection. */
export interface Directed extends Seen {
  /** 0: from the connection's first end to its second. */
  readonly direction: 0 | 1;
}

/** The requests of one end, as they were seen. */
interface Requests {
  /** The PSN after the last one. */
  next: number | undefined;
  /** The last request that did not follow the one before, and the number of requests since. */
  brokenAt: number;
  since: number;
  /** The highest MSN of the peer's responses, and what it was when each PSN was sent last. */
  msn: number | undefined;
  readonly msns: Map<number, number | undefined>;
}

/** Messages that the MSN must lie behind; one that is overtaken lies behind by less. */
const BEHIND = 2;

/** Returns the indexes at which a new connection begins. */
export function restarts(packets: readonly Directed[]): number[] {
  const found: number[] = [];
  let ends = newEnds();
  for (const [i, { packet, direction }] of packets.entries()) {
    if (!isSequenced(packet)) continue;
    const { opcode, psn } = packet.bth;
    if (!isResponse(opcode)) {
      const end = ends[direction];
      if (end.next !== undefined && end.next !== psn) [end.brokenAt, end.since] = [i, 0];
      end.since++;
      end.next = psnAfter(psn, 1);
      end.msns.set(psn, end.msn);
      continue;
    }
    const end = ends[direction === 0 ? 1 : 0];
    const msn = packet.aeth?.msn;
    if (msn === undefined) continue;
    const before = end.msns.get(psn);
    // the request was sent after the peer had counted more messages than it does now
    const isBehind = before !== undefined && psnDistance(before, msn) >= BEHIND && msn <= end.since;
    if (isBehind && end.brokenAt > (found.at(-1) ?? 0)) {
      found.push(end.brokenAt);
      ends = newEnds();
      continue;
    }
    if (end.msn === undefined || psnDistance(msn, end.msn) > 0) end.msn = msn;
  }
  return found;
}

function newEnds(): readonly [Requests, Requests] {
  const end = (): Requests => ({ next: undefined, brokenAt: 0, since: 0, msn: undefined, msns: new Map() });
  return [end(), end()];
}
