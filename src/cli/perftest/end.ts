/** One end of a test: its queue pairs and memory, what it posts, and what has completed. */
import {
  type Ah,
  type Cq,
  type Device,
  type Mr,
  type Pd,
  type Qp,
  type SendWr,
  type Srq,
  throwIfFailed,
  UDP_QKEY,
  type Wc,
  WcOpcode,
  WcStatus,
} from '../../index.js';
import { Completions } from '../completions.js';
import { failure, usageError } from '../exit.js';
import type { Terms } from './handshake.js';
import type { Keys } from './keys.js';
import { answersReads, type PerftestOptions, takesReceives } from './kinds.js';

/** READs and atomics that we answer at a time, and have outstanding where the peer answers as many, unless told otherwise. */
const RD_ATOMIC = 16;
const QKEY = 0x11111111;
/** What comes in front of a datagram. */
const GRH_BYTES = 40;
const LINE = 64;

/** What one queue pair has done in the present run. */
interface Lane {
  readonly qp: Qp;
  datagram: Destination | undefined;
  remote: Keys | undefined;
  posted: number;
  completed: number;
  receivesPosted: number;
  /** Receives that wait for a message: what is lost leaves its own to the next run. */
  waiting: number;
}

/** Where datagrams go. */
interface Destination {
  readonly ah: Ah;
  readonly remoteQpn: number;
  readonly remoteQkey: number;
}

/** The numbers of the present run. */
interface Run {
  readonly size: number;
  /** Of each queue pair. */
  readonly sends: number;
  readonly receives: number;
}

export class End {
  readonly completions: Completions;
  /** Bytes of one queue pair in either half of the memory: first what is sent, then what the peer reaches. */
  readonly #slot: number;
  #run: Run = { size: 0, sends: 0, receives: 0 };
  /** When the present run is over; undefined before its clock has started. */
  #until: number | undefined;
  #stop = new AbortController();
  /** Over all queue pairs, in the present run. */
  sent = 0;
  received = 0;

  private constructor(
    readonly device: Device,
    readonly options: PerftestOptions,
    readonly terms: Terms,
    readonly pd: Pd,
    readonly cq: Cq,
    readonly mr: Mr,
    /** Where all queue pairs take their receives from, unless each has its own. */
    private readonly srq: Srq | undefined,
    private readonly lanes: readonly Lane[],
    slot: number,
  ) {
    this.completions = new Completions(cq, options);
    this.#slot = slot;
  }

  static async open(device: Device, options: PerftestOptions, terms: Terms): Promise<End> {
    const { qps, txDepth, rxDepth, sharesReceives, transport, size, inline, cqMod = 1 } = options;
    const slot = slotBytes(Math.max(size, terms.cycleBytes));
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: qps * (txDepth + rxDepth) });
    const access = ['localWrite', 'remoteWrite', 'remoteRead', 'remoteAtomic'] as const;
    const mr = await pd.regMr(2 * qps * slot, { access });
    const srq = sharesReceives ? await pd.createSrq({ maxWr: qps * rxDepth, maxSge: 1 }) : undefined;
    const lanes: Lane[] = [];
    for (let i = 0; i < qps; i++) {
      const limits = { maxSendWr: txDepth, maxRecvWr: rxDepth, maxSendSge: 1, maxRecvSge: 1 };
      const more = {
        sqSigAll: cqMod === 1,
        ...(srq && { srq }),
        ...(inline !== undefined && { maxInlineData: inline }),
      };
      const qp = await pd.createQp({ type: transport, sendCq: cq, ...limits, ...more });
      lanes.push({
        qp,
        datagram: undefined,
        remote: undefined,
        posted: 0,
        completed: 0,
        receivesPosted: 0,
        waiting: 0,
      });
    }
    return new End(device, options, terms, pd, cq, mr, srq, lanes, slot);
  }

  /** @param peer its address or GID, to choose ours by */
  keys(index: number, peer: string): Keys {
    const { gidIndex } = this.options;
    const { qpn, psn, gid } = this.#lane(index).qp.endpoint(peer);
    const vaddr = BigInt(this.mr.remote.addr) + BigInt(this.#inbox(index));
    const chosen = gidIndex === undefined ? gid : this.#gid(gidIndex);
    return { outReads: this.#outReads, qpn, psn, rkey: this.mr.rkey, vaddr, gid: chosen };
  }

  /** Takes a queue pair to RTS, unless rdma_cm has. */
  async connect(index: number, remote: Keys): Promise<void> {
    const { timeout, retryCnt, kind, transport, trafficClass, rdmaCm } = this.options;
    const lane = this.#lane(index);
    const { qp } = lane;
    lane.remote = remote;
    if (rdmaCm) return;
    const local = this.keys(index, remote.gid);
    const { gids } = this.device;
    const sgidIndex = gids.findIndex(({ gid }) => gid === local.gid);
    const route = { grh: { dgid: remote.gid, sgidIndex, trafficClass } };
    if (transport === 'UD') {
      await qp.activate({ qkey: QKEY });
      this.reach(index, { ah: await this.pd.createAh(route), remoteQpn: remote.qpn, remoteQkey: QKEY });
      return;
    }
    const isReliable = transport === 'RC';
    const access =
      kind.verb === 'SEND' ? ['localWrite'] : ['remoteWrite', ...(isReliable ? ['remoteRead', 'remoteAtomic'] : [])];
    await qp.modify({
      ...{ state: 'INIT', pkeyIndex: 0, portNum: 1 },
      qpAccessFlags: access as ('remoteWrite' | 'remoteRead' | 'remoteAtomic')[],
    });
    await qp.modify({
      ...{ state: 'RTR', ahAttr: route, pathMtu: this.terms.mtu, destQpNum: remote.qpn, rqPsn: remote.psn },
      ...(isReliable && { maxDestRdAtomic: local.outReads, minRnrTimer: 12 }),
    });
    await qp.modify({
      ...{ state: 'RTS', sqPsn: local.psn },
      ...(isReliable && { timeout, retryCnt, rnrRetry: 7, maxRdAtomic: Math.min(this.#outReads, remote.outReads) }),
    });
  }

  qp(index: number): Qp {
    return this.#lane(index).qp;
  }

  /** Datagrams of a queue pair go there from now on. */
  reach(index: number, datagram: Destination): void {
    this.#lane(index).datagram = datagram;
  }

  /** Tells whom a datagram's queue pair reaches what our own is. @param length bytes of which nothing is meant */
  async introduce(index: number, length: number): Promise<void> {
    const { qp, datagram } = this.#lane(index);
    if (datagram === undefined) throw failure(`queue pair ${index} is not connected`);
    const sgList = this.mr.slice(this.#outbox(index), length);
    qp.postSend({ opcode: 'SEND_WITH_IMM', immData: qp.qpNum, sgList, signaled: true, ...datagram });
    throwIfFailed(await this.completions.next());
  }

  /** Room for what `introduce` says. */
  postFirst(index: number, length: number): void {
    this.#receives(index).postRecv({ wrId: index, sgList: this.mr.slice(this.#inbox(index), length) });
  }

  /** Waits for that, and reaches its sender from now on. */
  async meet(index: number): Promise<void> {
    const wc = await this.completions.next();
    throwIfFailed(wc);
    const ah = await this.pd.createAhFromWc(wc, this.mr.buffer.subarray(this.#inbox(index)));
    this.reach(index, { ah, remoteQpn: wc.immData, remoteQkey: UDP_QKEY });
  }

  /** A new run. Posts the first receives. */
  begin(run: Run): void {
    this.#run = run;
    this.#until = undefined;
    this.#stop = new AbortController();
    this.sent = 0;
    this.received = 0;
    for (const [i, lane] of this.lanes.entries()) {
      Object.assign(lane, { posted: 0, completed: 0, receivesPosted: lane.waiting });
      if (!takesReceives(this.options)) continue;
      while (lane.receivesPosted < Math.min(run.receives, this.options.rxDepth)) this.#postRecv(i);
    }
  }

  /** Posts sends wherever there is room. */
  fill(): void {
    const { lanes } = this;
    const { txDepth, postList } = this.options;
    for (let i = 0; i < lanes.length; i++) {
      const lane = lanes[i] as Lane;
      while (lane.posted < this.#run.sends && lane.posted - lane.completed + postList <= txDepth) this.post(i);
    }
  }

  /** Its time has passed, or it was stopped. */
  get isOver(): boolean {
    return this.#stop.signal.aborted || (this.#until !== undefined && performance.now() >= this.#until);
  }

  /** The present run is over now, whatever is on the way. */
  stop(): void {
    this.#stop.abort();
  }

  /** Messages that are still to come in the present run; where there is no number of them, none is missing. */
  get missing(): number {
    const all = this.lanes.length * this.#run.receives;
    return Number.isFinite(all) ? all - this.received : 0;
  }

  /** All messages of the present run have gone. */
  get hasSentAll(): boolean {
    return this.sent >= this.lanes.length * this.#run.sends;
  }

  get outstanding(): number {
    return this.lanes.reduce((sum, { posted, completed }) => sum + posted - completed, 0);
  }

  /** The time of the run begins, unless it has begun. */
  startClock(): void {
    const { durationMs } = this.options;
    if (durationMs > 0) this.#until ??= performance.now() + durationMs;
  }

  /** Posts as many messages as are posted at once. */
  post(index: number): void {
    const lane = this.#lane(index);
    const { size } = this.#run;
    const { postList } = this.options;
    const request = (n: number) => this.#request(index, lane, lane.posted + n, size);
    lane.qp.postSend(postList === 1 ? request(0) : Array.from({ length: postList }, (_, n) => request(n)));
    lane.posted += postList;
  }

  /** Waits for a completion and counts it, unless so much time has passed or the run is over before. */
  async complete(mostMs = Number.POSITIVE_INFINITY): Promise<void> {
    const left = this.#until === undefined ? mostMs : Math.min(mostMs, this.#until - performance.now());
    const wc = await this.completions.nextWithin(left, this.#stop.signal);
    if (wc) this.count(wc);
  }

  /** Waits until nothing is on the way and so many messages have come, or the run is over. */
  async settle(received = 0): Promise<void> {
    while ((this.outstanding > 0 || this.received < received) && !this.isOver) await this.complete();
  }

  count(wc: Wc): void {
    // with rdma_cm the peer of an endless run ends it by disconnecting, which flushes what waits here
    if (this.options.endless && wc.status === WcStatus.WR_FLUSH_ERR) {
      this.stop();
      return;
    }
    throwIfFailed(wc);
    const { length } = this.lanes;
    const lane = this.#lane(wc.wrId % length);
    if (wc.opcode === WcOpcode.RECV || wc.opcode === WcOpcode.RECV_RDMA_WITH_IMM) {
      this.received++;
      lane.waiting--;
      if (lane.receivesPosted < this.#run.receives) this.#postRecv(wc.wrId);
    } else {
      const completed = Math.floor(wc.wrId / length);
      this.sent += completed - lane.completed;
      lane.completed = completed;
    }
  }

  /** The last byte of the message to send, by which the peer that looks at its memory knows it. */
  set mark(value: number) {
    this.mr.buffer[this.#outbox(0) + this.#run.size - 1] = value;
  }

  /** The last byte of the message that the peer has written. */
  get mark(): number {
    return this.mr.buffer[this.#inbox(0) + this.#run.size - 1] as number;
  }

  counters(): Record<string, number> {
    const sum: Record<string, number> = {};
    for (const { qp } of this.lanes)
      for (const [name, count] of Object.entries(qp.counters())) sum[name] = (sum[name] ?? 0) + count;
    return sum;
  }

  async close(): Promise<void> {
    for (const { qp, datagram } of this.lanes) {
      await qp.close();
      await datagram?.ah.close();
    }
    for (const resource of [this.srq, this.cq, this.mr, this.pd]) await resource?.close();
  }

  /** The n-th message of a queue pair. Its wrId tells the queue pair, and how many of its messages are done with it. */
  #request(index: number, lane: Lane, n: number, size: number): SendWr {
    const { kind, immediate, atomic, inline = 0 } = this.options;
    const { remote, datagram } = lane;
    if (remote === undefined) throw failure(`queue pair ${index} is not connected`);
    const offset = this.#offset(n, size);
    const wrId = index + (n + 1) * this.lanes.length;
    const common = {
      ...{ wrId, signaled: this.#isSignaled(lane, n + 1), sgList: this.mr.slice(this.#outbox(index), size) },
      ...(size <= inline && { inline: true }),
    };
    const there = { remoteAddr: remote.vaddr + BigInt(offset), rkey: remote.rkey };
    switch (kind.verb) {
      case 'SEND':
        return { ...common, opcode: 'SEND', ...datagram };
      case 'WRITE':
        return immediate
          ? { ...common, ...there, opcode: 'RDMA_WRITE_WITH_IMM', immData: index }
          : { ...common, ...there, opcode: 'RDMA_WRITE' };
      case 'READ':
        return { ...common, ...there, opcode: 'RDMA_READ' };
      case 'ATOMIC':
        return atomic === 'CMP_AND_SWAP'
          ? { ...common, ...there, opcode: 'ATOMIC_CMP_AND_SWP', compareAdd: 0n, swap: 0n }
          : { ...common, ...there, opcode: 'ATOMIC_FETCH_AND_ADD', compareAdd: 1n };
    }
  }

  /** Every so many messages, the last one, and the one behind which there would be no room. */
  #isSignaled({ completed }: Lane, posted: number): boolean {
    const { cqMod = 1, txDepth, postList } = this.options;
    return posted % cqMod === 0 || posted === this.#run.sends || posted + postList - completed > txDepth;
  }

  /** READs and atomics that this end answers at a time. */
  get #outReads(): number {
    const { kind, outs = RD_ATOMIC } = this.options;
    return answersReads(kind) ? outs : 1;
  }

  /** Where the n-th message of a bandwidth test goes: small ones go round, so that not all hit the same line. */
  #offset(n: number, size: number): number {
    const { cycleBytes, cacheLine } = this.terms;
    if (this.options.kind.measures === 'lat' || size > cycleBytes / 2) return 0;
    const step = Math.max(1, Math.ceil(size / cacheLine)) * cacheLine;
    return (n % Math.floor(cycleBytes / step)) * step;
  }

  #postRecv(index: number): void {
    const lane = this.#lane(index);
    // what is left over may take a message of the next run
    const room = this.options.size + (this.options.transport === 'UD' ? GRH_BYTES : 0);
    const sgList = this.mr.slice(this.#inbox(index), this.options.kind.verb === 'SEND' ? room : 0);
    this.#receives(index).postRecv({ wrId: index, ...(sgList.length > 0 && { sgList }) });
    lane.receivesPosted++;
    lane.waiting++;
  }

  /** Where receives of a queue pair are posted. Of a shared queue any other may take them, as often as its own. */
  #receives(index: number): Qp | Srq {
    return this.srq ?? this.#lane(index).qp;
  }

  #outbox(index: number): number {
    return index * this.#slot;
  }

  #inbox(index: number): number {
    return (this.lanes.length + index) * this.#slot;
  }

  #lane(index: number): Lane {
    return this.lanes[index] as Lane;
  }

  #gid(index: number): string {
    const entry = this.device.gids[index];
    if (entry) return entry.gid;
    const have = this.device.gids.map(({ index: at, gid }) => `${at}: ${gid}`).join(', ');
    throw usageError(`GID index ${index} (--gid-index) does not exist; there is ${have}`);
  }
}

/** Room for a message, and for what comes in front of it when it is a datagram. */
export function slotBytes(size: number): number {
  return Math.ceil((size + GRH_BYTES) / LINE) * LINE;
}
