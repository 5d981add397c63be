/** The card in the place of a captured responder: the captured requests go in, its answers come out. */
import { ipBytes } from '../kit/address.js';
import { type Decoded, decode, encode, Op, underived } from '../kit/packets.js';
import { type Region, Rig, type RigQp } from '../kit/rig.js';
import { ahead, type Conversation, isResponse, packetsOf, type Said, said } from './conversation.js';

const RECEIVE = 1 << 20;
/** A key that opens nothing. */
const NO_KEY = 0x00000100;

export interface ResponderSetup {
  readonly maxDestRdAtomic?: number;
  readonly access?: number;
  /** Where the responder had expected the requester to start. */
  readonly rqPsn?: number;
  /** Length of its receives. */
  readonly receiveBytes?: number;
}

/** A stretch of the responder's memory that was named by a key. */
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
    made.#layOut();
    made.#remember();
    return made;
  }

  /** Regions for every key by which something was done that was not refused. */
  #layOut(): void {
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
    for (const [rkey, { from, to }] of spans) this.#regions.set(rkey, this.rig.region(Number(to - from), 15, from));
  }

  #wasRefused({ bth }: Decoded): boolean {
    return this.talk.packets.some(
      ({ isRequest, frame }) => !isRequest && frame.bth.psn === bth.psn && frame.aeth?.syndrome === 0x62,
    );
  }

  /** What the memory held before: what READs and atomics brought, unless WRITEs in the capture put it there. The earliest
   * counts, so the last is laid first. */
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
        Buffer.from(region.bytes.buffer, region.ptr).writeBigUInt64LE(answer.atomicack, offset);
      else if (request.bth.opcode === Op.RDMA_READ_REQUEST) region.bytes.set(answer.payload, offset);
    }
  }

  /** Plays all requests in order. What the card says is in `answers`. */
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

  /** Whether the captured responder had no receive for this packet. */
  #wasNotReady(index: number): boolean {
    const { psn } = (this.talk.packets[index] as { frame: Decoded }).frame.bth;
    for (const { isRequest, frame } of this.talk.packets.slice(index + 1)) {
      if (frame.bth.psn !== psn) continue;
      if (isRequest) return false;
      if (frame.aeth) return frame.aeth.syndrome >>> 5 === 1;
    }
    return false;
  }

  /** One receive for the packet that is expected; none for what is repeated or comes too early. */
  #post({ bth }: Decoded): void {
    if (bth.psn !== this.qp.attribute('EXPECTED_PSN') || this.qp.attribute('RQ_PENDING') !== 0) return;
    this.qp.recv(0, [this.inbox.piece(0, this.inbox.length)]);
  }

  /** The captured frame, for this card: its queue pair, its keys. */
  #aimed(frame: Decoded): Uint8Array {
    const ours = underived(frame);
    ours.bth.destQp = this.qp.qpn;
    const key = (rkey: number): number => this.#regions.get(rkey)?.rkey ?? NO_KEY;
    if (ours.reth) ours.reth = { ...ours.reth, rkey: key(ours.reth.rkey) };
    if (ours.atomiceth) ours.atomiceth = { ...ours.atomiceth, rkey: key(ours.atomiceth.rkey) };
    return encode({ ...ours, trailer: new Uint8Array(0) });
  }
}

function timerOf(talk: Conversation): number {
  const rnr = talk.packets.find(({ isRequest, frame }) => !isRequest && (frame.aeth?.syndrome ?? 0) >>> 5 === 1);
  return rnr ? (rnr.frame.aeth?.syndrome ?? 0) & 31 : 12;
}
