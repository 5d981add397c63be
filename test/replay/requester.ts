/**
 * The card replaces a captured requester: work requests are derived from the captured packets, and the card must send
 * these packets again while the captured responses go in.
 */
import { ipBytes } from '../../src/probe/packet/address.js';
import { type Decoded, decode, encode, Op, underived } from '../../src/probe/packet/packets.js';
import { type Completion, Rig, type RigQp, type SendRequest } from '../kit/rig.js';
import { ahead, type Conversation, isResponse, packetsOf } from './conversation.js';

const ROOM = 3 << 20;
const OPCODES: Readonly<Record<number, string>> = {
  [Op.SEND_ONLY]: 'SEND',
  [Op.SEND_LAST]: 'SEND',
  [Op.SEND_ONLY_WITH_IMM]: 'SEND_WITH_IMM',
  [Op.SEND_LAST_WITH_IMM]: 'SEND_WITH_IMM',
  [Op.SEND_ONLY_WITH_INVALIDATE]: 'SEND_WITH_INV',
  [Op.SEND_LAST_WITH_INVALIDATE]: 'SEND_WITH_INV',
  [Op.RDMA_WRITE_ONLY]: 'RDMA_WRITE',
  [Op.RDMA_WRITE_LAST]: 'RDMA_WRITE',
  [Op.RDMA_WRITE_ONLY_WITH_IMM]: 'RDMA_WRITE_WITH_IMM',
  [Op.RDMA_WRITE_LAST_WITH_IMM]: 'RDMA_WRITE_WITH_IMM',
  [Op.RDMA_READ_REQUEST]: 'RDMA_READ',
  [Op.COMPARE_SWAP]: 'ATOMIC_CMP_AND_SWP',
  [Op.FETCH_ADD]: 'ATOMIC_FETCH_AND_ADD',
};

/** The contents of a request packet that the work request determines. Not AckReq, which is the requester's choice. */
export type Asked = Pick<Decoded, 'reth' | 'atomiceth' | 'immdt' | 'ieth'> & {
  readonly opcode: string;
  readonly psn: number;
  readonly solicited: boolean;
  readonly payload: string;
};

export function asked({ bth, reth, atomiceth, immdt, ieth, payload }: Decoded): Asked {
  return {
    opcode: Op[bth.opcode] as string,
    psn: bth.psn,
    solicited: bth.solicited,
    ...(reth && { reth }),
    ...(atomiceth && { atomiceth }),
    ...(immdt !== undefined && { immdt }),
    ...(ieth !== undefined && { ieth }),
    payload: Buffer.from(payload).toString('base64'),
  };
}

/** Four bytes of the wire as the number that the card expects. */
const swap = (value: number): number =>
  (((value & 0xff) << 24) | ((value & 0xff00) << 8) | ((value >>> 8) & 0xff00) | (value >>> 24)) >>> 0;

export class ReplayedRequester {
  readonly requests: Asked[] = [];
  readonly completions: Completion[] = [];
  posted = 0;
  /** The results of READs: offset in the landing region, and bytes. */
  readonly read: { offset: number; bytes: Buffer }[] = [];
  #next = 0;
  #now = 1_000_000;

  private constructor(
    readonly talk: Conversation,
    readonly rig: Rig,
    readonly qp: RigQp,
  ) {}

  static async create(talk: Conversation): Promise<ReplayedRequester> {
    const rig = await Rig.create(10, { memoryBytes: 16 << 20 });
    const qp = rig.qp({ sendWr: 1024, cqe: 2048 });
    qp.connect({
      destQpn: talk.responder,
      sqPsn: talk.firstPsn,
      rqPsn: 0,
      mtu: talk.mtu,
      maxRdAtomic: 128,
      localIp: [...ipBytes(talk.srcIp)],
      remoteIp: [...ipBytes(talk.dstIp)],
    });
    const made = new ReplayedRequester(talk, rig, qp);
    made.#post();
    return made;
  }

  /** Posts one work request per captured message; a message whose end was cut off is left out. */
  #post(): void {
    const local = this.rig.region(ROOM);
    const { mtu } = this.talk;
    let begin: Decoded | undefined;
    let payload: Buffer = Buffer.alloc(0);
    for (const { isRequest, frame } of this.talk.packets) {
      if (!isRequest) continue;
      begin ??= frame;
      payload = Buffer.concat([payload, frame.payload]);
      const opcode = OPCODES[frame.bth.opcode];
      if (opcode === undefined) continue;
      const at = begin.reth ?? begin.atomiceth;
      const length = opcode === 'RDMA_READ' ? (begin.reth?.length ?? 0) : begin.atomiceth ? 8 : payload.length;
      const offset = this.#next;
      this.#next += length;
      if (opcode === 'RDMA_READ') this.#expectRead(begin, offset, length, mtu);
      else local.bytes.set(payload, offset);
      const atomic = begin.atomiceth;
      const request: SendRequest = {
        wrId: this.posted++,
        opcode,
        pieces: [local.piece(offset, length)],
        solicited: frame.bth.solicited,
        ...(at && { remote: { va: at.va, rkey: at.rkey } }),
        ...(atomic && opcode === 'ATOMIC_FETCH_AND_ADD' && { compareAdd: atomic.swapAdd }),
        ...(atomic && opcode === 'ATOMIC_CMP_AND_SWP' && { compareAdd: atomic.compare, swap: atomic.swapAdd }),
        // immediate data passes as bytes, a key as a number
        ...(frame.immdt !== undefined && { imm: swap(frame.immdt) }),
        ...(frame.ieth !== undefined && { imm: frame.ieth }),
      };
      const errno = this.qp.send(request);
      if (errno !== 'OK') throw new Error(`${opcode}: ${errno}`);
      begin = undefined;
      payload = Buffer.alloc(0);
    }
    this.local = local.bytes;
  }
  local: Uint8Array = new Uint8Array(0);

  #expectRead({ bth }: Decoded, offset: number, length: number, mtu: number): void {
    const parts = this.talk.packets.filter(({ isRequest, frame }) => {
      const place = ahead(frame.bth.psn, bth.psn);
      return !isRequest && frame.bth.opcode !== Op.ACKNOWLEDGE && place >= 0 && place * mtu < Math.max(1, length);
    });
    this.read.push({ offset, bytes: Buffer.concat(parts.map(({ frame }) => frame.payload)) });
  }

  /**
   * Lets the card send; each captured response goes in as soon as its request is out. The card's window may be smaller
   * than the captured requester's, so that it requests an ACK where that one did not: the test sends one.
   */
  play(): void {
    this.#take(this.rig.out(this.#now));
    for (const { isRequest, frame } of this.talk.packets) {
      if (isRequest) continue;
      for (
        let sent = this.#sent;
        frame.bth.opcode === Op.ACKNOWLEDGE && ahead(sent, frame.bth.psn) < 0;
        sent = this.#sent
      ) {
        this.#answer({ ...frame, bth: { ...frame.bth, psn: sent } });
        if (this.#sent === sent) break;
      }
      this.#answer(frame);
    }
  }

  get #sent(): number {
    return this.requests.at(-1)?.psn ?? -1;
  }

  #answer(frame: Decoded): void {
    this.#now += 1000;
    const ours = underived(frame);
    ours.bth.destQp = this.qp.qpn;
    this.#take(this.rig.in(this.#now, encode({ ...ours, trailer: new Uint8Array(0) })));
    this.completions.push(...this.qp.poll());
  }

  #take(frames: readonly Uint8Array[]): void {
    for (const bytes of frames) {
      const frame = decode(bytes);
      if (!frame.icrcOk || isResponse(frame) || frame.bth.destQp !== this.talk.responder)
        throw new Error('the card sent something else than a request to the captured responder');
      this.requests.push(asked(frame));
    }
  }
}

/** The captured requests up to the last whole message, each once. */
export function capturedRequests(talk: Conversation): Asked[] {
  const frames = talk.packets.filter(({ isRequest }) => isRequest).map(({ frame }) => frame);
  const last = frames.findLastIndex(({ bth }) => OPCODES[bth.opcode] !== undefined);
  return frames.slice(0, last + 1).map(asked);
}

/** No packet was sent twice, and each follows the one before: work requests can be derived from them. */
export function isPlain(talk: Conversation): boolean {
  let psn = talk.firstPsn;
  return talk.packets.every(({ isRequest, frame }) => {
    if (!isRequest) return true;
    if (frame.bth.psn !== psn) return false;
    psn = (psn + packetsOf(frame, talk.mtu)) & 0xffffff;
    return true;
  });
}
