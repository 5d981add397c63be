/**
 * The form in which a page holds a ladder: columns of numbers and one block of bytes instead of objects, so that a
 * hundred thousand packets are a few megabytes and load at once. Pure data: the page reads it in a browser.
 */

import type { Ladder } from './analysis.js';
import type { LadderConnection } from './connection.js';
import { KINDS, type LadderPacket } from './packet.js';

/** A ladder in columns. Every array has an element for each packet. */
export interface PackedLadder {
  readonly connections: readonly LadderConnection[];
  readonly skipped: number;
  readonly numbers: readonly number[];
  /** Nanoseconds since the packet before. */
  readonly steps: readonly number[];
  readonly connection: readonly number[];
  readonly direction: readonly number[];
  /** Indexes into KINDS. */
  readonly kinds: readonly number[];
  readonly psns: readonly number[];
  readonly bytes: readonly number[];
  readonly marks: readonly number[];
  /** Indexes into `texts`. */
  readonly labels: readonly number[];
  readonly notes: readonly number[];
  readonly outers: readonly number[];
  readonly texts: readonly string[];
  /** Bytes of each packet's headers, and all headers in base64. */
  readonly lengths: readonly number[];
  readonly headers: string;
}

/** Returns a ladder in columns. */
export function pack({ connections, packets, skipped }: Ladder): PackedLadder {
  const texts = new Map<string, number>();
  const text = (each: string): number => {
    const known = texts.get(each);
    if (known !== undefined) return known;
    texts.set(each, texts.size);
    return texts.size - 1;
  };
  const column = (of: (packet: LadderPacket) => number) => packets.map(of);
  const columns = {
    numbers: column(({ number }) => number),
    steps: packets.map(({ time }, i) => time - (packets[i - 1]?.time ?? 0)),
    connection: column(({ connection }) => connection),
    direction: column(({ direction }) => direction),
    kinds: column(({ kind }) => KINDS.indexOf(kind)),
    psns: column(({ psn }) => psn),
    bytes: column(({ bytes }) => bytes),
    marks: column(({ marks }) => marks),
    labels: column(({ label }) => text(label)),
    notes: column(({ note }) => text(note)),
    outers: column(({ outer }) => text(outer)),
    lengths: column(({ headers }) => headers.length),
  };
  const headers = Buffer.concat(packets.map((packet) => packet.headers)).toString('base64');
  return { connections, skipped, ...columns, texts: [...texts.keys()], headers };
}

/** Returns the packets of a packed ladder. Works in a browser. */
export function unpack(packed: PackedLadder): LadderPacket[] {
  const headers = Uint8Array.from(atob(packed.headers), (char) => char.charCodeAt(0));
  let [time, at] = [0, 0];
  const number = (column: readonly number[], i: number) => column[i] as number;
  return packed.numbers.map((each, i) => {
    time += number(packed.steps, i);
    const start = at;
    at += number(packed.lengths, i);
    return {
      number: each,
      time,
      connection: number(packed.connection, i),
      direction: number(packed.direction, i) as 0 | 1,
      kind: KINDS[number(packed.kinds, i)] ?? 'other',
      psn: number(packed.psns, i),
      bytes: number(packed.bytes, i),
      marks: number(packed.marks, i),
      label: packed.texts[number(packed.labels, i)] ?? '',
      note: packed.texts[number(packed.notes, i)] ?? '',
      outer: packed.texts[number(packed.outers, i)] ?? '',
      headers: headers.subarray(start, at),
    };
  });
}
