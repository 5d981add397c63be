/**
 * The messages that two ends of perftest exchange, over TCP or a connection of rdma_cm. Always in lock-step: the client
 * writes and then reads, the server reads and then writes, one write for each message, whose length both know.
 */
import { failure } from '../exit.js';
import type { Channel } from './channel.js';
import type { Keys, KeysForm } from './keys.js';

/** What this end says it is: the protocol of perftest 25.01. */
export const VERSION = '6.24';
/** The oldest that a stock program talks to. */
const OLDEST = 5.7;
/** Bytes in which small messages go round, and to whose multiples they are placed, unless the peer wants more. */
const CYCLE_BYTES = 4096;
const CACHE_LINE = 64;
const MTUS = [256, 512, 1024, 2048, 4096];

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

export class Exchange {
  constructor(
    readonly control: Channel,
    readonly role: 'client' | 'server',
    readonly form: KeysForm,
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
    const { bytes, encode, decode } = this.form;
    const answer = (theirs: Buffer | undefined) => encode(mine(theirs && decode(theirs)));
    return decode(await this.#swap(answer, bytes, "the peer's keys", patient ? 0 : undefined));
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
