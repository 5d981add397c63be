/** The resources of one end of a test: its queue pairs and memory, what it posts, and what has completed. */
import { RNR_TIMER } from '../../base/rnrtimer.js';
import {
  type AddressHandle,
  type Counters,
  type Cq,
  type Device,
  GRH_BYTES,
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
import { sumOf } from '../counters.js';
import { failure, usageError } from '../exit.js';
import type { Negotiated } from './communication/handshake.js';
import type { Keys } from './communication/keys.js';
import { isReadOrAtomic, type PerftestOptions, takesReceives } from './parameters.js';

/** Default of --outs: READs and atomics that we answer at a time, and have in flight if the peer answers as many. */
const DEFAULT_OUTS = 16;
const QKEY = 0x11111111;
const ALIGN_BYTES = 64;

/** A queue pair, and what it has done in the current run. */
interface QpProgress {
  readonly qp: Qp;
  datagram: Destination | undefined;
  remote: Keys | undefined;
  posted: number;
  completed: number;
  receivesPosted: number;
  /** Receives that are posted. A lost message leaves its receive to the next run. */
  waiting: number;
}

/** The destination of datagrams. */
interface Destination {
  readonly ah: AddressHandle;
  readonly remoteQpn: number;
  readonly remoteQkey: number;
}

/** The task of the current run. */
interface RunPlan {
  readonly size: number;
  /** Per queue pair. */
  readonly sends: number;
  readonly receives: number;
}

export class PerftestContext {
  readonly completions: Completions;
  /** Bytes of one queue pair in each half of the memory: the first half is sent, the second is for the peer. */
  readonly #slot: number;
  #plan: RunPlan = { size: 0, sends: 0, receives: 0 };
  /** When the current run is over; undefined until `startClock`. */
  #until: number | undefined;
  #stop = new AbortController();
  /** Messages of all queue pairs in the current run. */
  sent = 0;
  received = 0;

  private constructor(
    readonly device: Device,
    readonly options: PerftestOptions,
    readonly negotiated: Negotiated,
    readonly pd: Pd,
    readonly cq: Cq,
    readonly mr: Mr,
    /** The shared receive queue, with --use-srq. */
    private readonly srq: Srq | undefined,
    private readonly qps: readonly QpProgress[],
    slot: number,
  ) {
    this.completions = new Completions(cq, options);
    this.#slot = slot;
  }

  static async open(device: Device, options: PerftestOptions, negotiated: Negotiated): Promise<PerftestContext> {
    const { qps, txDepth, rxDepth, useSrq, transport, size, inline, cqMod = 1 } = options;
    const slot = slotBytes(Math.max(size, negotiated.cycleBytes));
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: qps * (txDepth + rxDepth) });
    const access = ['localWrite', 'remoteWrite', 'remoteRead', 'remoteAtomic'] as const;
    const mr = await pd.regMr(2 * qps * slot, { access });
    const srq = useSrq ? await pd.createSrq({ maxWr: qps * rxDepth, maxSge: 1 }) : undefined;
    const progress: QpProgress[] = [];
    for (let i = 0; i < qps; i++) {
      const limits = { maxSendWr: txDepth, maxRecvWr: rxDepth, maxSendSge: 1, maxRecvSge: 1 };
      const more = {
        sqSigAll: cqMod === 1,
        ...(srq && { srq }),
        ...(inline !== undefined && { maxInlineData: inline }),
      };
      const qp = await pd.createQp({ type: transport, sendCq: cq, ...limits, ...more });
      progress.push({
        qp,
        datagram: undefined,
        remote: undefined,
        posted: 0,
        completed: 0,
        receivesPosted: 0,
        waiting: 0,
      });
    }
    return new PerftestContext(device, options, negotiated, pd, cq, mr, srq, progress, slot);
  }

  /** Returns the keys of a queue pair. @param peer its address or GID, by which ours is chosen */
  keys(index: number, peer: string): Keys {
    const { gidIndex } = this.options;
    const { qpNum, psn, gid } = this.#qp(index).qp.endpoint(peer);
    const vaddr = BigInt(this.mr.remote.addr) + BigInt(this.#recvOffset(index));
    const chosen = gidIndex === undefined ? gid : this.#gid(gidIndex);
    return { outReads: this.#outReads, qpNum, psn, rkey: this.mr.rkey, vaddr, gid: chosen };
  }

  /** Takes a queue pair to RTS, unless rdma_cm has done so. */
  async connect(index: number, remote: Keys): Promise<void> {
    const { timeout, retryCnt, kind, transport, trafficClass, rdmaCm } = this.options;
    const progress = this.#qp(index);
    const { qp } = progress;
    progress.remote = remote;
    if (rdmaCm) return;
    const local = this.keys(index, remote.gid);
    const { gids } = this.device;
    const sgidIndex = gids.findIndex(({ gid }) => gid === local.gid);
    const route = { grh: { dgid: remote.gid, sgidIndex, trafficClass } };
    if (transport === 'UD') {
      await qp.activate({ qkey: QKEY });
      this.setDestination(index, { ah: await this.pd.createAh(route), remoteQpn: remote.qpNum, remoteQkey: QKEY });
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
      ...{ state: 'RTR', ahAttr: route, pathMtu: this.negotiated.mtu, destQpNum: remote.qpNum, rqPsn: remote.psn },
      ...(isReliable && { maxDestRdAtomic: local.outReads, minRnrTimer: RNR_TIMER }),
    });
    await qp.modify({
      ...{ state: 'RTS', sqPsn: local.psn },
      ...(isReliable && { timeout, retryCnt, rnrRetry: 7, maxRdAtomic: Math.min(this.#outReads, remote.outReads) }),
    });
  }

  qp(index: number): Qp {
    return this.#qp(index).qp;
  }

  /** Sets the destination of a queue pair's datagrams. */
  setDestination(index: number, datagram: Destination): void {
    this.#qp(index).datagram = datagram;
  }

  /** Sends our queue pair number to a queue pair's destination. @param length bytes of the message, without meaning */
  async sendQpn(index: number, length: number): Promise<void> {
    const { qp, datagram } = this.#qp(index);
    if (datagram === undefined) throw failure(`queue pair ${index} is not connected`);
    const sgList = this.mr.sge(this.#sendOffset(index), length);
    qp.postSend({ opcode: 'SEND_WITH_IMM', immData: qp.qpNum, sgList, signaled: true, ...datagram });
    throwIfFailed(await this.completions.next());
  }

  /** Posts the receive for the message of `sendQpn`. */
  postQpnRecv(index: number, length: number): void {
    this.#recvQueue(index).postRecv({ wrId: index, sgList: this.mr.sge(this.#recvOffset(index), length) });
  }

  /** Waits for the message of `sendQpn`, and makes its sender the destination. */
  async recvQpn(index: number): Promise<void> {
    const wc = await this.completions.next();
    throwIfFailed(wc);
    const ah = await this.pd.createAhFromWc(wc, this.mr.buffer.subarray(this.#recvOffset(index)));
    this.setDestination(index, { ah, remoteQpn: wc.immData, remoteQkey: UDP_QKEY });
  }

  /** Begins a run and posts its first receives. */
  begin(run: RunPlan): void {
    this.#plan = run;
    this.#until = undefined;
    this.#stop = new AbortController();
    this.sent = 0;
    this.received = 0;
    for (const [i, progress] of this.qps.entries()) {
      Object.assign(progress, { posted: 0, completed: 0, receivesPosted: progress.waiting });
      if (!takesReceives(this.options)) continue;
      while (progress.receivesPosted < Math.min(run.receives, this.options.rxDepth)) this.#postRecv(i);
    }
  }

  /** Posts messages until all send queues are full. */
  fill(): void {
    const { qps } = this;
    const { txDepth, postList } = this.options;
    for (let i = 0; i < qps.length; i++) {
      const progress = qps[i] as QpProgress;
      while (progress.posted < this.#plan.sends && progress.posted - progress.completed + postList <= txDepth)
        this.post(i);
    }
  }

  /** Whether the time of the run is over, or it was stopped. */
  get isOver(): boolean {
    return this.#stop.signal.aborted || (this.#until !== undefined && performance.now() >= this.#until);
  }

  /** Ends the current run, whatever is in flight. */
  stop(): void {
    this.#stop.abort();
  }

  /** Messages that the current run still has to receive; 0 if their number is not limited. */
  get missing(): number {
    const all = this.qps.length * this.#plan.receives;
    return Number.isFinite(all) ? all - this.received : 0;
  }

  /** Whether all messages of the current run were sent. */
  get hasSentAll(): boolean {
    return this.sent >= this.qps.length * this.#plan.sends;
  }

  get outstanding(): number {
    return this.qps.reduce((sum, { posted, completed }) => sum + posted - completed, 0);
  }

  /** Starts the clock of a run with a duration, unless it is running. */
  startClock(): void {
    const { durationMs } = this.options;
    if (durationMs > 0) this.#until ??= performance.now() + durationMs;
  }

  /** Posts the messages of one call, `postList` of them. */
  post(index: number): void {
    const progress = this.#qp(index);
    const { size } = this.#plan;
    const { postList } = this.options;
    const request = (n: number) => this.#request(index, progress, progress.posted + n, size);
    progress.qp.postSend(postList === 1 ? request(0) : Array.from({ length: postList }, (_, n) => request(n)));
    progress.posted += postList;
  }

  /** Waits for a completion and counts it, unless `timeoutMs` pass or the run is over before. */
  async complete(timeoutMs = Number.POSITIVE_INFINITY): Promise<void> {
    const left = this.#until === undefined ? timeoutMs : Math.min(timeoutMs, this.#until - performance.now());
    const wc = await this.completions.nextWithin(left, this.#stop.signal);
    if (wc) this.count(wc);
  }

  /** Waits until nothing is in flight and `received` messages have been received, or the run is over. */
  async settle(received = 0): Promise<void> {
    while ((this.outstanding > 0 || this.received < received) && !this.isOver) await this.complete();
  }

  count(wc: Wc): void {
    // with rdma_cm the peer ends an infinite run by disconnecting, which flushes our requests
    if (this.options.runInfinitely && wc.status === WcStatus.WR_FLUSH_ERR) {
      this.stop();
      return;
    }
    throwIfFailed(wc);
    const { length } = this.qps;
    const progress = this.#qp(wc.wrId % length);
    if (wc.opcode === WcOpcode.RECV || wc.opcode === WcOpcode.RECV_RDMA_WITH_IMM) {
      this.received++;
      progress.waiting--;
      if (progress.receivesPosted < this.#plan.receives) this.#postRecv(wc.wrId);
    } else {
      const completed = Math.floor(wc.wrId / length);
      this.sent += completed - progress.completed;
      progress.completed = completed;
    }
  }

  /** Sets the last byte of the message to send, by which the peer detects the WRITE. */
  set lastByte(value: number) {
    this.mr.buffer[this.#sendOffset(0) + this.#plan.size - 1] = value;
  }

  /** The last byte of the message that the peer has written. */
  get lastByte(): number {
    return this.mr.buffer[this.#recvOffset(0) + this.#plan.size - 1] as number;
  }

  counters(): Counters {
    return sumOf(this.qps.map(({ qp }) => qp.counters()));
  }

  async close(): Promise<void> {
    for (const { qp, datagram } of this.qps) {
      await qp.close();
      await datagram?.ah.close();
    }
    for (const resource of [this.srq, this.cq, this.mr, this.pd]) await resource?.close();
  }

  /** The nth message of a queue pair. Its wrId encodes the queue pair, and how many of its messages are then done. */
  #request(index: number, progress: QpProgress, n: number, size: number): SendWr {
    const { kind, immediate, atomic, inline = 0 } = this.options;
    const { remote, datagram } = progress;
    if (remote === undefined) throw failure(`queue pair ${index} is not connected`);
    const offset = this.#cycleOffset(n, size);
    const wrId = index + (n + 1) * this.qps.length;
    const common = {
      ...{ wrId, signaled: this.#isSignaled(progress, n + 1), sgList: this.mr.sge(this.#sendOffset(index), size) },
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

  /** Every nth message is signaled, and so are the last one and one that fills the send queue. */
  #isSignaled({ completed }: QpProgress, posted: number): boolean {
    const { cqMod = 1, txDepth, postList } = this.options;
    return posted % cqMod === 0 || posted === this.#plan.sends || posted + postList - completed > txDepth;
  }

  /** READs and atomics that this end answers at a time. */
  get #outReads(): number {
    const { kind, outs = DEFAULT_OUTS } = this.options;
    return isReadOrAtomic(kind) ? outs : 1;
  }

  /**
   * The offset of the nth message of a bandwidth test. Small ones cycle, so that they do not all hit one cache line.
   */
  #cycleOffset(n: number, size: number): number {
    const { cycleBytes, cacheLine } = this.negotiated;
    if (this.options.kind.measures === 'lat' || size > cycleBytes / 2) return 0;
    const step = Math.max(1, Math.ceil(size / cacheLine)) * cacheLine;
    return (n % Math.floor(cycleBytes / step)) * step;
  }

  #postRecv(index: number): void {
    const progress = this.#qp(index);
    // a receive that is left over may take a message of the next run
    const room = this.options.size + (this.options.transport === 'UD' ? GRH_BYTES : 0);
    const sgList = this.mr.sge(this.#recvOffset(index), this.options.kind.verb === 'SEND' ? room : 0);
    this.#recvQueue(index).postRecv({ wrId: index, ...(sgList.length > 0 && { sgList }) });
    progress.receivesPosted++;
    progress.waiting++;
  }

  /** The queue for the receives of a queue pair. From a shared queue any queue pair may take them. */
  #recvQueue(index: number): Qp | Srq {
    return this.srq ?? this.#qp(index).qp;
  }

  #sendOffset(index: number): number {
    return index * this.#slot;
  }

  #recvOffset(index: number): number {
    return (this.qps.length + index) * this.#slot;
  }

  #qp(index: number): QpProgress {
    return this.qps[index] as QpProgress;
  }

  #gid(index: number): string {
    const entry = this.device.gids[index];
    if (entry) return entry.gid;
    const have = this.device.gids.map(({ index: at, gid }) => `${at}: ${gid}`).join(', ');
    throw usageError(`GID index ${index} (--gid-index) does not exist; there is ${have}`);
  }
}

/** Bytes for a message and the GRH in front of it, aligned. */
export function slotBytes(size: number): number {
  return Math.ceil((size + GRH_BYTES) / ALIGN_BYTES) * ALIGN_BYTES;
}
