/**
 * The rendezvous of ranks: each listens, and connects to those with lower numbers.
 *
 * With the endpoints of all ranks, each connects to its neighbours (schedule.ts) at once. Otherwise every rank connects
 * to rank 0 first; when all have, rank 0 tells each of them where the others listen.
 */

import { whenAborted } from '../../base/abort.js';
import { RNR_TIMER } from '../../base/rnrtimer.js';
import { sleep } from '../../base/timers.js';
import { CmError, type CmId, type Cq, createCmId, type Device, type Pd } from '../../index.js';
import { acceptAll, listen, refuse } from '../../transport/acceptor.js';
import { WATCHED } from '../../transport/peerwatch.js';
import { RankError } from './errors.js';
import type { CommunicatorSettings, RankEndpoint } from './options.js';
import { Peer, type PeerListener } from './peer.js';
import { neighbours } from './schedule.js';
import { type ControlMessage, decodeHello, encodeHello, type Hello } from './wire.js';

/** Time that a rank has to answer a connection request, which may have come before it listens (ms). */
const ATTEMPT_MS = 2000;
/** Time between two attempts (ms). */
const PAUSE_MS = 200;
/**
 * ACK timeout of the connections: 4.096 us * 2^15 = 134 ms. Heartbeats decide when a rank is dead; the queue pair must
 * only not give up long before.
 */
const ACK_TIMEOUT = 15;
const CM_ID_OPTIONS = { ackTimeout: ACK_TIMEOUT, minRnrTimer: RNR_TIMER };
/** Only WRITE and SEND are used. */
const CONN_PARAM = { ...WATCHED, responderResources: 0, initiatorDepth: 0 };

/** The parts that all connections share. */
export interface Parts {
  readonly device: Device;
  readonly pd: Pd;
  readonly cq: Cq;
}

export class Rendezvous {
  readonly #settings: CommunicatorSettings;
  readonly #parts: Parts;
  readonly #listener: PeerListener;
  /** Ranks to which we connect, and from which a connection comes. */
  readonly #lower: readonly number[];
  readonly #higher: ReadonlySet<number>;
  readonly #near: ReadonlySet<number>;
  readonly #endpoints = new Map<number, RankEndpoint>();
  /** Connections, also those that are being established. */
  readonly #opened = new Map<number, Peer>();
  /** The same by the number of the queue pair. */
  readonly #byQpNum = new Map<number, Peer>();
  readonly #established = new Set<number>();
  /** The newest request of each rank. A rank that connects again has given its earlier request up. */
  readonly #requests = new Map<number, CmId>();
  /** Called when something has changed that may be waited for. */
  #onChange: () => void = () => {};
  #cmId: CmId | undefined;

  constructor(settings: CommunicatorSettings, parts: Parts, listener: PeerListener) {
    const { rank, size, isLearnt } = settings;
    this.#settings = settings;
    this.#parts = parts;
    this.#listener = listener;
    this.#near = new Set(neighbours({ rank, size }));
    const isStar = isLearnt && rank === 0;
    this.#lower = [...this.#near].filter((other) => other < rank);
    const others = Array.from({ length: size - rank - 1 }, (_, i) => rank + 1 + i);
    this.#higher = new Set(others.filter((other) => isStar || this.#near.has(other)));
    for (const [index, endpoint] of settings.endpoints.entries()) this.#endpoints.set(index, endpoint);
  }

  /** Connections that a rank can have. */
  static connections({ rank, size, isLearnt }: CommunicatorSettings): number {
    return isLearnt && rank === 0 ? size - 1 : neighbours({ rank, size }).length + 1;
  }

  /** The connections, also those that are not established yet, by rank. */
  get peers(): ReadonlyMap<number, Peer> {
    return this.#opened;
  }

  /** The connection that has a queue pair. */
  peerWith(qpNum: number): Peer | undefined {
    return this.#byQpNum.get(qpNum);
  }

  /**
   * Connects with all ranks that are needed.
   * @param signal ends the wait @throws the signal's reason; CmError, VerbsError; RankError when a rank refuses
   */
  async run(signal: AbortSignal): Promise<void> {
    const { rank, isLearnt } = this.#settings;
    await this.#listen();
    if (isLearnt && rank > 0) {
      await this.#connect(0, signal);
      await this.#until(() => this.#lower.every((other) => this.#endpoints.has(other)), signal);
    }
    const missing = this.#lower.filter((other) => !this.#established.has(other));
    await Promise.all(missing.map((other) => this.#connect(other, signal)));
    await this.#until(() => this.missing.length === 0, signal);
    if (isLearnt && rank === 0) await this.#tellEndpoints();
  }

  /** Ranks that have not connected to us yet. */
  get missing(): number[] {
    return [...this.#higher].filter((other) => !this.#established.has(other));
  }

  /** Takes what rank 0 says of the others. */
  onEndpoint({ rank, host, port }: ControlMessage & { readonly type: 'endpoint' }): void {
    if (!this.#lower.includes(rank)) return;
    this.#endpoints.set(rank, { host, port });
    this.#onChange();
  }

  /** Takes no more connections. */
  async close(): Promise<void> {
    await this.#cmId?.close();
  }

  // ---- active side ----

  /** Connects to a rank as soon as it listens. */
  async #connect(other: number, signal: AbortSignal): Promise<void> {
    for (;;) {
      try {
        return await this.#attempt(other, signal);
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof RankError || !mayListenLater(error)) throw error;
      }
      await sleep(PAUSE_MS, undefined, { signal });
    }
  }

  async #attempt(other: number, signal: AbortSignal): Promise<void> {
    const { host, port } = this.#endpoints.get(other) as RankEndpoint;
    const id = createCmId(this.#parts.device, CM_ID_OPTIONS);
    const wait = { signal, timeout: ATTEMPT_MS };
    let peer: Peer | undefined;
    try {
      await id.resolveAddr(host, port, wait);
      await id.resolveRoute();
      peer = await this.#open(id, other);
      const { privateData } = await id.connect({ ...CONN_PARAM, privateData: this.#hello(peer) }, wait);
      const hello = decodeHello(privateData, this.#settings);
      if (typeof hello === 'string') throw refusal(other, hello);
      if (hello.rank !== other) throw refusal(other, `rank ${hello.rank} listens where rank ${other} is expected`);
      this.#establish(peer, hello);
    } catch (error) {
      await this.#drop(id, peer);
      const reason = error instanceof CmError ? textOf(error.privateData) : '';
      throw reason === '' ? error : refusal(other, reason);
    }
  }

  // ---- passive side ----

  async #listen(): Promise<void> {
    const { rank, isLearnt } = this.#settings;
    const own = isLearnt && rank > 0 ? undefined : this.#endpoints.get(rank);
    this.#cmId = await listen(this.#parts.device, { port: own?.port ?? 0 }, CM_ID_OPTIONS);
    // Each connection reports the failure of the device.
    void acceptAll(
      this.#cmId,
      (request) => this.#accept(request),
      () => {},
    );
  }

  async #accept(id: CmId): Promise<void> {
    const hello = decodeHello(id.request?.privateData ?? new Uint8Array(0), this.#settings);
    const reason = typeof hello === 'string' ? hello : this.#objection(hello.rank);
    if (typeof hello === 'string' || reason !== undefined) {
      await refuse(id, { privateData: Buffer.from(reason ?? '') });
      return;
    }
    const isNewest = () => this.#requests.get(hello.rank) === id;
    const earlier = this.#requests.get(hello.rank);
    this.#requests.set(hello.rank, id);
    let peer: Peer | undefined;
    try {
      await earlier?.close();
      peer = await this.#open(id, hello.rank);
      if (isNewest()) await id.accept({ ...WATCHED, privateData: this.#hello(peer) });
      if (!isNewest()) throw new RankError(hello.rank, 'ECONNRESET', `rank ${hello.rank} has connected again`);
      if (this.#settings.isLearnt && this.#settings.rank === 0)
        this.#endpoints.set(hello.rank, { host: peer.address, port: hello.port });
      this.#establish(peer, hello);
    } catch {
      // it has given up, and tries again
      await this.#drop(id, peer);
    }
  }

  /** The reason to refuse a rank; undefined: it may connect. */
  #objection(other: number): string | undefined {
    const { rank } = this.#settings;
    if (!this.#higher.has(other)) return `rank ${other} does not connect to rank ${rank}`;
    return this.#established.has(other) ? `rank ${other} has joined already` : undefined;
  }

  async #open(id: CmId, other: number): Promise<Peer> {
    const { pd, cq } = this.#parts;
    const peer = Peer.open(id, pd, cq, { rank: other, hasData: this.#near.has(other) }, this.#listener);
    const opened = await peer;
    this.#opened.set(other, opened);
    this.#byQpNum.set(opened.qpNum, opened);
    return opened;
  }

  /** Frees what belongs to an attempt to connect. */
  async #drop(id: CmId, peer: Peer | undefined): Promise<void> {
    if (peer === undefined) {
      await id.close();
      return;
    }
    if (this.#opened.get(peer.rank) === peer) this.#opened.delete(peer.rank);
    this.#byQpNum.delete(peer.qpNum);
    await peer.close(async () => {});
  }

  #establish(peer: Peer, fifo: Pick<Hello, 'fifoAddr' | 'fifoRkey'>): void {
    peer.start(fifo);
    this.#established.add(peer.rank);
    this.#onChange();
  }

  #hello(peer: Peer): Buffer {
    const { rank, size, group } = this.#settings;
    const port = this.#cmId?.localAddress?.port ?? 0;
    return encodeHello({ rank, size, group, port, ...peer.fifo });
  }

  /** Rank 0 tells every rank where its neighbours with lower numbers listen. */
  async #tellEndpoints(): Promise<void> {
    const { size } = this.#settings;
    const { pd } = this.#parts;
    const tell = async (peer: Peer) => {
      const lower = neighbours({ rank: peer.rank, size }).filter((other) => other > 0 && other < peer.rank);
      for (const rank of lower)
        await peer.control(pd, { type: 'endpoint', rank, ...(this.#endpoints.get(rank) as RankEndpoint) });
    };
    await Promise.all([...this.#opened.values()].map(tell));
  }

  async #until(isDone: () => boolean, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    while (!isDone())
      await new Promise<void>((resolve, reject) => {
        const forgetSignal = whenAborted(signal, () => reject(signal.reason));
        this.#onChange = () => {
          forgetSignal();
          resolve();
        };
      });
  }
}

/** Whether a rank that cannot be reached may only be late. */
function mayListenLater(error: unknown): boolean {
  const { code } = error as { code?: string };
  return ['ECONNREFUSED', 'ETIMEDOUT', 'EHOSTUNREACH', 'ECONNRESET'].includes(code ?? '');
}

function refusal(other: number, reason: string): RankError {
  return new RankError(other, 'ECONNREFUSED', `rank ${other} refuses: ${reason}`);
}

/** Text of private data, which zeroes follow. */
function textOf(data: Uint8Array | undefined): string {
  return Buffer.from(data ?? [])
    .toString()
    .split('\0')[0] as string;
}
