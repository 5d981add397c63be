/**
 * The messages that two ends of perftest exchange over TCP. Always in lock-step: the client writes and then reads, the
 * server reads and then writes, one write for each message, whose length both know.
 */
import { gidText, gidToHex } from '../../index.js';
import { failure } from '../exit.js';
import type { Control } from '../pingpong/handshake.js';

/** What this end says it is: the protocol of perftest 25.01. */
export const VERSION = '6.24';
/** The oldest that a stock program talks to. */
const OLDEST = 5.7;
/** Bytes in which small messages go round, and to whose multiples they are placed, unless the peer wants more. */
const CYCLE_BYTES = 4096;
const CACHE_LINE = 64;
const MTUS = [256, 512, 1024, 2048, 4096];

/** What an end tells of one of its queue pairs. */
export interface Keys {
  /** READs and atomics that it answers at a time. */
  readonly outReads: number;
  readonly qpn: number;
  readonly psn: number;
  readonly rkey: number;
  /** Where its memory for the peer begins. */
  readonly vaddr: bigint;
  readonly gid: string;
}

/** What both ends have agreed upon. */
export interface Terms {
  /** The peer's version as it wrote it. */
  readonly version: string;
  readonly cycleBytes: number;
  readonly cacheLine: number;
  /** Path MTU, bytes. */
  readonly mtu: number;
}

/** What one end measured. */
export interface Bandwidth {
  readonly size: number;
  readonly iters: number;
  /** MiB a second. */
  readonly peak: number;
  readonly average: number;
  /** Millions of messages a second. */
  readonly rate: number;
}

/** With the GID and a NUL. */
export const KEYS_BYTES = 108;
const FORM =
  /^[0-9a-f]{4}:([0-9a-f]{4}):([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{8}):([0-9a-f]{16}):((?:[0-9a-f]{2}:){16})[0-9a-f]{8}:\0$/;

export function encodeKeys({ outReads, qpn, psn, rkey, vaddr, gid }: Keys): Buffer {
  const hex = (value: number | bigint, digits: number) => value.toString(16).padStart(digits, '0');
  const bytes = gidToHex(gid).replace(/../g, '$&:');
  // RoCE has no LIDs, and there is no shared receive queue to name.
  const numbers = [hex(outReads, 4), hex(qpn, 6), hex(psn, 6), hex(rkey, 8), hex(vaddr, 16)];
  return Buffer.from(`0000:${numbers.join(':')}:${bytes}00000000:\0`, 'latin1');
}

/** @throws CliError when it is no such message */
export function decodeKeys(message: Buffer): Keys {
  const text = message.toString('latin1');
  const [, outReads = '', qpn = '', psn = '', rkey = '', vaddr = '', gid = ''] = FORM.exec(text) ?? [];
  if (gid === '')
    throw failure(`the peer's keys are ${JSON.stringify(text)}, not those of perftest on RoCE; a stock peer needs -x`);
  const number = (digits: string) => Number.parseInt(digits, 16);
  return {
    outReads: number(outReads),
    qpn: number(qpn),
    psn: number(psn),
    rkey: number(rkey),
    vaddr: BigInt(`0x${vaddr}`),
    gid: gidText(gid.replaceAll(':', '')),
  };
}

export class Exchange {
  constructor(
    readonly control: Control,
    readonly role: 'client' | 'server',
  ) {}

  /**
   * Versions, sizes and path MTU, in this order.
   * @param mtu the most that this end wants
   * @throws CliError when the peer is too old or says something else
   */
  async terms(mtu: number): Promise<Terms> {
    const mine = Buffer.alloc(16);
    mine.write(VERSION, 'latin1');
    const version = cut(await this.#swap(() => mine, 16, "the peer's version"));
    if (!(Number.parseFloat(version) >= OLDEST))
      throw failure(`the peer says version ${JSON.stringify(version)}, must be perftest's ${OLDEST} or later`);
    const cycleBytes = Math.max(CYCLE_BYTES, await this.#number(CYCLE_BYTES));
    const cacheLine = Math.max(CACHE_LINE, await this.#number(CACHE_LINE));
    const code = Buffer.from(`${MTUS.indexOf(mtu) + 1}\0`, 'latin1');
    const theirs = MTUS[Number(cut(await this.#swap(() => code, 2, "the peer's path MTU"))) - 1];
    return { version, cycleBytes, cacheLine, mtu: Math.min(mtu, theirs ?? mtu) };
  }

  /**
   * @param mine is given the peer's keys where these come first, as at the server
   * @param patient waits without end while the peer is connected: it is at work
   */
  async keys(mine: (theirs: Keys | undefined) => Keys, { patient = false } = {}): Promise<Keys> {
    const answer = (theirs: Buffer | undefined) => encodeKeys(mine(theirs && decodeKeys(theirs)));
    return decodeKeys(await this.#swap(answer, KEYS_BYTES, "the peer's keys", patient ? 0 : undefined));
  }

  async report(mine: Bandwidth): Promise<Bandwidth> {
    const integers = [mine.size, mine.iters].map((value) => {
      const bytes = Buffer.alloc(8);
      bytes.writeBigUInt64BE(BigInt(value));
      return bytes;
    });
    const doubles = [mine.peak, mine.average, mine.rate].map((value) => {
      const bytes = Buffer.alloc(8);
      bytes.writeDoubleBE(value);
      return bytes;
    });
    const theirs: Buffer[] = [];
    for (const bytes of [...integers, ...doubles]) theirs.push(await this.#swap(() => bytes, 8, "the peer's report"));
    const at = (index: number) => theirs[index] as Buffer;
    return {
      size: Number(at(0).readBigUInt64BE()),
      iters: Number(at(1).readBigUInt64BE()),
      peak: at(2).readDoubleBE(),
      average: at(3).readDoubleBE(),
      rate: at(4).readDoubleBE(),
    };
  }

  async #number(mine: number): Promise<number> {
    const bytes = Buffer.alloc(4);
    bytes.writeInt32BE(mine);
    return (await this.#swap(() => bytes, 4, "the peer's sizes")).readInt32BE();
  }

  async #swap(mine: (theirs?: Buffer) => Buffer, count: number, what: string, idleMs?: number): Promise<Buffer> {
    const { control } = this;
    if (this.role === 'client') {
      control.write(mine());
      return control.read(count, what, idleMs);
    }
    const theirs = Buffer.from(await control.read(count, what, idleMs));
    control.write(mine(theirs));
    return theirs;
  }
}

function cut(bytes: Buffer): string {
  return bytes.toString('latin1').replace(/\0.*$/s, '');
}
