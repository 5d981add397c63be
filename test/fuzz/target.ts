/**
 * A card with live queue pairs of every type, regions and windows of every kind and posted receives: the target of
 * invalid frames.
 */

import { icrc } from '../../src/probe/packet/icrc.js';
import { datagram, encodeFrame, type Flow, flowOf, request, uc } from '../../src/probe/packet/packets.js';
import { openPort, QKEY } from '../kit/datagrams.js';
import { type QpSizes, type Region, Rig, type RigQp } from '../kit/rig.js';

const GUARD = 4096;
const RECEIVES = 32;
/** Region sizes: small, so that random addresses often hit their ends. */
const REGION = 8192;
export const MTU = 1024;
const INVALIDATE = 1 << 24;
const [MW_BIND, FLUSH_GLOBAL] = [16, 256];
const RXE_FLUSH_ICRC = 1;

/** The flow of a frame from the peer to the card. */
export const FROM_PEER: Flow = flowOf({ srcIp: '10.0.0.2', dstIp: '10.0.0.1' });

/** A range of addresses and its key. */
export interface Key {
  readonly iova: bigint;
  readonly length: number;
  readonly rkey: number;
}

export class Target {
  readonly names: readonly string[];
  /** The RC queue pair, which gets most frames. */
  qp!: RigQp;
  unreliable!: RigQp;
  datagrams!: RigQp;
  /** A window of type 2B over the middle of `open`, bound over `qp`. */
  window!: Key;
  readonly open: Region;
  readonly closed: Region;
  readonly landing: Region;
  readonly invalidatable: Region;
  now = 1_000_000;
  /** Options of the receive descriptors. */
  options = 0;
  readonly #dropFirst: number;
  readonly #counters: number;
  readonly #rcvd: number;
  readonly #guards: { at: number; copy: Buffer }[] = [];
  #deaths = 0;
  #mw = 0;

  private constructor(readonly rig: Rig) {
    const { x } = rig;
    this.names = Object.keys(x.Counter).filter((name) => Number.isNaN(Number(name)));
    this.#dropFirst = this.names.findIndex((name) => name.startsWith('drop_'));
    this.#rcvd = this.names.indexOf('rcvd_pkts');
    this.#counters = x.counters() >>> 2;
    // `open`, `closed` and `landing` lie between guards
    this.#guard();
    this.open = rig.region(REGION, 15 | MW_BIND | FLUSH_GLOBAL, 0x10000n);
    this.#guard();
    this.closed = rig.region(REGION, 1, 0x20000n);
    this.#guards.push({ at: this.closed.ptr, copy: Buffer.from(this.closed.bytes) });
    this.#guard();
    this.landing = rig.region(REGION, 1);
    this.#guard();
    this.invalidatable = rig.region(64, 15 | INVALIDATE, 0x30000n);
    openPort(rig, ['10.0.0.1', 'fd00::1'], MTU);
    this.connect();
  }

  static async create(memoryBytes = 8 << 20): Promise<Target> {
    const slots = { rxSlots: 32, rxSlotBytes: 68 << 10 };
    return new Target(await Rig.create(5, { memoryBytes, maxQp: 4, maxMr: 16, ...slots }));
  }

  get #all(): readonly RigQp[] {
    return [this.qp, this.unreliable, this.datagrams];
  }

  /** Number of times that the connection had to be replaced because a frame had ended it. */
  get deaths(): number {
    return this.#deaths;
  }

  #guard(): void {
    const at = this.rig.memory(GUARD);
    const bytes = this.rig.bytesAt(at, GUARD).fill(0xa5);
    this.#guards.push({ at, copy: Buffer.from(bytes) });
  }

  /** Fresh queue pairs in RTS, with requests of every kind in flight and receives posted. */
  connect(): void {
    if (this.qp) {
      this.rig.x.mwFree(this.#mw);
      for (const { handle, cq } of this.#all) {
        this.rig.x.qpDestroy(handle);
        this.rig.x.cqDestroy(cq);
      }
      this.#deaths++;
    }
    this.qp = this.#fresh('RC');
    this.unreliable = this.#fresh('UC');
    this.datagrams = this.#fresh('UD');
    this.rig.x.qpQuirks(this.qp.handle, RXE_FLUSH_ICRC);
    this.#bind();
    this.stock();
  }

  #fresh(type: NonNullable<QpSizes['type']>): RigQp {
    return this.rig.qp({ type, sendWr: 64, recvWr: 64, cqe: 512 }).connect({
      ...{ destQpn: FROM_PEER.srcQp, sqPsn: 0, rqPsn: 0, mtu: MTU, qkey: QKEY },
      ...{ localIp: [10, 0, 0, 1], remoteIp: [10, 0, 0, 2], access: type === 'RC' ? 15 | FLUSH_GLOBAL : 15 },
    });
  }

  #bind(): void {
    const { rig, open } = this;
    this.#mw = rig.window(2);
    const rkey = (rig.x.mrRkey(this.#mw) ^ 1) >>> 0;
    this.window = { iova: open.iova + 1024n, length: 2048, rkey };
    const bind = { rkey, lkey: open.lkey, va: this.window.iova, length: this.window.length, access: 14 | FLUSH_GLOBAL };
    this.qp.send({ opcode: 'BIND_MW', bind });
    rig.out(this.now);
    if (!rig.x.mrIsValid(this.#mw)) throw new Error('the window is not bound');
  }

  /** Keeps receives posted and requests in flight. */
  stock(): void {
    for (const qp of [this.qp, this.unreliable])
      for (let i = qp.attribute('RQ_PENDING'); i < RECEIVES; i++)
        qp.recv(i, [this.landing.piece(64 * i, 1500), this.landing.piece(64 * i + 1500, 600)]);
    // few, and of several sizes: there should also be too many datagrams, and too long ones
    for (let i = this.datagrams.attribute('RQ_PENDING'); i < 3; i++)
      this.datagrams.recv(i, [this.landing.piece(0, i === 1 ? 200 : 2000)]);
    if (this.qp.attribute('SQ_PENDING') > 4) return;
    const remote = { va: 0n, rkey: 1 };
    this.qp.send({ opcode: 'RDMA_READ', pieces: [this.landing.piece(4096, 3000)], remote });
    this.qp.send({ opcode: 'SEND', pieces: [this.landing.piece(0, 2000)] });
    this.qp.send({ opcode: 'ATOMIC_FETCH_AND_ADD', pieces: [this.landing.piece(4096, 8)], remote, compareAdd: 1n });
    this.qp.send({ opcode: 'RDMA_WRITE', pieces: [this.landing.piece(0, 100)], remote });
    this.qp.send({ opcode: 'FLUSH', remote, flush: { length: 100, what: 1 } });
    this.qp.send({ opcode: 'ATOMIC_WRITE', pieces: [this.landing.piece(0, 8)], remote });
  }

  /** The sum of rcvd_pkts and all drop counters: each frame adds exactly one. */
  counted(): number {
    const { u32 } = this.rig.card;
    let sum = u32[this.#counters + 2 * this.#rcvd] as number;
    for (let i = this.#dropFirst; i < this.names.length; i++) sum += u32[this.#counters + 2 * i] as number;
    return sum;
  }

  /**
   * Gives the card frames, all before its next transmission. @throws when it traps, or does not count each exactly once
   */
  feed(...frames: readonly Uint8Array[]): void {
    const before = this.counted();
    for (const bytes of frames) if (!this.rig.put(bytes, this.options)) throw new Error('the receive ring is full');
    let packets = 0;
    for (let taken = this.rig.x.rx(this.now, 16); taken > 0; taken = this.rig.x.rx(this.now, 16)) packets += taken;
    const counted = this.counted() - before;
    if (counted !== packets) throw new Error(`${packets} packets counted ${counted} times`);
    const isSuper = this.options >>> 17 !== 0;
    if (isSuper ? packets < frames.length : packets !== frames.length)
      throw new Error(`${frames.length} frames were ${packets} packets`);
    this.now += 1000;
    this.#drain();
  }

  #drain(): void {
    const { x, card } = this.rig;
    const { tx } = card.frames;
    x.expire(this.now);
    while (x.tx(this.now, 64) > 0) card.u32[tx.consumer >>> 2] = card.u32[tx.producer >>> 2] as number;
    for (const { cq } of this.#all) while (x.cqPeek(cq) !== 0) x.cqPop(cq);
    for (let at = x.eventPeek(); at !== 0; at = x.eventPeek()) x.eventPop(at);
  }

  /** Now and then: replaces dead queue pairs and windows, and posts receives. */
  tend(): void {
    const isWhole = this.#all.every((qp) => qp.state === 'RTS') && this.rig.x.mrIsValid(this.#mw);
    if (!isWhole) this.connect();
    else this.stock();
  }

  /** @throws when a byte outside of what a peer may write has changed */
  checkGuards(): void {
    for (const { at, copy } of this.#guards)
      if (Buffer.compare(this.rig.bytesAt(at, copy.length), copy) !== 0)
        throw new Error(`the guard at ${at} was written to`);
  }

  /** Checks that a new connection works, to the last byte: the card's own tables are intact. */
  checkAlive(): void {
    this.connect();
    const { qp } = this;
    const at: Flow = { ...FROM_PEER, destQp: qp.qpn };
    const payload = Uint8Array.from({ length: 1000 }, (_, i) => i * 7);
    const packet = request.writeOnly({ psn: 0, ackReq: true, payload, va: this.open.iova + 5n, rkey: this.open.rkey });
    this.feed(encodeFrame(at, packet));
    if (Buffer.compare(this.open.bytes.subarray(5, 1005), payload) !== 0) throw new Error('a WRITE does not arrive');
    this.feed(encodeFrame(at, request.sendOnly({ psn: 1, ackReq: true, payload })));
    if (Buffer.compare(this.landing.bytes.subarray(0, 1000), payload) !== 0) throw new Error('a SEND does not arrive');
    if (qp.attribute('MSN') !== 2 || qp.state !== 'RTS') throw new Error('the conversation did not go on');
    const [left, right] = [payload.slice(0, 500), payload.slice(500)];
    this.feed(encodeFrame({ ...at, destQp: this.unreliable.qpn }, uc(request.sendOnly({ psn: 9, payload: right }))));
    if (Buffer.compare(this.landing.bytes.subarray(0, 500), right) !== 0) throw new Error('a UC SEND does not arrive');
    const to = { ...at, destQp: this.datagrams.qpn };
    this.feed(encodeFrame(to, datagram.sendOnly({ psn: 9, payload: left, qkey: QKEY, srcQp: 5 })));
    if (Buffer.compare(this.landing.bytes.subarray(40, 540), left) !== 0) throw new Error('a datagram does not arrive');
  }
}

/** Puts the right ICRC (and IPv4 checksum) into a frame, if its lengths allow it. */
export function seal(bytes: Uint8Array): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const tagged = bytes[12] === 0x81 && bytes[13] === 0 ? 4 : 0;
  const ip = 14 + tagged;
  if (bytes.length < ip + 48) return;
  const v4 = (bytes[ip] as number) >> 4 === 4;
  const end = v4 ? ip + view.getUint16(ip + 2) : ip + 40 + view.getUint16(ip + 4);
  if (end > bytes.length || end < ip + 48) return;
  if (v4) {
    view.setUint16(ip + 10, 0);
    let sum = 0;
    for (let i = 0; i < 20; i += 2) sum += view.getUint16(ip + i);
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
    view.setUint16(ip + 10, ~sum & 0xffff);
  }
  view.setUint32(end - 4, icrc(bytes.subarray(ip, end - 4)));
}
