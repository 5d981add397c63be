/**
 * A bare card for protocol tests, without link, device and clock. The test passes frames in and out, and the time as an
 * argument. Every method calls the card's exports directly, without the facade.
 */
import { Card, type CardOptions } from '../../src/device/card.js';
import { decisions } from '../../src/device/decisions.js';
import type { Completion, ConnectOptions, Piece, QpSizes, Region, SendRequest } from './rigtypes.js';

export type * from './rigtypes.js';

/** A frame that the card has sent, and the options of its descriptor. */
export interface Sent {
  readonly bytes: Uint8Array;
  readonly options: number;
}

/** Returns an address for the card (a place) as the two words that its exports take, high first. */
export function placeWords(place: number): [high: number, low: number] {
  return [Math.floor(place / 2 ** 32), place >>> 0];
}

/** Whether rigs register memory outside of their cards (useregions.ts). */
export const regionsOutside = { enabled: false };

/** Decisions that a card keeps for the message of a failing test. */
const DECISIONS = 64;

export class Rig {
  readonly pd: number;
  /** Memory outside of the card's, by place. */
  readonly #outside = new Map<number, Uint8Array>();

  private constructor(readonly card: Card) {
    this.pd = this.x.pdAlloc();
  }

  static async create(seed = 1, options: Partial<CardOptions> = {}): Promise<Rig> {
    const rig = new Rig(
      await Card.create({
        memoryBytes: 16 * 2 ** 20,
        rxSlots: 256,
        txSlots: 256,
        maxQp: 64,
        maxMr: 256,
        seed: new Uint8Array(32).fill(seed),
        ...options,
      }),
    );
    rig.x.traceDecisions(DECISIONS);
    // conversations keep time in microseconds
    rig.x.setMinAckTimeout(0);
    return rig;
  }

  /** The card's last decisions, a line each with its time in microseconds: for what a failing test says. */
  decisions(qpn?: number): string[] {
    return decisions(this.card, qpn).map(({ at, text }) => `${(at / 1000).toFixed(3).padStart(13)}  ${text}`);
  }

  get x(): Card['exports'] {
    return this.card.exports;
  }

  /** Registers new memory. `iova` is the address on the wire, by default the pointer. */
  region(length: number, access = 15, iova?: bigint): Region {
    return this.regionAt(this.memory(length), length, access, iova);
  }

  /** Allocates memory: in the card, or outside of it. @returns its place */
  memory(length: number): number {
    if (regionsOutside.enabled) {
      const bytes = new Uint8Array(length);
      const place = this.card.regions.add(bytes, true) * 2 ** 32;
      this.#outside.set(place, bytes);
      return place;
    }
    const ptr = this.x.memAlloc(length);
    if (ptr === 0) throw new Error(`no memory for ${length} bytes`);
    return ptr;
  }

  /** Returns the bytes at a place. */
  bytesAt(place: number, length: number): Uint8Array {
    const [region, offset] = placeWords(place);
    const memory = this.#outside.get(region * 2 ** 32) ?? this.card.bytes;
    return memory.subarray(offset, offset + length);
  }

  regionAt(ptr: number, length: number, access = 15, iova = BigInt(ptr), pd = this.pd): Region {
    const mr = this.x.mrReg(pd, ...placeWords(ptr), length, access, Number(iova >> 32n), Number(iova & 0xffffffffn));
    if (mr === 0) throw new Error(`mrReg: ${this.errno(this.x.lastErrno())}`);
    const lkey = this.x.mrLkey(mr);
    return {
      mr,
      ptr,
      length,
      lkey,
      rkey: this.x.mrRkey(mr),
      iova,
      bytes: this.bytesAt(ptr, length),
      piece: (offset, bytes) => ({ ptr: ptr + offset, length: bytes, lkey }),
    };
  }

  /** Re-registers a region. @returns the name of the Errno */
  rereg(mr: number, ptr: number, length: number, access: number, iova: bigint, pd = this.pd): string {
    const [high, low] = [Number(iova >> 32n), Number(iova & 0xffffffffn)];
    return this.errno(this.x.mrRereg(mr, pd, false, ...placeWords(ptr), length, access, high, low));
  }

  /** Allocates an unbound memory window. @returns its handle */
  window(type: 1 | 2, pd = this.pd): number {
    const mw = this.x.mwAlloc(pd, type);
    if (mw === 0) throw new Error(`mwAlloc: ${this.errno(this.x.lastErrno())}`);
    return mw;
  }

  qp(sizes: QpSizes = {}): RigQp {
    return new RigQp(this, sizes);
  }

  errno(code: number): string {
    return this.x.Errno[code] ?? String(code);
  }

  /** Puts a frame on the receive ring and lets the card process it. @returns the frames that the card sends at `now` */
  in(now: number, frame: Uint8Array, options = 0): Uint8Array[] {
    this.put(frame, options);
    this.x.rx(now, 256);
    return this.out(now);
  }

  /** Puts a frame on the receive ring. @returns false when the ring is full */
  put(frame: Uint8Array, options = 0): boolean {
    const { rx, memory } = this.card.frames;
    const u32 = this.card.u32;
    const producer = u32[rx.producer >>> 2] as number;
    if ((producer - (u32[rx.consumer >>> 2] as number)) >>> 0 > rx.mask) return false;
    const descriptor = rx.descriptors + (producer & rx.mask) * 16;
    memory.set(frame, u32[descriptor >>> 2] as number);
    u32[(descriptor + 8) >>> 2] = frame.length;
    u32[(descriptor + 12) >>> 2] = options;
    u32[rx.producer >>> 2] = (producer + 1) >>> 0;
    return true;
  }

  /** Expires timers. @returns the frames that the card sends at `now`, at most `most` */
  out(now: number, most = 65536): Uint8Array[] {
    return this.sent(now, most).map(({ bytes }) => bytes);
  }

  /** The same as `out`, with the options of the descriptors. */
  sent(now: number, most = 65536): Sent[] {
    this.x.expire(now);
    const frames = this.take();
    while (frames.length < most && this.x.tx(now, Math.min(64, most - frames.length)) > 0) frames.push(...this.take());
    return frames;
  }

  private take(): Sent[] {
    const { tx, memory } = this.card.frames;
    const u32 = this.card.u32;
    const frames: Sent[] = [];
    let consumer = u32[tx.consumer >>> 2] as number;
    for (; consumer !== u32[tx.producer >>> 2]; consumer = (consumer + 1) >>> 0) {
      const descriptor = tx.descriptors + (consumer & tx.mask) * 16;
      const ptr = u32[descriptor >>> 2] as number;
      const bytes = memory.slice(ptr, ptr + (u32[(descriptor + 8) >>> 2] as number));
      frames.push({ bytes, options: u32[(descriptor + 12) >>> 2] as number });
    }
    u32[tx.consumer >>> 2] = consumer;
    return frames;
  }

  /** Returns the events since the last call, as `TYPE` names. */
  events(): string[] {
    const names: string[] = [];
    for (let ptr = this.x.eventPeek(); ptr !== 0; ptr = this.x.eventPeek()) {
      names.push(this.x.EventType[this.card.u32[ptr >>> 2] as number] as string);
      this.x.eventPop(ptr);
    }
    return names;
  }

  /** Returns the non-zero counters of the card or of a queue pair. */
  counters(set = this.x.counters()): Record<string, number> {
    const found: Record<string, number> = {};
    for (let i = 0; this.x.Counter[i] !== undefined; i++) {
      const at = (set >>> 2) + 2 * i;
      const value = (this.card.u32[at] as number) + (this.card.u32[at + 1] as number) * 2 ** 32;
      if (value !== 0) found[this.x.Counter[i] as string] = value;
    }
    return found;
  }
}

export class RigQp {
  readonly handle: number;
  readonly qpn: number;
  readonly cq: number;
  readonly type: 'RC' | 'UC' | 'UD' | 'GSI';
  readonly recvCq: number;

  constructor(
    readonly rig: Rig,
    sizes: QpSizes,
  ) {
    const { x } = rig;
    this.type = sizes.type ?? 'RC';
    this.cq = sizes.cq ?? x.cqCreate(sizes.cqe ?? 256);
    this.recvCq = sizes.recvCqe === undefined ? this.cq : x.cqCreate(sizes.recvCqe);
    const sge = sizes.sge ?? 4;
    this.handle = x.qpCreate(
      rig.pd,
      x.QpType[this.type],
      this.cq,
      this.recvCq,
      sizes.sendWr ?? 64,
      sizes.recvWr ?? 64,
      sge,
      sge,
      sizes.inline ?? 64,
      sizes.signalAll ?? true,
      sizes.srq ?? 0,
    );
    if (this.handle === 0) throw new Error(`qpCreate: ${rig.errno(x.lastErrno())}`);
    this.qpn = x.qpNumber(this.handle);
    if (sizes.flowControl) this.flowControl(true);
    if (sizes.adaptive === false) this.adaptive(false);
  }

  /** Modifies attributes by their names in QpAttr. @returns the name of the Errno */
  modify(attributes: Record<string, number>): string {
    const { x, card } = this.rig;
    const base = x.scratch() >>> 2;
    let mask = 0;
    for (const [name, value] of Object.entries(attributes)) {
      const index = (x.QpAttr as unknown as Record<string, number>)[name];
      if (index === undefined) throw new Error(`no attribute ${name}`);
      card.u32[base + index] = value;
      mask |= 1 << index;
    }
    return this.rig.errno(x.qpModify(this.handle, mask >>> 0));
  }

  /** Returns the names of the attributes that the last modify missed, did not allow, or found out of range. */
  refused(): { missing: string[]; forbidden: string[]; range: string[] } {
    const names = (why: number): string[] => {
      const bits = this.rig.x.qpRefused(why);
      return Array.from({ length: 32 }, (_, i) => i)
        .filter((i) => (bits >>> i) & 1)
        .map((i) => this.rig.x.QpAttr[i] as string);
    };
    return { missing: names(0), forbidden: names(1), range: names(2) };
  }

  /** Switches end-to-end credits on or off. @returns the name of the Errno */
  flowControl(isOn: boolean): string {
    return this.rig.errno(this.rig.x.qpFlowControl(this.handle, isOn));
  }

  /** Switches adaptive retransmission on or off. @returns the name of the Errno */
  adaptive(isOn: boolean): string {
    return this.rig.errno(this.rig.x.qpAdaptive(this.handle, isOn));
  }

  /** Returns the name of the sign of the peer since the last call. */
  peerSign(asks: boolean): string {
    return this.rig.x.PeerSign[this.rig.x.qpPeerSign(this.handle, asks)] as string;
  }

  /** Limits the in-flight window. @returns the name of the Errno */
  windowLimit(packets: number): string {
    return this.rig.errno(this.rig.x.qpWindowLimit(this.handle, packets));
  }

  attribute(name: string): number {
    this.rig.x.qpQuery(this.handle);
    const index = (this.rig.x.QpAttr as unknown as Record<string, number>)[name] as number;
    return this.rig.card.u32[(this.rig.x.scratch() >>> 2) + index] as number;
  }

  get state(): string {
    return this.rig.x.QpState[this.attribute('STATE')] as string;
  }

  /** Writes the address vector for the next modify with AV. */
  vector(options: ConnectOptions): void {
    const { x, card } = this.rig;
    const base = x.scratch();
    const { AvOffset } = x;
    const localIp = options.localIp ?? [10, 0, 0, 1];
    const remoteIp = options.remoteIp ?? [10, 0, 0, 2];
    card.bytes.fill(0, base + AvOffset.DEST_MAC, base + AvOffset.SOURCE_PORT + 4);
    card.bytes.set(options.remoteMac ?? [2, 0, 0, 0, 0, 2], base + AvOffset.DEST_MAC);
    card.bytes.set(options.localMac ?? [2, 0, 0, 0, 0, 1], base + AvOffset.SOURCE_MAC);
    card.bytes.set(localIp, base + AvOffset.SOURCE_IP);
    card.bytes.set(remoteIp, base + AvOffset.DEST_IP);
    card.u32[(base + AvOffset.VLAN_TCI) >>> 2] = options.vlan ?? 0xffffffff;
    card.u32[(base + AvOffset.TRAFFIC_CLASS) >>> 2] = options.trafficClass ?? 0;
    card.u32[(base + AvOffset.FLOW_LABEL) >>> 2] = options.flowLabel ?? 0;
    card.u32[(base + AvOffset.IP_VERSION) >>> 2] = localIp.length === 4 ? 4 : 6;
    card.u32[(base + AvOffset.HOP_LIMIT) >>> 2] = options.hopLimit ?? 64;
    card.u32[(base + AvOffset.SOURCE_PORT) >>> 2] = options.sourcePort ?? 0xc000;
  }

  /**
   * Moves the queue pair from RESET to RTS, or to `until`, with the attributes that its type has.
   * @throws Error when the card refuses
   */
  connect(options: ConnectOptions): this {
    const until = options.until ?? 'RTS';
    const [isRc, isUd] = [this.type === 'RC', this.type === 'UD' || this.type === 'GSI'];
    const right: Record<string, number> = isUd ? { QKEY: options.qkey ?? 0 } : { ACCESS_FLAGS: options.access ?? 15 };
    this.expectOk(this.modify({ STATE: 1, PKEY_INDEX: 0, PORT: 1, ...right }));
    if (until === 'INIT') return this;
    this.vector(options);
    const { mtu = 1024, destQpn, rqPsn } = options;
    this.expectOk(
      this.modify({
        STATE: 2,
        ...(!isUd && { AV: 0, PATH_MTU: mtu, DEST_QPN: destQpn, RQ_PSN: rqPsn }),
        ...(isRc && { MAX_DEST_RD_ATOMIC: options.maxDestRdAtomic ?? 4, MIN_RNR_TIMER: options.minRnrTimer ?? 12 }),
      }),
    );
    if (until === 'RTR') return this;
    const { timeout = 14, retryCnt = 7, rnrRetry = 7, maxRdAtomic = 4 } = options;
    const retries = { TIMEOUT: timeout, RETRY_CNT: retryCnt, RNR_RETRY: rnrRetry, MAX_QP_RD_ATOMIC: maxRdAtomic };
    this.expectOk(this.modify({ STATE: 3, SQ_PSN: options.sqPsn, ...(isRc && retries) }));
    return this;
  }

  private expectOk(errno: string): void {
    if (errno !== 'OK') throw new Error(`modify: ${errno} ${JSON.stringify(this.refused())}`);
  }

  /** Posts a send work request. @returns the name of the Errno */
  send(request: SendRequest): string {
    const { x, card } = this.rig;
    const opcode = (x.WrOpcode as unknown as Record<string, number>)[request.opcode];
    if (opcode === undefined) throw new Error(`no opcode ${request.opcode}`);
    const flags =
      ((request.fence ?? false) ? 1 : 0) |
      ((request.signaled ?? true) ? 2 : 0) |
      ((request.solicited ?? false) ? 4 : 0);
    if (!x.sqBegin(this.handle, request.wrId ?? 0, opcode, flags)) return this.rig.errno(x.lastErrno());
    for (const piece of request.pieces ?? []) x.sqSge(this.handle, ...placeWords(piece.ptr), piece.length, piece.lkey);
    if (request.inline !== undefined) {
      const to = x.sqInline(this.handle, request.inline.length);
      if (to !== 0) card.bytes.set(request.inline, to);
    }
    if (request.remote !== undefined) {
      const va = BigInt(request.remote.va);
      x.sqRemote(this.handle, Number(va >> 32n), Number(va & 0xffffffffn), request.remote.rkey);
    }
    if (request.compareAdd !== undefined || request.swap !== undefined) {
      const compareAdd = BigInt.asUintN(64, request.compareAdd ?? 0n);
      const swap = BigInt.asUintN(64, request.swap ?? 0n);
      x.sqAtomic(
        this.handle,
        Number(compareAdd >> 32n),
        Number(compareAdd & 0xffffffffn),
        Number(swap >> 32n),
        Number(swap & 0xffffffffn),
      );
    }
    if (request.to !== undefined) x.sqDatagram(this.handle, request.to.ah, request.to.qpn, request.to.qkey, 0);
    if (request.imm !== undefined) x.sqImm(this.handle, request.imm);
    if (request.bind !== undefined) {
      const { rkey, lkey, va, length, access } = request.bind;
      x.sqBind(this.handle, rkey, lkey, Number(va >> 32n), Number(va & 0xffffffffn), length, access);
    }
    if (request.register !== undefined) {
      const { rkey, ptr, length, access, iova } = request.register;
      x.sqRegister(
        this.handle,
        rkey,
        ...placeWords(ptr),
        Number(iova >> 32n),
        Number(iova & 0xffffffffn),
        length,
        access,
      );
    }
    if (request.flush !== undefined) x.sqFlush(this.handle, request.flush.length, request.flush.what);
    return this.rig.errno(x.sqCommit(this.handle));
  }

  recv(wrId: number, pieces: readonly Piece[] = []): string {
    const { x } = this.rig;
    if (!x.rqBegin(this.handle, wrId)) return this.rig.errno(x.lastErrno());
    for (const piece of pieces) x.rqSge(this.handle, ...placeWords(piece.ptr), piece.length, piece.lkey);
    return this.rig.errno(x.rqCommit(this.handle));
  }

  /** Polls all completions of one completion queue. */
  poll(cq = this.cq): Completion[] {
    const { x, card } = this.rig;
    const { CqeOffset } = x;
    const found: Completion[] = [];
    for (let ptr = x.cqPeek(cq); ptr !== 0; ptr = x.cqPeek(cq)) {
      const at = (offset: number): number => card.u32[(ptr + offset) >>> 2] as number;
      found.push({
        wrId: card.f64[(ptr + CqeOffset.WR_ID) >>> 3] as number,
        status: x.WcStatus[at(CqeOffset.STATUS)] as string,
        opcode: x.WcOpcode[at(CqeOffset.OPCODE)] as string,
        byteLen: at(CqeOffset.BYTE_LEN),
        flags: at(CqeOffset.FLAGS),
        imm: at(CqeOffset.IMM),
        invalidatedRkey: at(CqeOffset.INVALIDATED_RKEY),
        syndrome: at(CqeOffset.SYNDROME),
        psn: at(CqeOffset.PSN),
        qpn: at(CqeOffset.QPN),
        srcQpn: at(CqeOffset.SRC_QPN),
      });
      x.cqPop(cq);
    }
    return found;
  }

  counters(): Record<string, number> {
    return this.rig.counters(this.rig.x.qpCounters(this.handle));
  }
}
