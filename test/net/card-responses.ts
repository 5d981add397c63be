/** The card as responder to an adapter: all operations in random order, and what they must have done in the end. */
import { flowOf } from '../../src/probe/packet/packets.js';
import { AdapterLink, type Trouble } from '../kit/adapter/link.js';
import { AdapterRequester, type Operation } from '../kit/adapter/requester.js';
import { Random } from '../kit/random.js';
import { type Completion, type Region, Rig, type RigQp } from '../kit/rig.js';

export interface Run {
  readonly seed: number;
  readonly mtu: number;
  readonly ops: number;
  readonly trouble: Trouble;
  readonly psn?: number;
  readonly credits?: boolean;
  /** The card keeps requests that arrive ahead of a gap. Default: it drops them. */
  readonly keeps?: boolean;
  /** The adapter requests as rxe does. Default: as others. */
  readonly rxe?: boolean;
}

/** Zones of the card's memory: READs, atomics, WRITEs. */
const READABLE = 1 << 14;
const WORDS = 8;
const VA = 0x7000_0000_0000n;
/** RNR timer code: 20 us. */
const RNR_TIMER = 2;

export interface Outcome {
  readonly counts: AdapterRequester['counts'];
  readonly counters: Readonly<Record<string, number>>;
}

/** Runs all operations. @throws Violation when the card breaks a rule, Error when anything went wrong */
export async function respondTo(run: Run): Promise<Outcome> {
  const random = new Random(run.seed);
  const rig = await Rig.create(run.seed & 255);
  if (!run.keeps) rig.x.setReorderWindow(0);
  const work = new Work(run, rig, random.fork());
  const qp = rig.qp({ recvWr: 16, cqe: 64, flowControl: run.credits ?? false });
  const rxe = run.rxe ?? false;
  const there = flowOf({ destQp: qp.qpn, trafficClass: 2, migReq: !rxe });
  const psn = run.psn ?? random.below(2 ** 24);
  const ends = { destQpn: there.srcQp, sqPsn: random.below(2 ** 24), rqPsn: psn, trafficClass: 2 };
  qp.connect({ ...ends, mtu: run.mtu, maxDestRdAtomic: 16, minRnrTimer: RNR_TIMER });
  const adapter = new AdapterRequester({
    there,
    mtu: run.mtu,
    psn,
    random: random.fork(),
    operations: work.operations,
    rnrTimer: RNR_TIMER,
    posted: () => work.posted,
    keeps: run.keeps ?? false,
    rxe,
  });
  const link = new AdapterLink(rig, adapter, random.fork(), run.trouble);
  link.application = () => work.step(qp, link.now);
  try {
    adapter.expire(link.now);
    link.run();
    if (!adapter.isDone) throw new Error('requests are left');
    work.check(adapter.results());
  } catch (cause) {
    const decisions = rig.decisions(qp.qpn).slice(-30).join('\n');
    throw new Error(`${(cause as Error).message} (${JSON.stringify(run)}, at ${link.now} ns)\n${decisions}`, { cause });
  }
  return { counts: adapter.counts, counters: qp.counters() };
}

/** The operations of a run, and what each must have done. */
class Work {
  readonly operations: Operation[] = [];
  /** Receives posted so far. */
  posted = 0;
  readonly #memory: Region;
  readonly #buffers: Region;
  readonly #expected: Uint8Array;
  readonly #received: Completion[] = [];
  readonly #messages: Operation[] = [];
  readonly #results: (Uint8Array | undefined)[] = [];
  #writeAt = READABLE + WORDS * 8;
  #nextSupply = 0;

  constructor(
    readonly run: Run,
    rig: Rig,
    readonly random: Random,
  ) {
    this.#memory = rig.region(READABLE + WORDS * 8 + run.ops * 5 * run.mtu, 15, VA);
    this.#memory.bytes.set(random.bytes(READABLE));
    this.#buffers = rig.region(run.ops * 5 * run.mtu);
    this.#expected = this.#memory.bytes.slice();
    for (let i = 0; i < run.ops; i++) this.#draw();
  }

  /** Posts receives, late and few at a time. */
  step(qp: RigQp, now: number): boolean {
    const before = this.#received.length;
    this.#received.push(...qp.poll());
    const size = 5 * this.run.mtu;
    if (this.posted - this.#received.length < 3 && now >= this.#nextSupply) {
      for (let n = 1 + this.random.below(6); n > 0 && this.posted < this.#messages.length; n--) {
        const errno = qp.recv(this.posted, [this.#buffers.piece(this.posted * size, size)]);
        if (errno !== 'OK') throw new Error(`posting a receive: ${errno}`);
        this.posted++;
      }
      this.#nextSupply = now + this.random.below(30_000);
    }
    return this.#received.length !== before;
  }

  check(results: readonly Uint8Array[]): void {
    if (Buffer.compare(this.#memory.bytes, this.#expected) !== 0) throw new Error("the card's memory is wrong");
    for (const [i, wanted] of this.#results.entries())
      if (wanted !== undefined && Buffer.compare(results[i] as Uint8Array, wanted) !== 0)
        throw new Error(`the result of request ${i} is wrong`);
    if (this.#received.length !== this.#messages.length) throw new Error(`${this.#received.length} messages arrived`);
    for (const [i, wc] of this.#received.entries()) this.#checkMessage(wc, i);
  }

  #checkMessage(wc: Completion, i: number): void {
    const message = this.#messages[i] as Operation & { kind: 'SEND' | 'WRITE' };
    const { data, imm } = message;
    const at = i * 5 * this.run.mtu;
    const found = this.#buffers.bytes.subarray(at, at + (message.kind === 'SEND' ? data.length : 0));
    const isSame = message.kind === 'WRITE' || Buffer.compare(found, data) === 0;
    const isImm = imm === undefined || Buffer.from(Uint32Array.of(wc.imm).buffer).readUInt32BE() === imm;
    if (wc.status !== 'SUCCESS' || wc.wrId !== i || wc.byteLen !== data.length || !isSame || !isImm)
      throw new Error(`message ${i} is wrong: ${JSON.stringify(wc)}`);
  }

  #draw(): void {
    const { random } = this;
    const kind = random.pick(['SEND', 'SEND', 'WRITE', 'WRITE', 'READ', 'READ', 'COMPARE_SWAP', 'FETCH_ADD'] as const);
    const most = random.chance(0.5) ? this.run.mtu : 5 * this.run.mtu;
    const length = random.chance(0.05) ? 0 : random.between(1, most + 1);
    if (kind === 'READ') this.#drawRead(Math.min(length, READABLE));
    else if (kind === 'COMPARE_SWAP' || kind === 'FETCH_ADD') this.#drawAtomic(kind);
    else this.#drawMessage(kind, length);
  }

  #drawMessage(kind: 'SEND' | 'WRITE', length: number): void {
    const { random } = this;
    const data = random.bytes(length);
    const imm = random.chance(0.4) ? { imm: random.u32() } : {};
    const operation: Operation =
      kind === 'SEND' ? { kind, data, ...imm } : { kind, data, ...imm, at: this.#write(data) };
    this.operations.push(operation);
    this.#results.push(undefined);
    if (kind === 'SEND' || 'imm' in imm) this.#messages.push(operation);
  }

  #write(data: Uint8Array): { va: bigint; rkey: number } {
    this.#expected.set(data, this.#writeAt);
    const at = this.#at(this.#writeAt);
    this.#writeAt += data.length;
    return at;
  }

  #drawRead(length: number): void {
    const from = this.random.below(READABLE - length + 1);
    this.operations.push({ kind: 'READ', length, at: this.#at(from) });
    this.#results.push(this.#expected.slice(from, from + length));
  }

  #drawAtomic(kind: 'COMPARE_SWAP' | 'FETCH_ADD'): void {
    const { random } = this;
    const from = READABLE + 8 * random.below(WORDS);
    const view = new DataView(this.#expected.buffer, from, 8);
    const original = view.getBigUint64(0, true);
    this.#results.push(this.#expected.slice(from, from + 8));
    const [value, compare] = [BigInt(random.u32()), random.chance(0.5) ? original : 1n];
    const at = this.#at(from);
    if (kind === 'FETCH_ADD') this.operations.push({ kind, at, add: value });
    else this.operations.push({ kind, at, compare, swap: value });
    if (kind === 'FETCH_ADD') view.setBigUint64(0, BigInt.asUintN(64, original + value), true);
    else if (original === compare) view.setBigUint64(0, value, true);
  }

  #at(offset: number): { va: bigint; rkey: number } {
    return { va: VA + BigInt(offset), rkey: this.#memory.rkey };
  }
}
