/** The destination that a caller of `send` names. */
import { gidAddress } from '../base/gid.js';
import { anything, type Checks, checkInteger, checkOptions, checkU32, integer, text } from '../base/options.js';
import type { WaitOptions } from '../base/waiting.js';
import type { CmAddress } from '../cm/index.js';
import { invalidType, VerbsError } from '../errors.js';
import type { DatagramAddress, RemoteInfo } from './inbox.js';

/** A port, or a queue pair. */
export type Target = CmAddress | DatagramAddress;

const REPLY_CHECKS: Checks<RemoteInfo> = {
  address: text,
  qpNum: integer(0, 0xffffff),
  qkey: checkU32,
  localAddress: text,
  family: anything,
  port: anything,
  size: anything,
};

/**
 * Reads the arguments of `send` after the message.
 * @param peer that of a connected socket
 * @throws TypeError, RangeError for wrong arguments; VerbsError EINVAL for a destination of a connected socket
 */
export function parseTarget(
  peer: CmAddress | undefined,
  to: number | DatagramAddress | WaitOptions | undefined,
  addressOrOptions: string | WaitOptions | undefined,
  options: WaitOptions | undefined,
): { target: Target; wait: WaitOptions } {
  const isReply = typeof to === 'object' && to !== null && ('address' in to || 'qpNum' in to);
  if (peer !== undefined) {
    if (typeof to === 'number' || isReply)
      throw new VerbsError('EINVAL', 'the socket is connected, and sends to its peer only');
    return { target: peer, wait: to ?? {} };
  }
  if (isReply) {
    const { address, qpNum, qkey, localAddress } = checkOptions('send', to as RemoteInfo, REPLY_CHECKS);
    if (qpNum === undefined) throw invalidType('qpNum is undefined, must be the number of a queue pair');
    const reply = { qpNum, ...(qkey !== undefined && { qkey }), ...(localAddress !== undefined && { localAddress }) };
    return { target: { address: gidAddress(address), ...reply }, wait: (addressOrOptions as WaitOptions) ?? {} };
  }
  checkPort(to);
  text('address', addressOrOptions);
  return { target: { address: addressOrOptions as string, port: to as number }, wait: options ?? {} };
}

/** @throws TypeError, RangeError unless it is a port that a datagram can be sent to */
export function checkPort(port: unknown): void {
  checkInteger('port', port, 1, 65535);
}
