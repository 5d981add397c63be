/**
 * Calls of the verbs in random order with random arguments, right and wrong ones. An input is the seed of one call.
 * Each call succeeds, or fails with an error that has a code. At the end of each epoch, new queue pairs transfer a
 * message.
 */
import {
  type Cq,
  type Device,
  MemoryHub,
  type Mr,
  type Pd,
  type Qp,
  type Srq,
  throwIfFailed,
} from '../../src/index.js';
import { Random } from '../kit/random.js';
import { ALL, endOn, openOn, pattern } from '../verbs/pair.js';
import type { FuzzTarget, Session } from './fuzzer.js';

const WAIT = { timeout: 20_000 };
/** Most objects of a kind; then the call closes one instead. */
const MOST = 12;
const STATES = ['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'ERR', 'SQE', 'NONSENSE'];
const RIGHTS = [...ALL, 'mwBind', 'zeroBased', 'invalidate', 'flushGlobal'];
const OPCODES = [
  ...['SEND', 'SEND_WITH_IMM', 'SEND_WITH_INV', 'RDMA_WRITE', 'RDMA_WRITE_WITH_IMM', 'RDMA_READ', 'ATOMIC_WRITE'],
  ...['ATOMIC_CMP_AND_SWP', 'ATOMIC_FETCH_AND_ADD', 'FLUSH', 'LOCAL_INV', 'BIND_MW', 'REG_MR', 'NONSENSE'],
];

/** Thrown when there is no object to call. */
const NOTHING = Object.assign(new Error('no object'), { code: 'NOTHING' });

/** A closable object of the verbs. */
interface Closable {
  close(): Promise<void>;
}

class ApiSession implements Session {
  readonly #pds: Pd[] = [];
  readonly #cqs: Cq[] = [];
  readonly #mrs: Mr[] = [];
  readonly #qps: Qp[] = [];
  readonly #others: Closable[] = [];
  /** Buffers whose regions are perhaps closed. */
  readonly #buffers: Buffer[] = [];

  constructor(readonly devices: readonly [Device, Device]) {}

  next(random: Random): Uint8Array {
    return random.bytes(4);
  }

  async feed(inputs: readonly Uint8Array[]): Promise<void> {
    for (const input of inputs) {
      try {
        await this.#call(new Random(new DataView(input.buffer, input.byteOffset).getUint32(0)));
      } catch (error) {
        if (typeof (error as { code?: unknown }).code !== 'string') throw error;
      }
    }
    await new Promise((resolve) => setImmediate(resolve));
  }

  // biome-ignore lint/suspicious/noExplicitAny: wrong arguments are the point
  async #call(random: Random): Promise<any> {
    const device = random.pick(this.devices);
    const number = () => random.pick([0, 1, 2, 16, 100, 4096, 65536, -1, 1.5, 2 ** 31, 2 ** 32, 2 ** 53, Number.NaN]);
    const size = () => (random.chance(0.8) ? random.between(1, 200) : number());
    // biome-ignore lint/suspicious/noExplicitAny: as above
    const odd = (): any => random.pick([undefined, null, {}, [], 'text', number(), 5n, -1n, 2n ** 64n, () => 0]);
    // biome-ignore lint/suspicious/noExplicitAny: as above
    const or = (right: any): any => (random.chance(0.97) ? right : odd());
    // biome-ignore lint/suspicious/noExplicitAny: as above
    const one = (list: readonly any[]): any => or(list.length > 0 ? random.pick(list) : undefined);
    // an object to call: there is nothing to find out about calls of undefined
    const real = <T>(list: readonly T[]): T => {
      if (list.length === 0) throw NOTHING;
      return random.pick(list);
    };
    const rights = () => or(RIGHTS.filter(() => random.chance(0.4)));
    const kept = async <T extends Closable>(list: T[], made: Promise<T>) => {
      list.push(await made);
      if (list.length > MOST) await list.splice(random.below(list.length), 1)[0]?.close();
    };
    const sge = () => {
      const mr = one(this.#mrs);
      if (random.chance(0.2)) return { addr: number(), length: number(), lkey: random.u32() };
      return mr?.slice?.(random.below(mr.length), random.chance(0.7) ? undefined : number());
    };
    const sgList = () => or(random.pick([sge, () => [sge(), sge()], () => Buffer.alloc(random.below(300)), odd])());
    const remote = () => {
      const mr = one(this.#mrs);
      return { remoteAddr: or(mr?.iova), rkey: or(mr?.rkey), immData: or(random.u32()), invalidateRkey: mr?.rkey };
    };
    const wr = () => ({
      ...{ opcode: random.pick(OPCODES), wrId: or(random.below(9)), sgList: sgList(), ...remote() },
      ...(random.chance(0.3) && { compareAdd: or(1n), swap: or(2n), length: number(), fence: odd() }),
      ...(random.chance(0.2) && {
        inline: true,
        signaled: random.chance(0.5),
        remoteQpn: number(),
        remoteQkey: number(),
      }),
    });
    // biome-ignore lint/suspicious/noExplicitAny: as above
    const calls: (() => any)[] = [
      () => kept(this.#pds, device.allocPd()),
      () => kept(this.#cqs, device.createCq(or({ cqe: size() }))),
      () =>
        kept(
          this.#mrs,
          real(this.#pds).regMr(
            random.pick([size(), size() * 300, one(this.#mrs), one(this.#buffers)]),
            or({ access: rights() }),
          ),
        ),
      () =>
        kept(
          this.#others,
          random.pick([
            () => real(this.#pds).allocMw(or(random.pick([1, 2, 2, 3]))),
            () => real(this.#pds).allocMr(),
            () => real(this.#pds).createSrq(or({ maxWr: size() })),
          ])(),
        ),
      ...Array(2).fill(() =>
        kept(
          this.#qps,
          real(this.#pds).createQp({
            ...{ sendCq: one(this.#cqs), type: or(random.pick(['RC', 'RC', 'UC', 'UD'])) },
            ...(random.chance(0.5) && { maxSendWr: size(), maxRecvWr: size(), maxSendSge: random.below(5) }),
            ...(random.chance(0.2) && { srq: one(this.#others), maxInlineData: size() }),
          }),
        ),
      ),
      ...Array(3).fill(() => real(this.#qps).connect(or(real(this.#qps).endpoint()), or({ access: ALL }))),
      () =>
        real(this.#qps).modify(
          or({
            state: or(random.pick(STATES)),
            ...(random.chance(0.3) && { timeout: number(), rqPsn: number(), qkey: number() }),
          }),
        ),
      ...Array(6).fill(() => real(this.#qps).postSend(or(random.chance(0.8) ? wr() : [wr(), wr()]))),
      ...Array(3).fill(() => real(this.#qps).postRecv(or({ wrId: 1, sgList: sgList() }))),
      () => real(this.#cqs).poll(or(real(this.#cqs).createWcs(or(random.below(40))))),
      () => real(this.#cqs).resize(size()),
      () =>
        real(this.#mrs).rereg(
          or({ access: rights(), ...(random.chance(0.4) && { buffer: size(), pd: one(this.#pds) }) }),
        ),
      () => this.#buffers.push(real(this.#mrs).buffer),
      () => real(this.#buffers).fill(random.below(256)),
      () => (real(this.#others) as Partial<Srq>).postRecv?.({ sgList: sgList() }),
      () =>
        real(this.#qps).bindMw(
          one(this.#others),
          or({ mr: one(this.#mrs), addr: number(), length: number(), access: rights() }),
        ),
      () => [real(this.#qps).query(), real(this.#qps).counters(), device.query(), device.counters(), device.stat()],
      () => kept(this.#others, real(this.#pds).createAh(or({ address: or('10.0.0.2') }), WAIT)),
      () => {
        const list: Closable[] = random.pick<Closable[]>([this.#pds, this.#cqs, this.#mrs, this.#qps, this.#others]);
        const at = random.below(list.length + 1);
        return list[at]?.close().then(() => list.splice(at, 1));
      },
    ];
    await random.pick(calls)();
    this.#buffers.splice(0, this.#buffers.length - 8);
  }

  async check(): Promise<void> {
    // Children first; some are children of each other, so that it takes two rounds.
    for (const list of [this.#qps, this.#others, this.#mrs, this.#others, this.#cqs, this.#pds] as Closable[][])
      for (const object of list) await object.close().catch(() => {});
    const [one, other] = [await endOn(this.devices[0]), await endOn(this.devices[1])];
    await one.qp.connect(other.qp.endpoint(), { access: ALL });
    await other.qp.connect(one.qp.endpoint(), { access: ALL });
    const bytes = pattern(10_000);
    bytes.copy(one.mr.buffer, 0);
    other.qp.postRecv({ sgList: other.mr.sge(0, 10_000) });
    one.qp.postSend({ opcode: 'SEND', sgList: one.mr.sge(0, 10_000) });
    for (const { cq } of [one, other]) throwIfFailed(await cq.next(WAIT));
    if (!other.mr.buffer.subarray(0, 10_000).equals(bytes)) throw new Error('a message arrives with other bytes');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const device of this.devices) await device.close({ force: true });
  }
}

export const apiTarget: FuzzTarget = {
  name: 'api',
  about: 'calls of the verbs in random order with random arguments',
  batch: 32,
  batches: 60,
  async open(seed) {
    const hub = new MemoryHub({ coalesce: true });
    const device = (seed: number) => openOn(hub, { seed, mode: 'inline' });
    return new ApiSession([await device(seed), await device(seed ^ 1)]);
  },
};
