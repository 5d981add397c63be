/** The four pingpongs: which stock tool each is an end of, and what it differs in. */
import type { QpOptions } from '../../index.js';

export type Transport = 'RC' | 'UC' | 'UD' | 'SRQ';

export interface TransportFacts {
  /** Of ours. */
  readonly command: string;
  /** Of the stock tool, with which it talks. */
  readonly tool: string;
  readonly about: string;
  readonly type: NonNullable<QpOptions['type']>;
  /** Bytes of a message when `--size` is not given. */
  readonly size: number;
  /** Introductions that each end tells: fixed, whatever they are used for. */
  readonly introductions: number;
  /** Bytes that come in front of a message. */
  readonly front: number;
  /** Every byte of a message, but with `--chk` 0 at the beginning of each page. The tool with the shared queue fills nothing. */
  readonly fill: number;
}

/** The stock tool over a shared receive queue always exchanges so many introductions; unused ones are zero. */
export const MOST_QPS = 256;
/** Of all stock tools with datagrams. */
export const QKEY = 0x11111111;

export const TRANSPORTS: Readonly<Record<Transport, TransportFacts>> = {
  RC: {
    command: 'pingpong',
    tool: 'ibv_rc_pingpong',
    about: 'reliable connection',
    ...{ type: 'RC', size: 4096, introductions: 1, front: 0, fill: 0x7b },
  },
  UC: {
    command: 'uc-pingpong',
    tool: 'ibv_uc_pingpong',
    about: 'unreliable connection: a lost message ends it',
    ...{ type: 'UC', size: 4096, introductions: 1, front: 0, fill: 0x7b },
  },
  UD: {
    command: 'ud-pingpong',
    tool: 'ibv_ud_pingpong',
    about: 'unreliable datagrams: a lost message ends it',
    ...{ type: 'UD', size: 1024, introductions: 1, front: 40, fill: 0x7b },
  },
  SRQ: {
    command: 'srq-pingpong',
    tool: 'ibv_srq_pingpong',
    about: 'several reliable connections with one shared receive queue',
    ...{ type: 'RC', size: 4096, introductions: MOST_QPS, front: 0, fill: 0 },
  },
};
