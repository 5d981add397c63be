/**
 * The messages that two ends of perftest exchange, over TCP or a connection of rdma_cm. They alternate strictly: the
 * client writes and then reads, the server reads and then writes. Each message is one write, and both know its length.
 */
import type { CmAddress, Device } from '../../../index.js';
import { failure } from '../../exit.js';
import { PATH_MTUS } from '../../options.js';
import type { TcpChannel } from '../../tcpchannel.js';
import type { Keys, KeysFormat } from './keys.js';

/** The version that this end sends: that of perftest 25.01. */
export const VERSION = '6.24';
/** The oldest version that the stock programs accept. */
const OLDEST = 5.7;
/** Small messages cycle through this many bytes, aligned to the cache line, unless the peer asks for more. */
const CYCLE_BYTES = 4096;
const CACHE_LINE = 64;
/** The most that a peer may ask for: each session allocates it. A page of Linux has at most 64 KiB. */
const MAX_CYCLE_BYTES = 65536;
const MAX_CACHE_LINE = 1024;

/** The parameters that both ends have agreed on. */
export interface Negotiated {
  /** The peer's version, as the peer sent it. */
  readonly version: string;
  readonly cycleBytes: number;
  readonly cacheLine: number;
  /** Path MTU, bytes. */
  readonly mtu: number;
}

/** The measurement of one end. */
export interface BandwidthReport {
  readonly size: number;
  readonly iters: number;
  /** MiB per second. */
  readonly peak: number;
  readonly average: number;
  /** Millions of messages per second. */
  readonly rate: number;
}

/** The carrier of the messages: TCP, or with `-R` and `-z` a connection of rdma_cm. */
export type Channel = Pick<TcpChannel, 'remoteAddress' | 'isEnded' | 'hasData' | 'write' | 'read' | 'shutdown'>;

export class Handshake {
  constructor(
    readonly channel: Channel,
    readonly role: 'client' | 'server',
    readonly format: KeysFormat,
  ) {}

  /**
   * Agrees on versions, sizes and path MTU, in this order.
   * @param mtu the largest path MTU that this end accepts
   * @throws CliError when the peer is too old or sends something else
   */
  async negotiate(mtu: number): Promise<Negotiated> {
    const mine = Buffer.alloc(16);
    mine.write(VERSION, 'latin1');
    const version = cut(await this.#swap(() => mine, 16, "the peer's version"));
    if (!(Number.parseFloat(version) >= OLDEST))
      throw failure(`the peer's version is ${JSON.stringify(version)}, must be that of perftest, ${OLDEST} or later`, {
        code: 'EPROTO',
      });
    const cycleBytes = await this.#size(CYCLE_BYTES, MAX_CYCLE_BYTES, 'cycle buffer');
    const cacheLine = await this.#size(CACHE_LINE, MAX_CACHE_LINE, 'cache line');
    const code = Buffer.from(`${PATH_MTUS.indexOf(mtu) + 1}\0`, 'latin1');
    const theirs = PATH_MTUS[Number(cut(await this.#swap(() => code, 2, "the peer's path MTU"))) - 1];
    return { version, cycleBytes, cacheLine, mtu: Math.min(mtu, theirs ?? mtu) };
  }

  /**
   * Exchanges the keys of one queue pair.
   * @param mine returns our keys; at the server it is called with the peer's, which come first
   * @param patient wait without limit while the peer is connected, because it is busy
   */
  async exchangeKeys(mine: (theirs: Keys | undefined) => Keys, { patient = false } = {}): Promise<Keys> {
    const { bytes, encode, decode } = this.format;
    const answer = (theirs: Buffer | undefined) => encode(mine(theirs && decode(theirs)));
    return decode(await this.#swap(answer, bytes, "the peer's keys", patient ? 0 : undefined));
  }

  async exchangeReports(mine: BandwidthReport): Promise<BandwidthReport> {
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

  /** Agrees on the larger of two sizes. @throws CliError when the peer's is none that a machine has */
  async #size(mine: number, max: number, what: string): Promise<number> {
    const theirs = await this.#number(mine);
    if (theirs <= max) return Math.max(mine, theirs);
    throw failure(`the peer's ${what} has ${theirs} bytes, must have at most ${max}`, { code: 'EPROTO' });
  }

  async #number(mine: number): Promise<number> {
    const bytes = Buffer.alloc(4);
    bytes.writeInt32BE(mine);
    return (await this.#swap(() => bytes, 4, "the peer's sizes")).readInt32BE();
  }

  async #swap(mine: (theirs?: Buffer) => Buffer, count: number, what: string, idleMs?: number): Promise<Buffer> {
    const { channel } = this;
    if (this.role === 'client') {
      channel.write(mine());
      return channel.read(count, what, idleMs);
    }
    const theirs = Buffer.from(await channel.read(count, what, idleMs));
    channel.write(mine(theirs));
    return theirs;
  }
}

function cut(bytes: Buffer): string {
  return bytes.toString('latin1').replace(/\0.*$/s, '');
}

/** The communication with a peer, and the device that reaches it. */
export interface Communication {
  readonly device: Device;
  readonly handshake: Handshake;
  /** The peer's address, and the port of the communication. */
  readonly peer: CmAddress;
}

/** Runs a test with a peer. The communication ends when it has resolved. */
export type RunTest = (comm: Communication) => Promise<void>;
