/** The fields of a packet's headers, for people. */
import type { Decoded } from '../../src/probe/packet/frame.js';

/** Bytes after the headers that a decoder needs: padding and ICRC. */
const TAIL_BYTES = 8;

/**
 * Returns names and values of the fields of a packet.
 * @param headers the first bytes of the frame; the payload may be cut
 */
export function fieldsOf(headers: Uint8Array, payloadBytes: number, decode: (frame: Uint8Array) => Decoded): [string, string][] {
  // The page has the headers alone, so it fills up to the length that the IP header names.
  const full = new Uint8Array(headers.length + payloadBytes + TAIL_BYTES + 64);
  full.set(headers);
  let frame: Decoded;
  try {
    frame = decode(full);
  } catch (error) {
    return [['headers', (error as Error).message]];
  }
  const rows: [string, string][] = [];
  const add = (prefix: string, fields: object, without: readonly string[] = []) => {
    for (const [name, value] of Object.entries(fields))
      if (!without.includes(name) && value !== undefined) rows.push([`${prefix}${name}`, text(name, value)]);
  };
  add('eth ', frame.eth);
  add('ip ', frame.ip);
  add('udp ', frame.udp);
  add('bth ', frame.bth);
  for (const name of ['deth', 'feth', 'reth', 'atomiceth', 'aeth'] as const)
    if (frame[name] !== undefined) add(`${name} `, frame[name]);
  for (const name of ['immdt', 'ieth', 'atomicack'] as const)
    if (frame[name] !== undefined) rows.push([name, text(name, frame[name])]);
  rows.push(['payload', `${payloadBytes} bytes`]);
  return rows;
}

const HEXADECIMAL = /^(opcode|pkey|qkey|va|rkey|syndrome|checksum|fragment|ieth|immdt|flowLabel|id)$/;

function text(name: string, value: unknown): string {
  if (typeof value === 'bigint' || (typeof value === 'number' && HEXADECIMAL.test(name))) return `0x${value.toString(16)}`;
  return String(value);
}
