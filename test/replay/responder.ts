/** The card replaces a captured responder: the captured requests go in, its responses come out. */
import { ipBytes } from '../../src/probe/packet/address.js';
import { type Decoded, decode, encode, Op, underived } from '../../src/probe/packet/packets.js';
import { type Region, Rig, type RigQp } from '../kit/rig.js';
import { ahead, type Conversation, isResponse, packetsOf, type Said, said } from './conversation.js';

const RECEIVE = 1 << 20;
const ACCESS = 15;
/** Lets the peer invalidate a key. */
const INVALIDATE = 1 << 24;
/** A key that is never valid. */
const NO_KEY = 0x00000100;

export interface ResponderSetup {
  readonly maxDestRdAtomic?: number;
  readonly access?: number;
  /** The PSN at which the responder expected the requester to start. */
  readonly rqPsn?: number;
  /** Length of its receives. */
  readonly receiveBytes?: number;
  /** The keys that were to be invalidated belonged to regions that forbid it. */
  readonly forbidsInvalidation?: boolean;
}

/** A range of the responder's memory, and its key. */
interface Span {
  from: bigint;
  to: bigint;
}

const TAKES_RECEIVE: readonly number[] = [
  Op.SEND_FIRST,
  Op.SEND_ONLY,
  Op.SEND_ONLY_WITH_IMM,
  Op.SEND_ONLY_WITH_INVALIDATE,
  Op.RDMA_WRITE_ONLY_WITH_IMM,
  Op.RDMA_WRITE_LAST_WITH_IMM,
];

function place(frame: Decoded): { va: bigint; rkey: number; length: number } | undefined {
  if (frame.reth) return frame.reth;
  return frame.atomiceth && { ...frame.atomiceth, length: 8 };
}

export class ReplayedResponder {
  readonly #regions = new Map<number, Region>();
  readonly answers: Said[] = [];

  private constructor(
    readonly talk: Conversation,
    readonly rig: Rig,
    readonly qp: RigQp,
    readonly inbox: Region,
  ) {}

  static async create(talk: Conversation, setup: ResponderSetup = {}): Promise<ReplayedResponder> {
    const rig = await Rig.create(9, { memoryBytes: 24 << 20 });
    // the captured responders drop what arrives ahead of a gap
    rig.x.setReorderWindow(0);
    const qp = rig.qp({ recvWr: 256, cqe: 8192 });
    qp.connect({
      destQpn: talk.requester,
      sqPsn: 0,
      rqPsn: talk.firstPsn,
      mtu: talk.mtu,
      maxDestRdAtomic: 128,
      minRnrTimer: timerOf(talk),
      localIp: [...ipBytes(talk.dstIp)],
      remoteIp: [...ipBytes(talk.srcIp)],
      ...setup,
    });
    const made = new ReplayedResponder(talk, rig, qp, rig.region(setup.receiveBytes ?? RECEIVE));
    made.#layOut(setup.forbidsInvalidation ? 0 : INVALIDATE);
    made.#remember();
    return made;
  }

  /** Creates regions for every key that was used without a NAK, or invalidated. */
  #layOut(invalidate: number): void {
    const spans = new Map<number, Span>();
    for (const { isRequest, frame } of this.talk.packets) {
      const at = isRequest ? place(frame) : undefined;
      if (at === undefined || at.length === 0 || this.#wasRefused(frame)) continue;
      const end = at.va + BigInt(at.length);
      const span = spans.get(at.rkey);
      spans.set(at.rkey, {
        from: span && span.from < at.va ? span.from : at.va,
        to: span && span.to > end ? span.to : end,
      });
    }
    const closing = this.talk.packets.flatMap(({ isRequest, frame: { ieth } }) => (isRequest && ieth ? [ieth] : []));
    // one that was never used has an address nonetheless
    for (const rkey of closing) if (!spans.has(rkey)) spans.set(rkey, { from: 0n, to: 8n });
    for (const [rkey, { from, to }] of spans)
      this.#regions.set(rkey, this.rig.region(Number(to - from), ACCESS | invalidate, from));
  }

  /**
   * The key of a region of ours that stands for a captured one. Where the captured responder had registered it anew
   * after its invalidation, we do so.
   */
  #keyFor(rkey: number, isReplay: boolean): number {
    const region = this.#regions.get(rkey);
    if (region === undefined) return NO_KEY;
    if (this.rig.x.mrIsValid(region.mr) || isReplay) return region.rkey;
    const again = this.rig.regionAt(region.ptr, region.length, ACCESS | INVALIDATE, region.iova);
    this.#regions.set(rkey, again);
    return again.rkey;
  }

  /** Returns whether a peer may use the captured key now. */
  isValid(rkey: number): boolean {
    const region = this.#regions.get(rkey);
    return region !== undefined && this.rig.x.mrIsValid(region.mr);
  }

  #wasRefused({ bth }: Decoded): boolean {
    return this.talk.packets.some(
      ({ isRequest, frame }) => !isRequest && frame.bth.psn === bth.psn && frame.aeth?.syndrome === 0x62,
    );
  }

  /**
   * Restores the initial memory from the results of READs and atomics, unless WRITEs in the capture put it there. The
   * earliest counts, so the last is restored first.
   */
  #remember(): void {
    const answers = this.talk.packets.filter(({ isRequest }) => !isRequest).map(({ frame }) => frame);
    const requests = this.talk.packets.filter(({ isRequest }) => isRequest).map(({ frame }) => frame);
    for (const answer of answers.reverse()) {
      const { psn } = answer.bth;
      const request = requests.find(
        (r) => place(r) && ahead(psn, r.bth.psn) >= 0 && ahead(psn, r.bth.psn) < packetsOf(r, this.talk.mtu),
      );
      const at = request && place(request);
      if (!request || !at) continue;
      const region = this.#regions.get(at.rkey);
      if (!region) continue;
      const offset = Number(at.va - region.iova) + ahead(psn, request.bth.psn) * this.talk.mtu;
      if (answer.atomicack !== undefined)
        Buffer.from(region.bytes.buffer, region.bytes.byteOffset).writeBigUInt64LE(answer.atomicack, offset);
      else if (request.bth.opcode === Op.RDMA_READ_REQUEST) region.bytes.set(answer.payload, offset);
    }
  }

  /** Plays all requests in order. `answers` has the card's responses. */
  play(): void {
    this.talk.packets.forEach(({ isRequest, frame }, i) => {
      if (!isRequest) return;
      if (TAKES_RECEIVE.includes(frame.bth.opcode) && !this.#wasNotReady(i)) this.#post(frame);
      for (const bytes of this.rig.in(1_000_000 + i * 1000, this.#aimed(frame))) {
        const answer = decode(bytes);
        if (!answer.icrcOk || !isResponse(answer)) throw new Error('the card sent something else than an answer');
        this.answers.push(said(answer));
      }
    });
  }

  /** Returns whether the captured responder had no receive for this packet. */
  #wasNotReady(index: number): boolean {
    const { psn } = (this.talk.packets[index] as { frame: Decoded }).frame.bth;
    for (const { isRequest, frame } of this.talk.packets.slice(index + 1)) {
      if (frame.bth.psn !== psn) continue;
      if (isRequest) return false;
      if (frame.aeth) return frame.aeth.syndrome >>> 5 === 1;
    }
    return false;
  }

  /** Posts a receive for a packet that is expected; none for a retransmission or a packet that comes too early. */
  #post({ bth }: Decoded): void {
    if (bth.psn !== this.qp.attribute('EXPECTED_PSN') || this.qp.attribute('RQ_PENDING') !== 0) return;
    this.qp.recv(0, [this.inbox.piece(0, this.inbox.length)]);
  }

  /** The captured frame with this card's queue pair and keys. */
  #aimed(frame: Decoded): Uint8Array {
    const ours = underived(frame);
    ours.bth.destQp = this.qp.qpn;
    const isReplay = frame.bth.psn !== this.qp.attribute('EXPECTED_PSN') || this.#wasRefused(frame);
    const key = (rkey: number): number => this.#keyFor(rkey, isReplay);
    if (ours.reth) ours.reth = { ...ours.reth, rkey: key(ours.reth.rkey) };
    if (ours.atomiceth) ours.atomiceth = { ...ours.atomiceth, rkey: key(ours.atomiceth.rkey) };
    // the key that a SEND invalidates is that of its region as it is
    if (ours.ieth !== undefined) ours.ieth = this.#keyFor(ours.ieth, true);
    return encode({ ...ours, trailer: new Uint8Array(0) });
  }
}

function timerOf(talk: Conversation): number {
  const rnr = talk.packets.find(({ isRequest, frame }) => !isRequest && (frame.aeth?.syndrome ?? 0) >>> 5 === 1);
  return rnr ? (rnr.frame.aeth?.syndrome ?? 0) & 31 : 12;
}
