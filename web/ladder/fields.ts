/** The fields of a packet's headers, for people. */
import type { PacketView } from '../../src/probe/packet/decode.js';

/**
 * Returns names and values of the fields of a packet.
 * @param headers the packet from its IP header to its payload; it may be cut
 */
export function fieldsOf(headers: Uint8Array, decode: (packet: Uint8Array) => PacketView): [string, string][] {
  let view: PacketView;
  try {
    view = decode(headers);
  } catch (error) {
    return [['headers', (error as Error).message]];
  }
  const rows: [string, string][] = [];
  const add = (prefix: string, fields: object) => {
    for (const [name, value] of Object.entries(fields))
      if (value !== undefined) rows.push([`${prefix}${name}`, text(name, value)]);
  };
  add('ip ', view.ip);
  add('udp ', view.udp);
  add('bth ', view.bth);
  for (const name of ['deth', 'feth', 'reth', 'atomiceth', 'aeth'] as const)
    if (view[name] !== undefined) add(`${name} `, view[name]);
  for (const name of ['immdt', 'ieth', 'atomicack'] as const)
    if (view[name] !== undefined) rows.push([name, text(name, view[name])]);
  rows.push(['payload', `${view.payloadBytes} bytes`]);
  return rows;
}

const HEXADECIMAL = /^(opcode|pkey|qkey|va|rkey|syndrome|checksum|fragment|ieth|immdt|flowLabel|id)$/;

function text(name: string, value: unknown): string {
  if (typeof value === 'bigint' || (typeof value === 'number' && HEXADECIMAL.test(name)))
    return `0x${value.toString(16)}`;
  return String(value);
}
