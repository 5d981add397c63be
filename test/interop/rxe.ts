/** rxe's end of a connection, by rxpeer. */
import {
  type Completion,
  END_DEFAULTS,
  type End,
  type EndOptions,
  type FullOptions,
  type Introduction,
  MW_BIND,
  type Piece,
  type Region,
  type Request,
} from './end.js';
import { GUEST_IS } from './guest/differences.js';
import type { Peer, PeerMr, PeerQp, PeerWc } from './guest/peer.js';

export class RxeEnd implements End {
  readonly name = 'rxe';
  readonly #remote: { to: Introduction | undefined } = { to: undefined };

  static async create(peer: Peer, options: EndOptions = {}): Promise<RxeEnd> {
    const all: FullOptions = { ...END_DEFAULTS, ...options };
    const { sge, inline, access, psn, sendWr: sendwr } = all;
    // the operations of the extended posting interface exist for RC only
    const kind = all.type === 'RC' ? ({ ext: 1 } as const) : ({ type: 'uc' } as const);
    const mr = await peer.reg(all.size, all.regionAccess | MW_BIND);
    const qp = await peer.qp({
      ...kind,
      sendwr,
      sendsge: sge,
      recvsge: sge,
      inline,
      access,
      ...(psn !== undefined && { psn }),
    });
    return new RxeEnd(peer, qp, mr, all);
  }

  private constructor(
    readonly peer: Peer,
    readonly qp: PeerQp,
    readonly mr: PeerMr,
    readonly options: FullOptions,
  ) {}

  get size(): number {
    return this.mr.size;
  }

  get introduction(): Introduction {
    const { addr, rkey } = this.mr;
    return { qpn: this.qp.qpn, psn: this.qp.psn, gid: this.peer.gid, addr, rkey };
  }

  async connect(to: Introduction): Promise<void> {
    const { mtu, timeout, retry, rnr, minRnr, rdAtomic, destRdAtomic, trafficClass: tclass } = this.options;
    this.#remote.to = to;
    await this.qp.connect({
      ...{ dqpn: to.qpn, dpsn: to.psn, dgid: to.gid, mtu, timeout, retry, rnr, tclass },
      ...{ minrnr: minRnr, rdatomic: rdAtomic, destrdatomic: destRdAtomic },
    });
  }

  async fill(seed: number): Promise<void> {
    await this.peer.fill(this.mr, 0, this.size, seed);
  }

  async put(offset: number, bytes: Uint8Array): Promise<void> {
    await this.peer.write(this.mr, offset, bytes);
  }

  async get(offset: number, length: number): Promise<Buffer> {
    return this.peer.read(this.mr, offset, length);
  }

  async crc(): Promise<number> {
    return this.peer.crc(this.mr, 0, this.size);
  }

  async postRecv(pieces: readonly Piece[] = [], id = 0): Promise<void> {
    await this.qp.postRecv(this.#pieces(pieces), id);
  }

  async postSend(request: Request): Promise<void> {
    const { op, id = 0, pieces = [], offset, at, rkey, imm, inv, compare, swap, add } = request;
    const to = this.#remote.to as Introduction;
    const flags = (['inline', 'fence', 'solicited'] as const).filter((flag) => request[flag]);
    await this.qp.postSend({
      ...{ op, id, sge: this.#pieces(pieces), flags: ['signaled', ...flags] },
      ...((at !== undefined || offset !== undefined) && {
        raddr: at ?? to.addr + BigInt(offset ?? 0),
        rkey: rkey ?? to.rkey,
      }),
      ...(imm !== undefined && { imm }),
      ...(inv !== undefined && { inv }),
      ...(compare !== undefined && { compare }),
      ...(swap !== undefined && { swap }),
      ...(add !== undefined && { add }),
    });
  }

  async completions(count: number, ms = 20_000): Promise<Completion[]> {
    const found = await this.qp.poll(count, ms);
    if (found.length === count) return found.map(meaning);
    throw new Error(`rxe: ${found.length} of ${count} completions within ${ms} ms: ${JSON.stringify(found)}`);
  }

  async state(): Promise<number> {
    return (await this.qp.state()).state;
  }

  async fail(): Promise<void> {
    await this.qp.modify('err');
  }

  async register(size: number, access: number): Promise<Region> {
    return this.peer.reg(size, access);
  }

  async invalidatable(access: number): Promise<Region> {
    const offset = this.size - 4096;
    const rkey = await this.qp.bind(this.mr, offset, 4096, access);
    const [bound] = await this.completions(1);
    if (bound?.status !== 0) throw new Error(`rxe: a memory window could not be bound: ${JSON.stringify(bound)}`);
    return { addr: this.mr.addr + BigInt(offset), rkey };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.qp.destroy().catch(() => {});
    await this.peer.dereg(this.mr).catch(() => {});
  }

  #pieces(pieces: readonly Piece[]) {
    return pieces.map(([off, len]) => ({ mr: this.mr, off, len }));
  }
}

/** Bit of wc_flags for immediate data. */
const WITH_IMM = 2;
const RECV = 128;

function meaning({ id, status, opcode, byteLen, flags, imm, inv }: PeerWc): Completion {
  if (status !== 0) return { id, status };
  const isReceive = (opcode & RECV) !== 0;
  return {
    ...{ id, status, opcode },
    // byte_len of a send completion is undefined
    ...(isReceive && { byteLen }),
    ...(flags & WITH_IMM && { imm }),
    ...(flags & GUEST_IS.withInv && { inv }),
  };
}
