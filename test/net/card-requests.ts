/** The card as requester of an adapter: all operations in random order, and what they must have done in the end. */
import { flowOf } from '../../src/probe/packet/packets.js';
import { AdapterLink, type Trouble } from '../kit/adapter/link.js';
import { AdapterResponder, type Received, type ResponderOptions } from '../kit/adapter/responder.js';
import { Random } from '../kit/random.js';
import { type Region, Rig, type RigQp } from '../kit/rig.js';

export interface Run {
  readonly seed: number;
  readonly mtu: number;
  readonly ops: number;
  readonly trouble: Trouble;
  readonly psn?: number;
  readonly credits?: boolean;
  readonly adapter?: Partial<ResponderOptions>;
}

/** Zones of the adapter's memory: READs, atomics, WRITEs. */
const READABLE = 1 << 16;
const WORDS = 8;
const VA = 0x7000_0000_0000n;
const RKEY = 0x1234;
const KINDS = [
  'SEND',
  'SEND_WITH_IMM',
  'SEND_WITH_INV',
  'RDMA_WRITE',
  'RDMA_WRITE_WITH_IMM',
  'RDMA_READ',
  'RDMA_READ',
  'ATOMIC_CMP_AND_SWP',
  'ATOMIC_FETCH_AND_ADD',
] as const;

/** The outcome: what the adapter and the card's counters say of the run. */
export interface Outcome {
  readonly link: AdapterLink;
  readonly counts: AdapterResponder['counts'];
  readonly counters: Readonly<Record<string, number>>;
}

/** Runs all operations. @throws Violation when the card breaks a rule, Error when anything went wrong */
export async function requestFrom(run: Run): Promise<Outcome> {
  const random = new Random(run.seed);
  const rig = await Rig.create(run.seed & 255);
  const writable = run.ops * 5 * run.mtu;
  const memory = new Uint8Array(READABLE + WORDS * 8 + writable);
  memory.set(random.bytes(READABLE));
  const qp = rig.qp({ sendWr: 32, flowControl: run.credits ?? false });
  const there = flowOf({ destQp: qp.qpn, trafficClass: 2 });
  const psn = run.psn ?? random.below(2 ** 24);
  const options = { there, mtu: run.mtu, psn, random: random.fork(), memory, va: VA, rkey: RKEY };
  const adapter = new AdapterResponder({ ...options, credits: run.credits ?? false, ...run.adapter });
  const ends = { destQpn: there.srcQp, sqPsn: psn, rqPsn: random.below(2 ** 24), trafficClass: 2 };
  qp.connect({ ...ends, mtu: run.mtu, timeout: 8, maxRdAtomic: 16 });
  const link = new AdapterLink(rig, adapter, random.fork(), run.trouble);
  const work = new Work(run, rig, qp, memory, random.fork());
  let resupply = 0;
  link.application = () => {
    const moved = work.step();
    // receives come late and few at a time
    if (adapter.receives < 3 && link.now >= resupply) {
      adapter.postReceives(1 + random.below(6));
      resupply = link.now + random.below(30_000);
    }
    return moved;
  };
  try {
    link.run();
    work.check(adapter.received, memory);
  } catch (cause) {
    const decisions = rig.decisions(qp.qpn).slice(-30).join('\n');
    throw new Error(`${(cause as Error).message} (${JSON.stringify(run)}, at ${link.now} ns)\n${decisions}`, { cause });
  }
  return { link, counts: adapter.counts, counters: qp.counters() };
}

/** The operations of a run, and what each must have done. */
class Work {
  readonly #own: Region;
  /** The adapter's memory as it must be in the end. */
  readonly #expected: Uint8Array;
  readonly #received: Received[] = [];
  /** Bytes that operations must leave in the card's own memory. */
  readonly #results: [at: number, bytes: Uint8Array][] = [];
  #posted = 0;
  #done = 0;
  #at = 0;
  #writeAt = READABLE + WORDS * 8;

  constructor(
    readonly run: Run,
    readonly rig: Rig,
    readonly qp: RigQp,
    memory: Uint8Array,
    readonly random: Random,
  ) {
    this.#own = rig.region(run.ops * (5 * run.mtu + 8));
    const words = new Uint32Array(this.#own.bytes.buffer, this.#own.bytes.byteOffset, this.#own.length >>> 2);
    for (let i = 0; i < words.length; i++) words[i] = random.u32();
    this.#expected = memory.slice();
  }

  step(): boolean {
    const before = this.#posted + this.#done;
    for (const { wrId, status } of this.qp.poll()) {
      if (status !== 'SUCCESS' || wrId !== this.#done) throw new Error(`request ${wrId} of ${this.#done}: ${status}`);
      this.#done++;
    }
    while (this.#posted < this.run.ops && this.#posted - this.#done < 24) this.#post();
    return this.#posted + this.#done !== before;
  }

  check(received: readonly Received[], memory: Uint8Array): void {
    if (this.#done !== this.run.ops) throw new Error(`${this.#done} of ${this.run.ops} requests are done`);
    if (Buffer.compare(memory, this.#expected) !== 0) throw new Error("the adapter's memory is wrong");
    if (received.length !== this.#received.length) throw new Error(`${received.length} messages arrived`);
    for (const [i, { data, imm, invalidated }] of received.entries()) {
      const wanted = this.#received[i] as Received;
      const isSame = Buffer.compare(data, wanted.data) === 0;
      if (!isSame || imm !== wanted.imm || invalidated !== wanted.invalidated) throw new Error(`message ${i} is wrong`);
    }
    for (const [at, bytes] of this.#results)
      if (Buffer.compare(this.#own.bytes.subarray(at, at + bytes.length), bytes) !== 0)
        throw new Error(`the result at ${at} is wrong`);
  }

  #post(): void {
    const { random } = this;
    const opcode = random.pick(KINDS);
    const isAtomic = opcode.startsWith('ATOMIC');
    const most = random.chance(0.5) ? this.run.mtu : 5 * this.run.mtu;
    const length = isAtomic ? 8 : random.chance(0.05) ? 0 : random.between(1, most + 1);
    const at = this.#at;
    this.#at += (length + 7) & ~7;
    const base = { opcode, wrId: this.#posted++, pieces: [this.#own.piece(at, length)] };
    const value = random.u32();
    const imm = opcode.endsWith('_IMM') ? value : undefined;
    const data = this.#own.bytes.slice(at, at + length);
    const target = isAtomic ? READABLE + 8 * random.below(WORDS) : this.#target(opcode, data);
    const remote = { va: VA + BigInt(target), rkey: RKEY };
    let errno: string;
    if (isAtomic) errno = this.qp.send({ ...base, remote, ...this.#atomic(opcode, target, at) });
    else if (opcode.startsWith('RDMA'))
      errno = this.qp.send({ ...base, remote, ...(imm !== undefined && { imm: swapped(imm) }) });
    else errno = this.qp.send({ ...base, ...(imm !== undefined ? { imm: swapped(imm) } : { imm: value }) });
    if (errno !== 'OK') throw new Error(`posting ${opcode}: ${errno}`);
    const wasSent = opcode.startsWith('SEND');
    if (wasSent || opcode === 'RDMA_WRITE_WITH_IMM')
      this.#received.push({
        data: wasSent ? data : new Uint8Array(0),
        ...(imm !== undefined && { imm }),
        ...(opcode === 'SEND_WITH_INV' && { invalidated: value }),
      });
    if (opcode === 'RDMA_READ') this.#results.push([at, this.#expected.slice(target, target + length)]);
  }

  /** The offset of a WRITE, each at a place of its own, or of a READ. */
  #target(opcode: string, data: Uint8Array): number {
    if (opcode === 'RDMA_READ') return this.random.below(READABLE - data.length);
    const at = this.#writeAt;
    if (!opcode.startsWith('RDMA_WRITE')) return at;
    this.#expected.set(data, at);
    this.#writeAt += data.length;
    return at;
  }

  #atomic(opcode: string, target: number, at: number): { compareAdd: bigint; swap: bigint } {
    const view = new DataView(this.#expected.buffer, target, 8);
    const original = view.getBigUint64(0, true);
    const [compareAdd, swap] = [
      this.random.chance(0.5) ? original : BigInt(this.random.u32()),
      BigInt(this.random.u32()),
    ];
    this.#results.push([at, this.#expected.slice(target, target + 8)]);
    if (opcode === 'ATOMIC_FETCH_AND_ADD') view.setBigUint64(0, BigInt.asUintN(64, original + compareAdd), true);
    else if (original === compareAdd) view.setBigUint64(0, swap, true);
    return { compareAdd, swap };
  }
}

/** An immediate as the rig takes it, from its number on the wire. */
function swapped(imm: number): number {
  return Buffer.from(Uint32Array.of(imm).buffer).readUInt32BE();
}
