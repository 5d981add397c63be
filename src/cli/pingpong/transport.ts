/** The four pingpongs: the stock program of each, and how they differ. */
import type { QpOptions } from '../../index.js';

export type Transport = 'RC' | 'UC' | 'UD' | 'SRQ';

export interface TransportInfo {
  /** Name of our command. */
  readonly command: string;
  /** Name of the stock program. */
  readonly tool: string;
  readonly description: string;
  readonly type: NonNullable<QpOptions['type']>;
  /** Default of `--size`, bytes. */
  readonly size: number;
  /** Destinations that each end sends, whether in use or not. */
  readonly destinations: number;
  /** Bytes in front of a received message. */
  readonly headerBytes: number;
  /** Every byte of a message; with `--chk` each page begins with 0. ibv_srq_pingpong does not fill its buffer. */
  readonly fillByte: number;
}

/** ibv_srq_pingpong always exchanges this many destinations; the unused ones are zero. */
export const MAX_QPS = 256;
/** The Q_Key of ibv_ud_pingpong. */
export const QKEY = 0x11111111;

export const TRANSPORTS: Readonly<Record<Transport, TransportInfo>> = {
  RC: {
    command: 'pingpong',
    tool: 'ibv_rc_pingpong',
    description: 'reliable connection',
    ...{ type: 'RC', size: 4096, destinations: 1, headerBytes: 0, fillByte: 0x7b },
  },
  UC: {
    command: 'uc-pingpong',
    tool: 'ibv_uc_pingpong',
    description: 'unreliable connection; a lost message ends the test',
    ...{ type: 'UC', size: 4096, destinations: 1, headerBytes: 0, fillByte: 0x7b },
  },
  UD: {
    command: 'ud-pingpong',
    tool: 'ibv_ud_pingpong',
    description: 'unreliable datagram; a lost message ends the test',
    ...{ type: 'UD', size: 1024, destinations: 1, headerBytes: 40, fillByte: 0x7b },
  },
  SRQ: {
    command: 'srq-pingpong',
    tool: 'ibv_srq_pingpong',
    description: 'reliable connections that share a receive queue',
    ...{ type: 'RC', size: 4096, destinations: MAX_QPS, headerBytes: 0, fillByte: 0 },
  },
};
