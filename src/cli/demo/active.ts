/** Card A: does the operations one after the other and takes the time. */
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
import { openParty, type Party, type PartyOptions } from './party.js';
import type { Passive } from './passive.js';

/** One line of the table. */
export interface Row {
  readonly link: string;
  readonly operation: string;
  readonly size: number;
  readonly count: number;
  readonly inFlight: number;
  /** Microseconds from posting to the completion, of SEND to that of the answer. */
  readonly latency: Latency;
  readonly gbitPerSecond: number;
  /** Packets that either end has sent again. */
  readonly retransmits: number;
  /** Bytes that were compared with what they should be. */
  readonly verifiedBytes: number;
  /** What was wrong with them; empty when nothing was. */
  readonly wrong: string;
}

export interface ActiveOptions extends PartyOptions {
  /** Is told before each operation. */
  readonly onBegin: (operation: Operation) => void;
}

const ALL = ['remoteWrite', 'remoteRead', 'remoteAtomic'] as const;
const IDLE_MS = 10_000;
/** No round of an operation begins later than so (ms): the demo is to be over soon, on a busy machine too. */
const BUDGET_MS = 400;

/** Opens a card, connects it to card B, and does everything. */
export async function runActive({ onBegin, ...options }: ActiveOptions, peer: Passive, onRow: (row: Row) => void) {
  const party = await openParty(options);
  try {
    const landing = await party.pd.regMr(REGION_BYTES);
    const { endpoint, memory } = await peer.open();
    const own = party.qp.endpoint(endpoint.gid);
    await Promise.all([party.qp.connect(endpoint, { access: ALL }), peer.connect(own)]);
    const completions = new Completions(party.cq, { spinMs: options.spinMs, idleMs: IDLE_MS });
    for (const task of TASKS) {
      onBegin(task);
      onRow(await perform({ party, landing, memory, completions, peer }, task));
    }
    await peer.close();
  } finally {
    await party.device.close({ force: true });
  }
}

interface Stage {
  readonly party: Party;
  readonly landing: Mr;
  readonly memory: RemoteMemory;
  readonly completions: Completions;
  readonly peer: Passive;
}

async function perform(stage: Stage, task: Task): Promise<Row> {
  const { party, peer } = stage;
  const { size, inFlight, rounds } = task;
  const begin = performance.now();
  const times: number[] = [];
  const wrong: string[] = [];
  let seconds = 0;
  let retransmits = 0;
  for (let round = 0; round < rounds && performance.now() - begin < BUDGET_MS; round++) {
    const before = party.qp.counters().retransmits ?? 0;
    await peer.begin(task);
    const measured = await new Run(stage, task).measure();
    const verdict = await peer.end(task);
    times.push(...measured.times);
    wrong.push(measured.wrong, verdict.wrong);
    seconds += measured.seconds;
    retransmits += verdict.retransmits + (party.qp.counters().retransmits ?? 0) - before;
  }
  const bytes = times.length * size * (task.kind === 'SEND' ? 2 : 1);
  return {
    link: party.device.query().link.kind,
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

/** A round of an operation: from the first post to the look at what it has brought. */
class Run {
  readonly #times: Float64Array;
  readonly #remoteAddr: number;
  private readonly party: Party;
  private readonly landing: Mr;
  private readonly remote: RemoteMemory;
  private readonly completions: Completions;

  constructor(
    { party, landing, memory, completions }: Stage,
    private readonly operation: Operation,
  ) {
    this.party = party;
    this.landing = landing;
    this.remote = memory;
    this.completions = completions;
    this.#times = new Float64Array(operation.count);
    this.#remoteAddr = Number(memory.addr);
  }

  async measure(): Promise<Measured> {
    const { operation, landing, party } = this;
    const pattern = isAtomic(operation) ? Buffer.alloc(0) : patternOf(operation);
    landing.buffer.fill(0, 0, pattern.length);
    if (operation.kind !== 'RDMA_READ') pattern.copy(party.region.buffer);
    const begin = performance.now();
    let wrong = '';
    if (isAtomic(operation)) wrong = await this.#atomics();
    else if (operation.kind === 'SEND') await this.#pingpong();
    else await this.#stream();
    const seconds = (performance.now() - begin) / 1000;
    if (operation.kind === 'SEND' || operation.kind === 'RDMA_READ')
      wrong = difference('what came back', landing.buffer.subarray(0, pattern.length), pattern);
    return { times: this.#times, seconds, wrong };
  }

  async #pingpong(): Promise<void> {
    const { qp, region } = this.party;
    const { size, count } = this.operation;
    for (let i = 0; i < count; i++) {
      const start = performance.now();
      qp.postRecv({ sgList: this.landing.slice(i * size, size) });
      qp.postSend({ opcode: 'SEND', sgList: region.slice(i * size, size) });
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
        this.party.qp.postSend(this.#request(posted));
      }
      throwIfFailed(await this.completions.next());
      this.#times[done] = performance.now() - (this.#times[done] as number);
    }
  }

  #request(i: number): SendWr {
    const { kind, size } = this.operation;
    const remote = { remoteAddr: this.#remoteAddr + i * size, rkey: this.remote.rkey };
    if (kind === 'RDMA_READ') return { opcode: kind, sgList: this.landing.slice(i * size, size), ...remote };
    return { opcode: 'RDMA_WRITE', sgList: this.party.region.slice(i * size, size), ...remote };
  }

  /** @returns what was wrong with the old values that came back */
  async #atomics(): Promise<string> {
    const { kind, count } = this.operation;
    const plan = new AtomicPlan(this.operation);
    const target = { sgList: this.landing.slice(0, 8), remoteAddr: this.#remoteAddr, rkey: this.remote.rkey };
    let value = plan.initial;
    let misses = 0;
    for (let i = 0; i < count; i++) {
      const operand = plan.operand(i);
      const start = performance.now();
      if (kind === 'ATOMIC_CMP_AND_SWP') {
        const compareAdd = plan.isMiss(i) ? BigInt.asUintN(64, ~value) : value;
        this.party.qp.postSend({ opcode: kind, ...target, compareAdd, swap: operand });
      } else {
        this.party.qp.postSend({ opcode: 'ATOMIC_FETCH_AND_ADD', ...target, compareAdd: operand });
      }
      throwIfFailed(await this.completions.next());
      this.#times[i] = performance.now() - start;
      if (this.landing.buffer.readBigUInt64LE() !== value) misses++;
      value = plan.after(value, i);
    }
    return misses === 0 ? '' : `${misses} of ${count} old values were wrong`;
  }
}
