/** One end of a pingpong: its queue pairs, its memory, and the exchange of messages. */
import {
  type AddressHandle,
  type Counters,
  type Cq,
  type Device,
  type Endpoint,
  type Mr,
  type Pd,
  type Qp,
  type QpConnectOptions,
  type Srq,
  throwIfFailed,
  type Wc,
  WcOpcode,
  WcStatus,
} from '../../index.js';
import { Completions, type WaitOptions } from '../completions.js';
import { sumOf } from '../counters.js';
import { failure, usageError } from '../exit.js';
import { QKEY, TRANSPORTS, type Transport } from './transport.js';

export interface PingpongParameters extends WaitOptions {
  readonly transport: Transport;
  /** Number of queue pairs; more than 1 only with a shared receive queue. */
  readonly qps: number;
  /** Bytes of a message. */
  readonly size: number;
  /** Messages that each end sends, over all queue pairs. */
  readonly iters: number;
  readonly rxDepth: number;
  /** Path MTU, bytes. UD uses that of the port. */
  readonly mtu: number;
  readonly gidIndex?: number;
  /** Verify every byte received. */
  readonly check: boolean;
  /** As `QpAttributes.timeout`. */
  readonly timeout: number;
  readonly retryCnt: number;
}

export interface PingpongResult {
  /** From the first to the last message of this end, seconds. */
  readonly seconds: number;
  /** Client: time of each round trip, milliseconds. */
  readonly times: Float64Array;
  readonly received: number;
  /** Messages that held other bytes than expected; 0 without `check`. */
  readonly invalid: number;
  /** Last messages without an acknowledgement, because the peer had received everything and left. */
  readonly unacknowledged: number;
  readonly counters: Counters;
}

export interface ExchangeOptions {
  /** This end is the client, which sends first. */
  readonly sendsFirst: boolean;
  /** Whether the peer has left. It then no longer acknowledges even what it has received. */
  readonly peerHasLeft: () => boolean;
  /** Called with the number of round trips that are done. */
  readonly onRoundTrip: (done: number) => void;
}

/** A queue pair, and what must come before it sends again. */
interface QpProgress {
  readonly qp: Qp;
  ah: AddressHandle | undefined;
  remoteQpn: number;
  awaitsSend: boolean;
  awaitsReceive: boolean;
  start: number;
}

const PAGE_BYTES = 4096;
/** Fills the receive buffer before a message comes, so that a message that writes nothing is noticed. */
const POISON = 0xee;

interface Resources {
  readonly pd: Pd;
  readonly cq: Cq;
  readonly srq: Srq | undefined;
  readonly qps: readonly Qp[];
  readonly sendMr: Mr;
  readonly recvMr: Mr;
}

export class PingpongContext {
  readonly #resources: Resources;
  readonly #completions: Completions;
  readonly #expected: Buffer;
  readonly #qps: readonly QpProgress[];
  /** Bytes in front of a received message: the GRH of UD. */
  readonly #headerBytes: number;
  #sgidIndex: number | undefined;
  #invalid = 0;

  private constructor(
    readonly device: Device,
    readonly options: PingpongParameters,
    resources: Resources,
  ) {
    this.#resources = resources;
    const { headerBytes, fillByte } = TRANSPORTS[options.transport];
    this.#headerBytes = headerBytes;
    this.#completions = new Completions(resources.cq, options);
    this.#qps = resources.qps.map((qp) => ({
      ...{ qp, ah: undefined, remoteQpn: 0, awaitsSend: false, awaitsReceive: true, start: 0 },
    }));
    this.#expected = Buffer.alloc(options.size, fillByte);
    if (options.check) for (let at = 0; at < options.size; at += PAGE_BYTES) this.#expected[at] = 0;
    this.#expected.copy(resources.sendMr.buffer);
    if (options.check) resources.recvMr.buffer.fill(POISON);
  }

  /** Creates the resources on a device. @throws CliError for options that the device cannot fulfil; VerbsError */
  static async open(device: Device, options: PingpongParameters): Promise<PingpongContext> {
    const { size, rxDepth, transport, qps: count } = options;
    checkMtu(device, options);
    const { type, headerBytes } = TRANSPORTS[transport];
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: rxDepth + 4 * count });
    const recvMr = await pd.regMr(Math.max(1, size + headerBytes));
    const sendMr = await pd.regMr(Math.max(1, size));
    const srq = transport === 'SRQ' ? await pd.createSrq({ maxWr: rxDepth, maxSge: 1 }) : undefined;
    const receives = srq ? { srq } : { maxRecvWr: rxDepth, maxRecvSge: 1 };
    const qps: Qp[] = [];
    for (let i = 0; i < count; i++)
      qps.push(await pd.createQp({ type, sendCq: cq, maxSendWr: 2, maxSendSge: 1, ...receives }));
    return new PingpongContext(device, options, { pd, cq, srq, qps, recvMr, sendMr });
  }

  /**
   * Returns what the peer must know of each queue pair.
   * @param peer its address or GID, by which ours is chosen
   */
  endpoints(peer: string): Endpoint[] {
    const { gids } = this.device;
    const { gidIndex } = this.options;
    const entry = gidIndex === undefined ? this.device.chooseGid(peer) : gids[gidIndex];
    const have = gids.map(({ index, gid }) => `${index}: ${gid}`).join(', ');
    if (!entry) throw usageError(`GID index ${gidIndex} (--gid-idx) does not exist; there is ${have}`);
    this.#sgidIndex = entry.index;
    return this.#qps.map(({ qp }) => ({ ...qp.endpoint(), gid: entry.gid }));
  }

  /** Connects the queue pairs and posts the receives. @param remotes one for each of our queue pairs */
  async connect(remotes: readonly Endpoint[]): Promise<void> {
    const { mtu, timeout, retryCnt, transport, rxDepth } = this.options;
    const sgidIndex = this.#sgidIndex ?? 0;
    for (const [i, progress] of this.#qps.entries()) {
      const remote = remotes[i];
      if (!remote)
        throw failure(
          `the peer has ${remotes.length} queue pairs and we have ${this.#qps.length}: give both ends the same -q`,
        );
      progress.remoteQpn = remote.qpNum;
      if (transport === 'UD') {
        await progress.qp.activate({ qkey: QKEY });
        progress.ah = await this.#resources.pd.createAh({ grh: { dgid: remote.gid, sgidIndex } });
      } else {
        const options: QpConnectOptions = { pathMtu: mtu, timeout, retryCnt, rdAtomic: 1, sgidIndex };
        await progress.qp.connect(remote, options);
      }
    }
    for (let i = 0; i < rxDepth; i++) this.#postRecv();
  }

  /** Closes all that `open` has created. */
  async close(): Promise<void> {
    const { qps, srq, cq, recvMr, sendMr, pd } = this.#resources;
    for (const qp of qps) await qp.close();
    for (const { ah } of this.#qps) await ah?.close();
    for (const resource of [...(srq ? [srq] : []), cq, recvMr, sendMr, pd]) await resource.close();
  }

  /**
   * Exchanges the messages. A queue pair sends again once its last message is acknowledged and one has been received,
   * until `iters` messages have been sent over all queue pairs. A few more may then be in flight.
   */
  async exchange({ sendsFirst, peerHasLeft, onRoundTrip }: ExchangeOptions): Promise<PingpongResult> {
    const { iters } = this.options;
    const times = new Float64Array(sendsFirst ? iters : 0);
    let [sent, received, rounds, timed, unacknowledged] = [0, 0, 0, 0, 0];
    let begin = performance.now();
    if (sendsFirst) for (const progress of this.#qps) this.#send(progress);
    while (sent < iters || received < iters) {
      const wc = await this.#completions.next();
      const progress = this.#progressOf(wc);
      if (!wc.ok && wc.status === WcStatus.RETRY_EXC_ERR && received >= iters && peerHasLeft()) {
        // All its messages have come and it has left, so it has our last message: it would still wait otherwise.
        unacknowledged++;
        sent++;
        continue;
      }
      throwIfFailed(wc);
      if (wc.opcode === WcOpcode.RECV) {
        if (!progress.awaitsReceive) throw new Error('the peer sent out of turn');
        if (received++ === 0 && !sendsFirst) begin = performance.now();
        progress.awaitsReceive = false;
        this.#onMessage(!sendsFirst);
      } else {
        sent++;
        progress.awaitsSend = false;
      }
      if (progress.awaitsSend || progress.awaitsReceive) continue;
      if (sendsFirst && timed < iters) times[timed++] = performance.now() - progress.start;
      if (sent < iters) this.#send(progress);
      onRoundTrip(Math.min(++rounds, iters));
    }
    const seconds = (performance.now() - begin) / 1000;
    const counters = this.#counters();
    return { seconds, times: times.subarray(0, timed), received, invalid: this.#invalid, unacknowledged, counters };
  }

  #progressOf(wc: Wc): QpProgress {
    return this.#qps.find(({ qp }) => qp.qpNum === wc.qpNum) as QpProgress;
  }

  /** Verifies a received message, and posts the next receive before the peer can send again. */
  #onMessage(echoes: boolean): void {
    const { check, size } = this.options;
    const message = this.#resources.recvMr.buffer.subarray(this.#headerBytes, this.#headerBytes + size);
    if (check) {
      if (!message.equals(this.#expected)) this.#invalid++;
      this.#poison();
    } else if (echoes && this.#qps.length === 1) {
      // Return what was received, as the stock program does with its one buffer, so that a client can verify it.
      message.copy(this.#resources.sendMr.buffer);
    }
    this.#postRecv();
  }

  /** Not with several queue pairs: the next message may be in the buffer already. */
  #poison(): void {
    if (this.options.check && this.#qps.length === 1) this.#resources.recvMr.buffer.fill(POISON);
  }

  #send(progress: QpProgress): void {
    const { size } = this.options;
    const { qp, ah, remoteQpn } = progress;
    const sg = { ...(size > 0 && { sgList: this.#resources.sendMr.sge(0, size) }) };
    progress.awaitsSend = true;
    progress.awaitsReceive = true;
    progress.start = performance.now();
    qp.postSend({ opcode: 'SEND', ...sg, ...(ah && { ah, remoteQpn, remoteQkey: QKEY }) });
  }

  #postRecv(): void {
    const { srq, qps, recvMr } = this.#resources;
    const length = this.#headerBytes + this.options.size;
    const wr = length > 0 ? { sgList: recvMr.sge(0, length) } : {};
    if (srq) srq.postRecv(wr);
    else qps[0]?.postRecv(wr);
  }

  /** Sums of all queue pairs. */
  #counters(): Counters {
    return sumOf(this.#qps.map(({ qp }) => qp.counters()));
  }
}

function checkMtu(device: Device, { transport, size, mtu, rxDepth, qps }: PingpongParameters): void {
  const { activeMtu, interface: name, interfaceMtu } = device.queryPort();
  const carries = `${name} carries: its MTU ${interfaceMtu} allows ${activeMtu}`;
  if (transport === 'UD') {
    if (size > activeMtu) throw usageError(`a datagram of ${size} bytes (--size) is more than ${carries}`);
  } else if (mtu > activeMtu) {
    throw usageError(`path MTU ${mtu} (--mtu) is more than ${carries}; both ends must use the same`);
  }
  if (rxDepth < qps)
    throw usageError(
      `${rxDepth} receives (--rx-depth) are too few for ${qps} queue pairs (--num-qp): each needs one at least`,
    );
}
