/** Card A: runs the operations one after another and measures them. */
import { type Mr, type RemoteMemory, type SendWr, throwIfFailed } from '../../index.js';
import { Completions } from '../completions.js';
import { type Latency, latencyOf } from '../latency.js';
import {
  AtomicPlan,
  difference,
  isAtomic,
  type Operation,
  patternOf,
  REGION_BYTES,
  TASKS,
  type Task,
} from './operation.js';
import type { Passive } from './passive.js';
import { openPeer, type Peer, type PeerOptions } from './peer.js';

/** One line of the table. */
export interface Row {
  readonly link: string;
  readonly operation: string;
  readonly size: number;
  readonly count: number;
  readonly inFlight: number;
  /** Microseconds from the post to the completion; for SEND, to the receipt of the answer. */
  readonly latency: Latency;
  readonly gbitPerSecond: number;
  /** Packets that either end has retransmitted. */
  readonly retransmits: number;
  /** Bytes that were verified. */
  readonly verifiedBytes: number;
  /** The error that was found in them; empty if there was none. */
  readonly wrong: string;
}

export interface ActiveOptions extends PeerOptions {
  /** Called before each operation. */
  readonly onBegin: (operation: Operation) => void;
}

const ALL = ['remoteWrite', 'remoteRead', 'remoteAtomic'] as const;
const IDLE_MS = 10_000;
/** An operation starts no new round after this time (ms), to keep the demo short on a busy machine too. */
const MAX_OPERATION_MS = 400;

/** Opens a card, connects it to card B, and runs all operations. */
export async function runActive({ onBegin, ...options }: ActiveOptions, remote: Passive, onRow: (row: Row) => void) {
  const local = await openPeer(options);
  try {
    const receiveMr = await local.pd.regMr(REGION_BYTES);
    const { endpoint, memory: remoteMemory } = await remote.open();
    const own = local.qp.endpoint(endpoint.gid);
    await Promise.all([local.qp.connect(endpoint, { access: ALL }), remote.connect(own)]);
    const completions = new Completions(local.cq, { spinMs: options.spinMs, idleMs: IDLE_MS });
    for (const task of TASKS) {
      onBegin(task);
      onRow(await perform({ local, receiveMr, remoteMemory, completions, remote }, task));
    }
    await remote.close();
  } finally {
    await local.device.close({ force: true });
  }
}

interface Setup {
  readonly local: Peer;
  readonly receiveMr: Mr;
  readonly remoteMemory: RemoteMemory;
  readonly completions: Completions;
  readonly remote: Passive;
}

async function perform(setup: Setup, task: Task): Promise<Row> {
  const { local, remote } = setup;
  const { size, inFlight, rounds } = task;
  const begin = performance.now();
  const times: number[] = [];
  const wrong: string[] = [];
  let seconds = 0;
  let retransmits = 0;
  for (let round = 0; round < rounds && performance.now() - begin < MAX_OPERATION_MS; round++) {
    const before = local.qp.counters().retransmits ?? 0;
    await remote.begin(task);
    const measured = await new Round(setup, task).measure();
    const verdict = await remote.end(task);
    times.push(...measured.times);
    wrong.push(measured.wrong, verdict.wrong);
    seconds += measured.seconds;
    retransmits += verdict.retransmits + (local.qp.counters().retransmits ?? 0) - before;
  }
  const bytes = times.length * size * (task.kind === 'SEND' ? 2 : 1);
  return {
    link: local.device.query().link.kind,
    operation: task.name,
    size,
    count: times.length,
    inFlight,
    latency: latencyOf(Float64Array.from(times)),
    gbitPerSecond: (bytes * 8) / seconds / 1e9,
    retransmits,
    verifiedBytes: bytes,
    wrong: [...new Set(wrong)].filter(Boolean).join('; '),
  };
}

interface Measured {
  readonly times: Float64Array;
  readonly seconds: number;
  readonly wrong: string;
}

/** A round of an operation: from the first post to the verification. */
class Round {
  readonly #times: Float64Array;
  readonly #remoteAddr: number;
  private readonly local: Peer;
  private readonly receiveMr: Mr;
  private readonly remote: RemoteMemory;
  private readonly completions: Completions;

  constructor(
    { local, receiveMr, remoteMemory, completions }: Setup,
    private readonly operation: Operation,
  ) {
    this.local = local;
    this.receiveMr = receiveMr;
    this.remote = remoteMemory;
    this.completions = completions;
    this.#times = new Float64Array(operation.count);
    this.#remoteAddr = Number(remoteMemory.addr);
  }

  async measure(): Promise<Measured> {
    const { operation, receiveMr, local } = this;
    const pattern = isAtomic(operation) ? Buffer.alloc(0) : patternOf(operation);
    receiveMr.buffer.fill(0, 0, pattern.length);
    if (operation.kind !== 'RDMA_READ') pattern.copy(local.region.buffer);
    const begin = performance.now();
    let wrong = '';
    if (isAtomic(operation)) wrong = await this.#atomics();
    else if (operation.kind === 'SEND') await this.#pingpong();
    else await this.#stream();
    const seconds = (performance.now() - begin) / 1000;
    if (operation.kind === 'SEND' || operation.kind === 'RDMA_READ')
      wrong = difference('what came back', receiveMr.buffer.subarray(0, pattern.length), pattern);
    return { times: this.#times, seconds, wrong };
  }

  async #pingpong(): Promise<void> {
    const { qp, region } = this.local;
    const { size, count } = this.operation;
    for (let i = 0; i < count; i++) {
      const start = performance.now();
      qp.postRecv({ sgList: this.receiveMr.sge(i * size, size) });
      qp.postSend({ opcode: 'SEND', sgList: region.sge(i * size, size) });
      throwIfFailed(await this.completions.next());
      throwIfFailed(await this.completions.next());
      this.#times[i] = performance.now() - start;
    }
  }

  /** Completions come in the order of the posts. */
  async #stream(): Promise<void> {
    const { count, inFlight } = this.operation;
    for (let posted = 0, done = 0; done < count; done++) {
      for (; posted < count && posted - done < inFlight; posted++) {
        this.#times[posted] = performance.now();
        this.local.qp.postSend(this.#request(posted));
      }
      throwIfFailed(await this.completions.next());
      this.#times[done] = performance.now() - (this.#times[done] as number);
    }
  }

  #request(i: number): SendWr {
    const { kind, size } = this.operation;
    const remote = { remoteAddr: this.#remoteAddr + i * size, rkey: this.remote.rkey };
    if (kind === 'RDMA_READ') return { opcode: kind, sgList: this.receiveMr.sge(i * size, size), ...remote };
    return { opcode: 'RDMA_WRITE', sgList: this.local.region.sge(i * size, size), ...remote };
  }

  /** @returns the mistakes in the values that the atomics returned */
  async #atomics(): Promise<string> {
    const { kind, count } = this.operation;
    const plan = new AtomicPlan(this.operation);
    const target = { sgList: this.receiveMr.sge(0, 8), remoteAddr: this.#remoteAddr, rkey: this.remote.rkey };
    let value = plan.initial;
    let misses = 0;
    for (let i = 0; i < count; i++) {
      const operand = plan.operand(i);
      const start = performance.now();
      if (kind === 'ATOMIC_CMP_AND_SWP') {
        const compareAdd = plan.isMiss(i) ? BigInt.asUintN(64, ~value) : value;
        this.local.qp.postSend({ opcode: kind, ...target, compareAdd, swap: operand });
      } else {
        this.local.qp.postSend({ opcode: 'ATOMIC_FETCH_AND_ADD', ...target, compareAdd: operand });
      }
      throwIfFailed(await this.completions.next());
      this.#times[i] = performance.now() - start;
      if (this.receiveMr.buffer.readBigUInt64LE() !== value) misses++;
      value = plan.after(value, i);
    }
    return misses === 0 ? '' : `${misses} of ${count} returned values were wrong`;
  }
}
