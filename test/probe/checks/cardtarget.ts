/** Our own card as the target of checks, in virtual time: each check gets a new queue pair of one card. */
import type {
  CmPeer,
  Requester,
  RequesterOptions,
  Responder,
  ResponderOptions,
  Target,
  TrafficRequest,
} from '../../../src/probe/checks/target.js';
import { decode } from '../../../src/probe/packet/decode.js';
import { type Flow, flowOf } from '../../../src/probe/packet/packets.js';
import type { Arrival, PacketPort } from '../../../src/probe/script/port.js';
import { type Region, Rig, type RigQp } from '../../kit/rig.js';
import { CmCard } from './cmcard.js';

const MTU = 1024;
const RECEIVES = 8;
const RECEIVE_BYTES = 4096;
const RNR_TIMER = 12;
const RESOURCES = 16;
/** Bit 0: local write, 1: remote write, 2: remote read, 3: remote atomic. */
const READ_ONLY = 5;
/** Memory of the check, which the card's requests name. */
const REMOTE = { va: 0x6000_0000_0000n, rkey: 0x9abc00, length: 65536 };
const FIRST_PSN = 1000;
/** Messages of a card that sends without end: more than any check receives. */
const ENDLESS = 200;

export class CardTarget implements Target {
  readonly #region: Region;
  readonly #readOnly: Region;
  readonly #buffer: Region;
  /** By the number of the check's queue pair. */
  readonly #ports = new Map<number, CardPort>();
  now = 1_000_000;

  private constructor(
    readonly rig: Rig,
    readonly endless?: Pick<TrafficRequest, 'opcode' | 'length'>,
  ) {
    this.#region = rig.region(65536, 15, 0x4000_0000_0000n);
    this.#readOnly = rig.region(4096, READ_ONLY, 0x5000_0000_0000n);
    this.#buffer = rig.region(RECEIVES * RECEIVE_BYTES);
  }

  /** @param endless kind and length of the messages that the card sends of itself, without end */
  static async open(endless?: Pick<TrafficRequest, 'opcode' | 'length'>): Promise<CardTarget> {
    // the queue pairs of all checks
    return new CardTarget(await Rig.create(1, { memoryBytes: 64 * 2 ** 20, maxQp: 256 }), endless);
  }

  async responder({ psn = 100, noReceives, mtu = MTU }: ResponderOptions): Promise<Responder> {
    const qp = this.rig.qp();
    const port = this.#open(qp, mtu);
    const attributes = { minRnrTimer: RNR_TIMER, maxDestRdAtomic: RESOURCES };
    qp.connect({ destQpn: port.flow.srcQp, sqPsn: FIRST_PSN, rqPsn: psn, mtu, ...attributes });
    const posted = noReceives ? 0 : RECEIVES;
    for (let i = 0; i < posted; i++) qp.recv(i, [this.#buffer.piece(i * RECEIVE_BYTES, RECEIVE_BYTES)]);
    return {
      port,
      psn,
      region: { va: this.#region.iova, rkey: this.#region.rkey, length: this.#region.length },
      readOnly: { va: this.#readOnly.iova, rkey: this.#readOnly.rkey, length: this.#readOnly.length },
      receives: posted,
      hasFlowControl: false,
      receiveBytes: RECEIVE_BYTES,
      resources: RESOURCES,
      rnrTimer: RNR_TIMER,
    };
  }

  async requester(options: RequesterOptions): Promise<Requester> {
    const { timeout = 14, retryCnt = 7, rnrRetry = 7, flowControl = false } = options;
    const qp = this.rig.qp({ sendWr: 1024, cqe: 4096, flowControl });
    const port = this.#open(qp);
    qp.connect({ destQpn: port.flow.srcQp, sqPsn: FIRST_PSN, rqPsn: 100, timeout, retryCnt, rnrRetry });
    const { endless } = this;
    if (endless !== undefined) this.#post(qp, { ...endless, count: ENDLESS });
    return {
      port,
      psn: FIRST_PSN,
      region: REMOTE,
      isEndless: endless !== undefined,
      offers: endless === undefined ? ['SEND', 'WRITE', 'READ'] : [endless.opcode],
      timeout,
      retryCnt,
      rnrRetry,
      hasFlowControl: flowControl,
      request: (messages) => {
        if (endless === undefined) this.#post(qp, messages);
        return port.now();
      },
    };
  }

  async cm(): Promise<CmPeer> {
    return new CmCard(this.rig);
  }

  #post(qp: RigQp, { opcode, length, count }: TrafficRequest): void {
    qp.poll();
    const pieces = [this.#region.piece(0, length)];
    for (let i = 0; i < count; i++)
      qp.send({ opcode: opcode === 'SEND' ? 'SEND' : `RDMA_${opcode}`, pieces, remote: REMOTE });
  }

  #open(qp: RigQp, mtu = MTU): CardPort {
    const ours = 0x100 + this.#ports.size;
    const port = new CardPort(this, flowOf({ destQp: qp.qpn, srcQp: ours }), mtu);
    this.#ports.set(ours, port);
    return port;
  }

  /** Hands frames of the card to the ports. */
  sort(frames: readonly Uint8Array[]): void {
    for (const frame of frames) this.#ports.get(decode(frame).bth.destQp)?.arrivals.push({ frame, at: this.now });
  }
}

class CardPort implements PacketPort {
  readonly arrivals: Arrival[] = [];

  constructor(
    readonly target: CardTarget,
    readonly flow: Flow,
    readonly mtu: number,
  ) {}

  now(): number {
    return this.target.now;
  }

  send(frame: Uint8Array): number {
    const { target } = this;
    target.sort(target.rig.in(target.now, frame));
    return target.now;
  }

  async receive(until: number): Promise<Arrival | undefined> {
    const { target } = this;
    for (;;) {
      target.sort(target.rig.out(target.now));
      const first = this.arrivals.shift();
      if (first !== undefined) return first;
      if (target.now >= until) return undefined;
      const deadline = target.rig.x.nextDeadline();
      target.now = deadline === 0 ? until : Math.min(until, Math.max(deadline, target.now));
    }
  }
}
