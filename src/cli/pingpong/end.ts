/** One end of a pingpong: its queue pairs, its memory, and the messages to and fro. */
import {
  type Ah,
  type ConnectOptions,
  type Counters,
  type Cq,
  type Device,
  type Endpoint,
  type Mr,
  type Pd,
  type Qp,
  type Srq,
  throwIfFailed,
  type Wc,
  WcOpcode,
  WcStatus,
} from '../../index.js';
import { Completions, type WaitOptions } from '../completions.js';
import { failure, usageError } from '../exit.js';
import { QKEY, TRANSPORTS, type Transport } from './transport.js';

export interface EndOptions extends WaitOptions {
  readonly transport: Transport;
  /** Queue pairs: 1, but for a shared receive queue. */
  readonly qps: number;
  /** Bytes of a message. */
  readonly size: number;
  /** Messages that each end sends, over all queue pairs. */
  readonly iters: number;
  readonly rxDepth: number;
  /** Path MTU, bytes; datagrams take the port's. */
  readonly mtu: number;
  readonly gidIndex?: number;
  /** Every byte that arrives is checked. */
  readonly check: boolean;
  /** As `QpAttributes.timeout`. */
  readonly timeout: number;
  readonly retryCnt: number;
}

export interface Outcome {
  /** From the first to the last message of this end, seconds. */
  readonly seconds: number;
  /** Client: time of each round trip, milliseconds. */
  readonly times: Float64Array;
  readonly received: number;
  /** Messages whose bytes were not those that were to come; 0 without `check`. */
  readonly invalid: number;
  /** Last messages that nobody acknowledged, as the peer had all and was gone. */
  readonly unacknowledged: number;
  readonly counters: Counters;
}

export interface Exchange {
  /** The client sends first. */
  readonly begins: boolean;
  /** The peer answers no more, not even what it has received. */
  readonly peerHasLeft: () => boolean;
  /** Is told how many round trips are done. */
  readonly onRound: (done: number) => void;
}

/** A queue pair, and what it waits for before it may send again. */
interface Lane {
  readonly qp: Qp;
  ah: Ah | undefined;
  remoteQpn: number;
  awaitsSend: boolean;
  awaitsReceive: boolean;
  start: number;
}

const PAGE_BYTES = 4096;
/** What a buffer holds before a message comes, so that a message that changes nothing is noticed. */
const POISON = 0xee;

interface Parts {
  readonly pd: Pd;
  readonly cq: Cq;
  readonly srq: Srq | undefined;
  readonly qps: readonly Qp[];
  readonly outbox: Mr;
  readonly inbox: Mr;
}

export class End {
  readonly #parts: Parts;
  readonly #completions: Completions;
  readonly #expected: Buffer;
  readonly #lanes: readonly Lane[];
  /** Bytes in front of a message that came. */
  readonly #front: number;
  #sgidIndex: number | undefined;
  #invalid = 0;

  private constructor(
    readonly device: Device,
    readonly options: EndOptions,
    parts: Parts,
  ) {
    this.#parts = parts;
    const { front, fill } = TRANSPORTS[options.transport];
    this.#front = front;
    this.#completions = new Completions(parts.cq, options);
    this.#lanes = parts.qps.map((qp) => ({
      ...{ qp, ah: undefined, remoteQpn: 0, awaitsSend: false, awaitsReceive: true, start: 0 },
    }));
    this.#expected = Buffer.alloc(options.size, fill);
    if (options.check) for (let at = 0; at < options.size; at += PAGE_BYTES) this.#expected[at] = 0;
    this.#expected.copy(parts.outbox.buffer);
    if (options.check) parts.inbox.buffer.fill(POISON);
  }

  /** @throws CliError for options that the device cannot fulfil; VerbsError */
  static async open(device: Device, options: EndOptions): Promise<End> {
    const { size, rxDepth, transport, qps: count } = options;
    checkMtu(device, options);
    const { type, front } = TRANSPORTS[transport];
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: rxDepth + 4 * count });
    const inbox = await pd.regMr(Math.max(1, size + front));
    const outbox = await pd.regMr(Math.max(1, size));
    const srq = transport === 'SRQ' ? await pd.createSrq({ maxWr: rxDepth, maxSge: 1 }) : undefined;
    const receives = srq ? { srq } : { maxRecvWr: rxDepth, maxRecvSge: 1 };
    const qps: Qp[] = [];
    for (let i = 0; i < count; i++)
      qps.push(await pd.createQp({ type, sendCq: cq, maxSendWr: 2, maxSendSge: 1, ...receives }));
    return new End(device, options, { pd, cq, srq, qps, inbox, outbox });
  }

  /**
   * What to tell the peer, of each queue pair.
   * @param peer its address or GID, to choose ours by
   */
  endpoints(peer: string): Endpoint[] {
    const { gids } = this.device;
    const { gidIndex } = this.options;
    const entry = gidIndex === undefined ? this.device.chooseGid(peer) : gids[gidIndex];
    const have = gids.map(({ index, gid }) => `${index}: ${gid}`).join(', ');
    if (!entry) throw usageError(`GID index ${gidIndex} (--gid-idx) does not exist; there is ${have}`);
    this.#sgidIndex = entry.index;
    return this.#lanes.map(({ qp }) => ({ ...qp.endpoint(), gid: entry.gid }));
  }

  /** Receives are posted before the peer can know of us. @param remotes one for each of ours */
  async connect(remotes: readonly Endpoint[]): Promise<void> {
    const { mtu, timeout, retryCnt, transport, rxDepth } = this.options;
    const sgidIndex = this.#sgidIndex ?? 0;
    for (const [i, lane] of this.#lanes.entries()) {
      const remote = remotes[i];
      if (!remote)
        throw failure(
          `the peer has ${remotes.length} queue pairs and we have ${this.#lanes.length}: give both ends the same -q`,
        );
      lane.remoteQpn = remote.qpn;
      if (transport === 'UD') {
        await lane.qp.activate({ qkey: QKEY });
        lane.ah = await this.#parts.pd.createAh({ grh: { dgid: remote.gid, sgidIndex } });
      } else {
        const options: ConnectOptions = { pathMtu: mtu, timeout, retryCnt, rdAtomic: 1, sgidIndex };
        await lane.qp.connect(remote, options);
      }
    }
    for (let i = 0; i < rxDepth; i++) this.#postRecv();
  }

  /** Leaves the device as it was before. */
  async close(): Promise<void> {
    const { qps, srq, cq, inbox, outbox, pd } = this.#parts;
    for (const qp of qps) await qp.close();
    for (const { ah } of this.#lanes) await ah?.close();
    for (const resource of [...(srq ? [srq] : []), cq, inbox, outbox, pd]) await resource.close();
  }

  /**
   * The messages: on each queue pair one there, one back. A queue pair sends again once its message is acknowledged and
   * one has come, until so many as were to be have been sent over all of them; those under way may be a few more.
   */
  async exchange({ begins, peerHasLeft, onRound }: Exchange): Promise<Outcome> {
    const { iters } = this.options;
    const times = new Float64Array(begins ? iters : 0);
    let [sent, received, rounds, timed, unacknowledged] = [0, 0, 0, 0, 0];
    let begin = performance.now();
    if (begins) for (const lane of this.#lanes) this.#send(lane);
    while (sent < iters || received < iters) {
      const wc = await this.#completions.next();
      const lane = this.#laneOf(wc);
      if (!wc.ok && wc.status === WcStatus.RETRY_EXC_ERR && received >= iters && peerHasLeft()) {
        // All that it sent has come, and it left without a word: it had our last message, or would still be waiting.
        unacknowledged++;
        sent++;
        continue;
      }
      throwIfFailed(wc);
      if (wc.opcode === WcOpcode.RECV) {
        if (!lane.awaitsReceive) throw new Error('the peer sent out of turn');
        if (received++ === 0 && !begins) begin = performance.now();
        lane.awaitsReceive = false;
        this.#accept(!begins);
      } else {
        sent++;
        lane.awaitsSend = false;
      }
      if (lane.awaitsSend || lane.awaitsReceive) continue;
      if (begins && timed < iters) times[timed++] = performance.now() - lane.start;
      if (sent < iters) this.#send(lane);
      onRound(Math.min(++rounds, iters));
    }
    const seconds = (performance.now() - begin) / 1000;
    const counters = this.#counters();
    return { seconds, times: times.subarray(0, timed), received, invalid: this.#invalid, unacknowledged, counters };
  }

  #laneOf(wc: Wc): Lane {
    return this.#lanes.find(({ qp }) => qp.qpNum === wc.qpNum) as Lane;
  }

  /** A message has come: looks at it, and makes room for the next before the peer can send that. */
  #accept(echoes: boolean): void {
    const { check, size } = this.options;
    const message = this.#parts.inbox.buffer.subarray(this.#front, this.#front + size);
    if (check) {
      if (!message.equals(this.#expected)) this.#invalid++;
      this.#poison();
    } else if (echoes && this.#lanes.length === 1) {
      // What came goes back, as the stock tool's one buffer makes it, so that a client may check it.
      message.copy(this.#parts.outbox.buffer);
    }
    this.#postRecv();
  }

  /** With several queue pairs the next message may be there already. */
  #poison(): void {
    if (this.options.check && this.#lanes.length === 1) this.#parts.inbox.buffer.fill(POISON);
  }

  #send(lane: Lane): void {
    const { size } = this.options;
    const { qp, ah, remoteQpn } = lane;
    const piece = { ...(size > 0 && { sgList: this.#parts.outbox.slice(0, size) }) };
    lane.awaitsSend = true;
    lane.awaitsReceive = true;
    lane.start = performance.now();
    qp.postSend({ opcode: 'SEND', ...piece, ...(ah && { ah, remoteQpn, remoteQkey: QKEY }) });
  }

  #postRecv(): void {
    const { srq, qps, inbox } = this.#parts;
    const length = this.#front + this.options.size;
    const wr = length > 0 ? { sgList: inbox.slice(0, length) } : {};
    if (srq) srq.postRecv(wr);
    else qps[0]?.postRecv(wr);
  }

  /** Of all queue pairs. */
  #counters(): Counters {
    const sum: Record<string, number> = {};
    for (const { qp } of this.#lanes)
      for (const [name, count] of Object.entries(qp.counters())) sum[name] = (sum[name] ?? 0) + count;
    return sum;
  }
}

function checkMtu(device: Device, { transport, size, mtu, rxDepth, qps }: EndOptions): void {
  const { activeMtu, interface: name, interfaceMtu } = device.queryPort();
  const carries = `${name} carries: its MTU ${interfaceMtu} allows ${activeMtu}`;
  if (transport === 'UD') {
    if (size > activeMtu) throw usageError(`a datagram of ${size} bytes (--size) is more than ${carries}`);
  } else if (mtu > activeMtu) {
    throw usageError(`path MTU ${mtu} (--mtu) is more than ${carries}; both ends must use the same`);
  }
  if (rxDepth < qps)
    throw usageError(
      `${rxDepth} receives (--rx-depth) are too few for ${qps} queue pairs (--num-qp): one for each at least`,
    );
}
