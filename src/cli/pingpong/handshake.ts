/**
 * The handshake of the stock pingpongs over TCP. Each end sends its destination in one message of 52 bytes, the client
 * first: LID, queue pair number, PSN and GID. The client ends the handshake with "done". The stock programs read once
 * for each message, so each message is one write. With a shared receive queue each end sends 256 destinations, of which
 * the unused ones are zero, and the stock program reassembles what it reads.
 */

import { gidToHex } from '../../base/gid.js';
import { type Endpoint, gidText } from '../../index.js';
import { failure } from '../exit.js';
import { hex } from '../hex.js';
import type { TcpChannel } from '../tcpchannel.js';

/** `LLLL:QQQQQQ:PPPPPP:`, 32 digits of GID, all in lower-case hexadecimal, and a NUL. */
export const DESTINATION_BYTES = 52;
const DONE = Buffer.from('done\0', 'latin1');
const FORM = /^[0-9a-f]{4}:([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{32})\0/;

export function encodeDestination({ qpNum, psn, gid }: Endpoint): Buffer {
  // RoCE has no LIDs.
  return Buffer.from(`0000:${hex(qpNum, 6)}:${hex(psn, 6)}:${gidToHex(gid)}\0`, 'latin1');
}

/** @throws CliError when the message is not a destination, or has no GID */
export function decodeDestination(message: Buffer, tool = 'ibv_rc_pingpong'): Endpoint {
  const [, qpn = '', psn = '', gid = ''] = FORM.exec(message.toString('latin1')) ?? [];
  if (gid === '')
    throw failure(`the peer's handshake is ${JSON.stringify(message.toString('latin1'))}, not that of ${tool}`, {
      code: 'EPROTO',
    });
  if (/^0*$/.test(gid))
    throw failure(`the peer sent no GID: ${tool} needs -g and the index of a RoCE v2 GID`, { code: 'EPROTO' });
  return { qpNum: Number.parseInt(qpn, 16), psn: Number.parseInt(psn, 16), gid: gidText(gid) };
}

const UNUSED: Endpoint = { qpNum: 0, psn: 0, gid: '::' };

function isUnused(message: Buffer): boolean {
  return /^0000:000000:000000:0{32}\0/.test(message.toString('latin1'));
}

/** Sends `count` destinations. Those without an endpoint are zero. */
export function sendDestinations(channel: TcpChannel, endpoints: readonly Endpoint[], count: number): void {
  const messages = endpoints.map(encodeDestination);
  while (messages.length < count) messages.push(encodeDestination(UNUSED));
  for (const message of messages) channel.write(message);
}

/**
 * Receives `count` destinations, and returns those that are in use.
 * @param tool name of the stock program, for errors
 * @throws CliError when they do not come, or are not destinations
 */
export async function receiveDestinations(channel: TcpChannel, count: number, tool: string): Promise<Endpoint[]> {
  const endpoints: Endpoint[] = [];
  for (let i = 0; i < count; i++) {
    const message = await channel.read(DESTINATION_BYTES, "the peer's handshake");
    if (i === 0 || !isUnused(message)) endpoints.push(decodeDestination(message, tool));
  }
  return endpoints;
}

export function sendDone(channel: TcpChannel): void {
  channel.write(DONE);
}

export async function awaitDone(channel: TcpChannel): Promise<void> {
  const text = await channel.read(DONE.length, "the client's 'done'");
  if (!text.equals(DONE))
    throw failure(`the client ended the handshake with ${JSON.stringify(text.toString('latin1'))}`, { code: 'EPROTO' });
}
