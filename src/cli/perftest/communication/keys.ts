/** Numbers and keys of a queue pair and its memory for the peer, in the two formats of perftest. */

import { gidToHex } from '../../../base/gid.js';
import { gidText } from '../../../index.js';
import { failure } from '../../exit.js';
import { hex } from '../../hex.js';

export interface Keys {
  /** READs and atomics that the queue pair answers at a time. */
  readonly outReads: number;
  readonly qpNum: number;
  readonly psn: number;
  readonly rkey: number;
  /** Address of the memory that the peer may access. */
  readonly vaddr: bigint;
  readonly gid: string;
}

export interface KeysFormat {
  readonly bytes: number;
  encode(keys: Keys): Buffer;
  /** @throws CliError when the message has another format */
  decode(message: Buffer): Keys;
}

const PATTERN =
  /^[0-9a-f]{4}:([0-9a-f]{4}):([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{8}):([0-9a-f]{16}):((?:[0-9a-f]{2}:){16})[0-9a-f]{8}:\0$/;

/** Over TCP: text of hexadecimal digits, with the GID, and a NUL. */
export const TEXT_KEYS: KeysFormat = {
  bytes: 108,

  encode({ outReads, qpNum, psn, rkey, vaddr, gid }) {
    const bytes = gidToHex(gid).replace(/../g, '$&:');
    // RoCE has no LID, and there is no SRQ number to send.
    const numbers = [hex(outReads, 4), hex(qpNum, 6), hex(psn, 6), hex(rkey, 8), hex(vaddr, 16)];
    return Buffer.from(`0000:${numbers.join(':')}:${bytes}00000000:\0`, 'latin1');
  },

  decode(message) {
    const text = message.toString('latin1');
    const [, outReads = '', qpn = '', psn = '', rkey = '', vaddr = '', gid = ''] = PATTERN.exec(text) ?? [];
    if (gid === '')
      throw failure(
        `the peer's keys are ${JSON.stringify(text)}, not those of perftest on RoCE; a stock program needs -x`,
      );
    const number = (digits: string) => Number.parseInt(digits, 16);
    return {
      outReads: number(outReads),
      qpNum: number(qpn),
      psn: number(psn),
      rkey: number(rkey),
      vaddr: BigInt(`0x${vaddr}`),
      gid: gidText(gid.replaceAll(':', '')),
    };
  },
};

/** Over rdma_cm: lid 0, outReads 4, qpn 8, psn 12, rkey 16, vaddr 24, gid 32, SRQ 48, GID index 52; big-endian. */
export const BINARY_KEYS: KeysFormat = {
  bytes: 56,

  encode({ outReads, qpNum, psn, rkey, vaddr, gid }) {
    const message = Buffer.alloc(BINARY_KEYS.bytes);
    for (const [i, value] of [outReads, qpNum, psn, rkey].entries()) message.writeUInt32BE(value, 4 + 4 * i);
    message.writeBigUInt64BE(vaddr, 24);
    message.write(gidToHex(gid), 32, 'hex');
    return message;
  },

  decode(message) {
    const number = (at: number) => message.readUInt32BE(at);
    return {
      ...{ outReads: number(4), qpNum: number(8), psn: number(12), rkey: number(16) },
      vaddr: message.readBigUInt64BE(24),
      gid: gidText(message.toString('hex', 32, 48)),
    };
  },
};
