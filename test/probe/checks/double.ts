/**
 * A peer that is wrong on purpose: a small responder, a requester (doublerequester.ts) and a connection manager
 * (doublemanager.ts) of its own, written from the specification, with bugs that can be switched on one by one. Without
 * bugs it is a correct peer. It shares nothing with the card.
 */
import {
  type CmPeer,
  isPermitted,
  type Operation,
  type RemoteOperation,
  type Requester,
  type RequesterOptions,
  type Responder,
  type ResponderOptions,
  type Target,
} from '../../../src/probe/checks/target.js';
import { decode, underived } from '../../../src/probe/packet/decode.js';
import { encode } from '../../../src/probe/packet/encode.js';
import type { Decoded, Frame } from '../../../src/probe/packet/frame.js';
import { CNP, OPCODES, Op, UD_SEND_ONLY } from '../../../src/probe/packet/opcodes.js';
import {
  ack,
  type Flow,
  flowOf,
  frameOf,
  nak,
  type Packet,
  response,
  reverse,
} from '../../../src/probe/packet/packets.js';
import type { Arrival, PacketPort } from '../../../src/probe/script/port.js';
import type { Bug } from './doublebugs.js';
import { DoubleManager, type ManagerBug } from './doublemanager.js';
import { DoubleRequester, type RequesterBug } from './doublerequester.js';

const MTU = 1024;
const VA = 0x4000_0000_0000n;
const READ_ONLY_VA = 0x5000_0000_0000n;
const RECEIVE_BYTES = 4096;
const RECEIVES = 8;
/** Receives of a peer that permits nothing but SENDs. */
const MANY_RECEIVES = 64;
const REMOTE: readonly RemoteOperation[] = ['WRITE', 'READ', 'ATOMIC'];
const RNR_TIMER = 12;
const CNP_INTERVAL = 50_000;
const RESOURCES = 16;
/** Bytes that a UDP header says which is wrong about them: no packet of ours has so many. */
const OTHER_LENGTH = 5001;

interface Memory {
  readonly va: bigint;
  readonly rkey: number;
  readonly bytes: Uint8Array;
  readonly isWritable: boolean;
}

/** All queue pairs of the peer, and its memory. */
export class Double implements Target {
  readonly memory: readonly Memory[] = [
    { va: VA, rkey: 0x1234_00, bytes: new Uint8Array(65536), isWritable: true },
    { va: READ_ONLY_VA, rkey: 0x5678_00, bytes: new Uint8Array(4096), isWritable: false },
  ];
  now = 1_000_000;
  /** The queue pair that has a gap, and the one that has repeated a READ. */
  gapOf: object | undefined;
  repairOf: object | undefined;
  /** SENDs of each queue pair that come before its receives are posted. */
  early = 0;
  #opened = 0;
  #responses = 0;

  constructor(
    readonly bug?: Bug | RequesterBug | ManagerBug,
    /** The one operation that its queue pairs permit, as those of perftest do. Absent: all. */
    readonly only?: Operation,
  ) {}

  /** Whether a response is one of those that rare bugs change. */
  isHundredth(): boolean {
    return this.#responses++ % 100 === 99;
  }

  async cm(): Promise<CmPeer> {
    return new DoubleManager(this, this.bug);
  }

  async responder(options: ResponderOptions): Promise<Responder | string> {
    const { psn = 100, noReceives, mtu = MTU } = options;
    const { only } = this;
    const all: readonly Operation[] = noReceives ? REMOTE : [...REMOTE, 'SEND'];
    if (!isPermitted(options, only ? [only] : all)) return 'another server';
    const there = flowOf({ destQp: 0x1000 + this.#opened, srcQp: 0x100 + this.#opened++ });
    const many = only === 'SEND' ? MANY_RECEIVES : 0;
    const posted = only ? many : noReceives ? 0 : RECEIVES;
    const permits = only ? REMOTE.filter((one) => one === only) : REMOTE;
    const [region, readOnly] = this.memory.map(({ va, rkey, bytes }) => ({ va, rkey, length: bytes.length }));
    if (region === undefined || readOnly === undefined) throw new Error('no memory');
    const isIgnored = this.bug === 'mtuIgnored';
    const port = new DoubleQueue(this, there, psn, posted, mtu, isIgnored ? MTU : mtu);
    return {
      port,
      psn,
      region,
      readOnly,
      permits,
      receives: posted,
      receiveBytes: RECEIVE_BYTES,
      resources: RESOURCES,
      rnrTimer: RNR_TIMER,
    };
  }

  async release(): Promise<void> {
    this.gapOf = undefined;
    this.repairOf = undefined;
  }

  async requester({
    timeout = 14,
    retryCnt = 7,
    rnrRetry = 7,
    flowControl = false,
  }: RequesterOptions): Promise<Requester> {
    const there = flowOf({ destQp: 0x1000 + this.#opened, srcQp: 0x100 + this.#opened++ });
    const port = new DoubleRequester(this, there, { timeout, retryCnt, rnrRetry, hasFlowControl: flowControl });
    return port;
  }
}

/** A message of several packets that is not at its end. */
interface Message {
  /** PSN of its first packet. */
  start?: number;
  readonly kind: 'SEND' | 'WRITE';
  readonly memory: Memory | undefined;
  at: number;
  left: number;
}

/** Returns the highest credit code for no more receives than these: those of 4, 6, 8, 12 and 16 are 4 to 8. */
function creditCode(receives: number): number {
  if (receives < 4) return receives;
  const table = [4, 6, 8, 12, 16, 24, 32, 48, 64];
  return 4 + table.findLastIndex((one) => one <= receives);
}

const distance = (a: number, b: number): number => ((a - b) << 8) >> 8;
const after = (psn: number, packets: number): number => (psn + packets) & 0xffffff;
const isRead = (opcode: number): boolean => opcode === Op.RDMA_READ_REQUEST;
const isAtomic = (opcode: number): boolean => opcode === Op.COMPARE_SWAP || opcode === Op.FETCH_ADD;

/** The last packet of a response to a READ or an atomic operation. */
const ENDS_RESPONSE = [Op.RDMA_READ_RESPONSE_LAST, Op.RDMA_READ_RESPONSE_ONLY, Op.ATOMIC_ACKNOWLEDGE];

/** One queue pair of the peer, and the port through which a check talks to it. */
class DoubleQueue implements PacketPort {
  readonly #out: Arrival[] = [];
  readonly #first: number;
  #expected: number;
  /** The highest PSN beyond a gap. */
  #highest: number;
  #msn = 0;
  #receives: number;
  #early: number;
  #message: Message | undefined;
  #nakSent = false;
  #naksEver = 0;
  #rnrSent = false;
  #rnrNakSent = false;
  #isError = false;
  #nextCnp = 0;
  #isTagged = false;
  #said = 0;
  readonly #seen = new Set<string>();
  #kept: { readonly psn: number; readonly data: Uint8Array } = { psn: 0, data: new Uint8Array(0) };
  #lastPort: number | undefined;
  readonly #atomics = new Map<number, bigint>();

  constructor(
    readonly peer: Double,
    readonly flow: Flow,
    psn: number,
    receives: number,
    readonly mtu: number,
    /** Bytes of its full packets. */
    readonly most: number,
  ) {
    this.#first = psn;
    this.#expected = psn;
    this.#highest = after(psn, -1);
    this.#receives = receives;
    this.#early = peer.early;
  }

  #has(bug: Bug): boolean {
    return this.peer.bug === bug;
  }

  now(): number {
    return this.peer.now;
  }

  send(bytes: Uint8Array): number {
    let request: Decoded | undefined;
    try {
      request = decode(bytes);
    } catch {
      // truncated: dropped
    }
    if (this.#has('answersRepeats') && !this.#isRepeated(bytes)) return this.peer.now;
    if (request !== undefined) request = this.#mistaken(request);
    if (this.#has('ackOld') && (request === undefined || !this.#isAdmitted(request)))
      this.#ack(after(this.#expected, -1));
    if (request !== undefined && this.#isAdmitted(request)) this.#congestion(request);
    if (request !== undefined && this.#isAdmitted(request) && !this.#isError) this.#request(request);
    else if (request !== undefined && this.#isAdmitted(request)) this.#inError(request);
    return this.peer.now;
  }

  async receive(until: number): Promise<Arrival | undefined> {
    this.#out.sort((a, b) => a.at - b.at);
    const [first] = this.#out;
    if (first === undefined || first.at > until) {
      this.peer.now = Math.max(this.peer.now, until);
      return undefined;
    }
    this.#out.shift();
    this.peer.now = Math.max(this.peer.now, first.at);
    return first;
  }

  /** Whether the packet has come before. */
  #isRepeated(bytes: Uint8Array): boolean {
    const text = Buffer.from(bytes).toString('latin1');
    const isKnown = this.#seen.has(text);
    this.#seen.add(text);
    return isKnown;
  }

  /** The effect of bugs on a packet that is not for the queue pair. */
  #mistaken(packet: Decoded): Decoded | undefined {
    const { bth, eth } = packet;
    this.#isTagged = eth.vlan !== undefined;
    const { gapOf } = this.peer;
    if (this.#has('gapStopsOthers') && gapOf !== undefined && gapOf !== this) return undefined;
    if (this.#has('udTaken') && bth.opcode === UD_SEND_ONLY) this.#expected = after(this.#expected, 1);
    if (this.#has('datagramsAnswer') && bth.destQp === 1) this.#say(nak.invalidRequest({ psn: bth.psn }));
    if (!this.#has('ucTaken') || bth.opcode >>> 5 !== 1) return packet;
    return { ...packet, bth: { ...bth, opcode: bth.opcode & 0x1f } };
  }

  /** The checks of headers, after which a packet belongs to the queue pair. */
  #isAdmitted({ icrcOk, bth, eth, ip, udp }: Decoded): boolean {
    if (!icrcOk && !this.#has('icrcUnchecked')) return false;
    if (bth.version !== 0 && !this.#has('versionUnchecked')) return false;
    if (bth.opcode >= 0x20) return false;
    if ((bth.reserved6 || bth.reserved7) && this.#has('reservedRefused')) return false;
    if ((bth.pkey & 0x7fff) !== 0x7fff && !this.#has('pkeyUnchecked')) return false;
    if (ip.src !== this.flow.srcIp && !this.#has('sourceUnchecked')) return false;
    if (bth.destQp !== this.flow.destQp && !this.#has('queueUnchecked')) return false;
    if (ip.version === 4 && (ip.tos & 3) === 1 && this.#has('ecnRefused')) return false;
    if (((eth.vlan ?? 0) & 0xfff) !== 0 && !this.#has('vlanUnchecked')) return false;
    if (eth.vlan !== undefined && this.#has('priorityTagDropped')) return false;
    this.#lastPort ??= udp.sport;
    return udp.sport === this.#lastPort || !this.#has('portChecked');
  }

  #congestion({ ip, bth }: Decoded): void {
    if (ip.version !== 4 || (ip.tos & 3) !== 3 || this.#has('noCnp')) return;
    if (this.peer.now < this.#nextCnp && !this.#has('cnpFlood')) return;
    this.#nextCnp = this.peer.now + CNP_INTERVAL;
    this.#cnp(bth.psn);
  }

  #cnp(psn: number): void {
    this.#say({
      bth: {
        opcode: CNP,
        psn: this.#has('cnpPsn') ? psn : 0,
        ackReq: false,
        solicited: false,
        becn: !this.#has('cnpNoBecn'),
      },
      payload: new Uint8Array(this.#has('cnpShort') ? 0 : 16),
    });
  }

  #say(packet: Packet, delay = 0): void {
    const back: Frame = frameOf(reverse(this.flow), packet);
    if (this.#has('tagOfOwn') && this.#isTagged) back.eth.vlan = 7;
    if (this.#has('migReqZero')) back.bth.migReq = false;
    if (this.#has('mayFragment') && back.ip.version === 4) back.ip.fragment = 0;
    this.#spoil(back);
    let bytes = encode(back);
    const { icrc, bth } = decode(bytes);
    const isRare = this.#has('icrcRare') && this.peer.isHundredth();
    if (this.#has('icrcWrong') || (this.#has('icrcPadWrong') && bth.pad > 0) || isRare)
      bytes = encode({ ...underived(decode(bytes)), icrc: (icrc ^ 1) >>> 0 });
    this.#out.push({ frame: bytes, at: this.peer.now + delay });
  }

  /** The effect of bugs on the headers of a response. */
  #spoil({ bth, ip, udp }: Frame): void {
    this.#said++;
    if (this.#has('pkeyOwn')) bth.pkey = 0x8123;
    if (this.#has('versionOwn')) bth.version = 1;
    if (this.#has('opcodeOwn') && this.peer.isHundredth()) bth.opcode = 0x1f;
    if (this.#has('addressOwn')) ip.src = '10.99.0.1';
    if (this.#has('udpLengthOwn')) udp.length = OTHER_LENGTH;
    if (this.#has('reservedOwn')) bth.reserved7 = 1;
    if (this.#has('migReqAlternates')) bth.migReq = this.#said % 2 === 0;
    if (this.#has('portChanges')) udp.sport = 0xc000 + (this.#said & 63);
    if (this.#has('markedOwn') && ip.version === 4 && this.peer.isHundredth()) ip.tos |= 3;
  }

  #ack(psn: number, msn = this.#msn): void {
    const syndrome = this.#has('tooManyCredits') ? 20 : this.#has('creditsNone') ? 31 : creditCode(this.#receives);
    const packet = ack({ psn: this.#has('ackOfTheFuture') ? after(psn, 1) : psn, msn, syndrome });
    if (this.#has('ackWithPayload')) packet.payload = new Uint8Array(4);
    this.#say(packet);
  }

  /** A NAK after which the queue pair is in error. */
  #refuse(code: number, psn: number): void {
    this.#isError = !this.#has('aliveAfterNak');
    this.#say(ack({ psn, msn: this.#msn, syndrome: code }));
  }

  #inError(packet: Decoded): void {
    const isRepeated = distance(packet.bth.psn, this.#expected) < 0;
    if (isRepeated && this.#has('repeatsInError')) this.#duplicate(packet);
    const { reth, payload } = packet;
    if (!isRepeated && this.#has('writesInError') && payload.length > 0) this.#store(reth?.va ?? VA, payload);
  }

  #request(packet: Decoded) {
    const { psn, opcode } = packet.bth;
    let ahead = distance(psn, this.#expected);
    if (this.#has('wrapBroken') && psn < this.#first && this.#first > 0xf00000) ahead = -1;
    if (ahead < 0) return this.#duplicate(packet);
    if (ahead > 0 && this.#rnrSent) return this.#afterRnr(packet);
    if (ahead > 0) return this.#gap(psn);
    this.#nakSent = false;
    this.#rnrSent = false;
    if (this.peer.gapOf === this) this.peer.gapOf = undefined;
    if (!OPCODES.has(opcode)) {
      if (!this.#has('reservedOpcodeSilent')) this.#refuse(0x61, psn);
      return;
    }
    this.#execute(packet);
    if (this.#has('gapForgotten') && distance(this.#highest, this.#expected) >= 0) this.#forgetGap();
  }

  #forgetGap(): void {
    this.#expected = after(this.#highest, 1);
    this.#message = undefined;
  }

  #afterRnr(packet: Decoded): void {
    if (this.#has('rnrThenNak') && !this.#rnrNakSent) {
      this.#rnrNakSent = true;
      this.#say(nak.sequence({ psn: this.#expected, msn: this.#msn }));
    }
    if (this.#has('rnrGoesOn')) {
      const expected = this.#expected;
      this.#store(packet.reth?.va ?? VA, packet.payload);
      this.#expected = expected;
    }
  }

  #gap(psn: number): void {
    if (distance(psn, this.#highest) > 0) this.#highest = psn;
    this.peer.gapOf = this;
    const isOver = this.#has('nakOnceOnly') && this.#naksEver > 0;
    if ((this.#nakSent && !this.#has('nakRepeated')) || isOver) return;
    this.#nakSent = true;
    this.#naksEver++;
    const expected = this.#has('nakPsnWrong') ? psn : this.#expected;
    const isHalf = this.#has('nakLateHalf') && this.#naksEver % 2 === 0;
    const delay = this.#has('nakLate') ? 200e6 : isHalf ? 20e6 : 0;
    this.#say(nak.sequence({ psn: expected, msn: this.#msn }), delay);
    if (this.#has('cnpWithNak')) this.#cnp(psn);
  }

  #store(va: bigint, data: Uint8Array): void {
    const memory = this.peer.memory[0] as Memory;
    memory.bytes.set(data.subarray(0, memory.bytes.length - Number(va - memory.va)), Number(va - memory.va));
  }

  #duplicate(packet: Decoded): void {
    const { bth, reth } = packet;
    if (isRead(bth.opcode)) {
      this.peer.repairOf = this;
      if (!this.#has('duplicateReadSilent')) this.#answerRead(packet, false);
    } else if (isAtomic(bth.opcode)) {
      const saved = this.#atomics.get(bth.psn);
      if (saved === undefined) {
        this.#oldAtomic(packet);
        return;
      }
      const original = this.#has('duplicateAtomicWrong') ? saved + 1n : saved;
      if (this.#has('duplicateAtomicTwice')) this.#atomic(packet);
      this.#say(response.atomicAck({ psn: bth.psn, msn: this.#msn, original }));
    } else {
      const isSend = reth === undefined;
      if (isSend && this.#has('duplicateSendExecuted') && this.#receives > 0) this.#receives--;
      if (!isSend && this.#has('duplicateExecuted')) this.#store(reth.va, packet.payload);
      if (isSend || !this.#has('duplicateSilent')) this.#ack(after(this.#expected, -1));
    }
  }

  #oldAtomic(packet: Decoded): void {
    if (this.#has('oldAtomicTwice')) this.#atomic(packet);
    const wrong = { psn: packet.bth.psn, msn: this.#msn, original: 0xdeadn };
    if (this.#has('oldAtomicWrong')) this.#say(response.atomicAck(wrong));
  }

  /** Returns the memory of a key, or the NAK code that refuses it. */
  #find(rkey: number, va: bigint, length: number, isWrite: boolean): Memory | number {
    const memory = this.peer.memory.find((one) => one.rkey === rkey);
    if (memory === undefined) return 0x62;
    const at = va - memory.va;
    if (at < 0n || at + BigInt(length) > BigInt(memory.bytes.length)) return 0x62;
    if (isWrite && !memory.isWritable && !this.#has('rightsUnchecked')) return this.#has('rightsCode') ? 0x61 : 0x62;
    return memory;
  }

  #execute(packet: Decoded): void {
    const { opcode, psn } = packet.bth;
    const { only } = this.peer;
    const operation = isRead(opcode) ? 'READ' : isAtomic(opcode) ? 'ATOMIC' : packet.reth ? 'WRITE' : undefined;
    if (only && operation && operation !== only) this.#refuse(0x62, psn);
    else if ((isRead(opcode) || isAtomic(opcode)) && this.#isFull()) this.#tooMany(packet);
    else if (isRead(opcode)) this.#answerRead(packet, true);
    else if (isAtomic(opcode)) this.#newAtomic(packet);
    else this.#data(packet);
  }

  /** Returns how many packets of some opcodes wait for the link. */
  #waiting(opcodes: readonly number[]): number {
    return this.#out.filter(({ frame }) => opcodes.includes(decode(frame).bth.opcode)).length;
  }

  /** Whether as many READs and atomic operations wait for the link as there are resources. */
  #isFull(): boolean {
    return this.#waiting(ENDS_RESPONSE) >= (this.#has('readsRefusedEarly') ? RESOURCES / 2 : RESOURCES);
  }

  #tooMany({ bth }: Decoded): void {
    if (this.#has('readsForgotten')) this.#expected = after(bth.psn, 1);
    else this.#refuse(this.#has('readsOperational') ? 0x63 : 0x61, bth.psn);
  }

  #answerRead({ bth, reth }: Decoded, isNew: boolean) {
    if (reth === undefined) return;
    const { va, rkey, length } = reth;
    let found: Memory | number = this.#find(rkey, va, length, false);
    const [region] = this.peer.memory;
    const known = this.peer.memory.some((one) => one.rkey === rkey);
    if (length === 0 && !this.#has('zeroLengthChecked')) found = region as Memory;
    if (length > 0 && !known && this.#has('keyUncheckedRead')) found = region as Memory;
    if (known && this.#has('readBoundsUnchecked')) found = region as Memory;
    if (typeof found === 'number') return this.#refuse(found, bth.psn);
    const from = Number(va - found.va);
    const isPadded = length === 0 && known && this.#has('emptyReadPadded');
    const data = new Uint8Array(isPadded ? 4 : length);
    if (length > 0) data.set(found.bytes.subarray(from, from + length));
    if (isNew) this.#kept = { psn: bth.psn, data };
    const at = distance(bth.psn, this.#kept.psn) * this.mtu;
    if (!isNew && this.#has('readKept')) data.set(this.#kept.data.subarray(at, at + length));
    if (!isNew && this.#has('readEndWrong')) data[length - 1] = ~(data[length - 1] ?? 0);
    const count = Math.max(1, Math.ceil(length / this.most));
    if (isNew) {
      this.#expected = after(this.#expected, count);
      if (!this.#has('msnStale')) this.#msn++;
    }
    for (const one of response.read({ psn: bth.psn, payload: data, mtu: this.most, msn: this.#msn })) {
      if (this.#has('readPsnStuck')) one.bth.psn = bth.psn;
      if (!isNew && at > 0 && this.#has('readRestMiddle') && one.bth.opcode === Op.RDMA_READ_RESPONSE_FIRST) {
        one.bth = { ...one.bth, opcode: Op.RDMA_READ_RESPONSE_MIDDLE };
        one.aeth = undefined as never;
      }
      const isLast = one.bth.opcode === Op.RDMA_READ_RESPONSE_LAST;
      if (isLast && this.#has('readShort')) one.payload = one.payload.subarray(1);
      if (one.bth.opcode === Op.RDMA_READ_RESPONSE_MIDDLE && this.#has('readNoMiddle'))
        Object.assign(one, {
          bth: { ...one.bth, opcode: Op.RDMA_READ_RESPONSE_FIRST },
          aeth: { syndrome: 31, msn: 0 },
        });
      this.#say(one);
    }
  }

  #atomic({ bth, atomiceth }: Decoded): bigint {
    const { va, swapAdd, compare } = atomiceth as NonNullable<Decoded['atomiceth']>;
    const { buffer } = (this.peer.memory[0] as Memory).bytes;
    const cell = new DataView(buffer, Number(va - VA), 8);
    const before = cell.getBigUint64(0, true);
    const isSwap = before === compare || this.#has('compareIgnored');
    if (bth.opcode === Op.FETCH_ADD) cell.setBigUint64(0, BigInt.asUintN(64, before + swapAdd), true);
    else if (isSwap) cell.setBigUint64(0, swapAdd, true);
    return before;
  }

  #newAtomic(packet: Decoded) {
    const { psn, opcode } = packet.bth;
    const { va, rkey, swapAdd } = packet.atomiceth as NonNullable<Decoded['atomiceth']>;
    if (va % 8n !== 0n && !this.#has('unalignedAccepted')) return this.#refuse(0x61, psn);
    const found = this.#find(rkey, va, 8, true);
    const isUnknown = !this.peer.memory.some((one) => one.rkey === rkey);
    if (typeof found === 'number' && !(isUnknown && this.#has('keyUncheckedAtomic'))) return this.#refuse(found, psn);
    this.#expected = after(this.#expected, 1);
    this.#msn++;
    const before = this.#atomic(packet);
    const isAfter = this.#has('atomicOnlyReads') && opcode === Op.FETCH_ADD;
    const original = isAfter ? before + swapAdd : before;
    this.#atomics.set(psn, original);
    const [oldest] = this.#atomics.keys();
    if (this.#atomics.size > RESOURCES && oldest !== undefined) this.#atomics.delete(oldest);
    this.#say(response.atomicAck({ psn, msn: this.#msn, original }));
  }

  /** A packet of a SEND or WRITE. */
  #data(packet: Decoded) {
    const { bth, payload, ieth } = packet;
    const name = OPCODES.get(bth.opcode)?.name ?? '';
    const [isFirst, isLast] = [/FIRST|ONLY/.test(name), /LAST|ONLY/.test(name)];
    if (isFirst === (this.#message !== undefined) && !(isFirst && this.#has('sequenceUnchecked')))
      return this.#outOfSequence(bth.psn, isFirst);
    if (isFirst) this.#message = undefined;
    const message = this.#message ?? this.#begin(packet);
    if (message === undefined) return;
    message.start ??= bth.psn;
    const isShort = !isLast && payload.length !== this.mtu;
    if (isShort && !this.#has('middleShort')) return this.#refuse(0x61, bth.psn);
    message.left -= payload.length;
    if (message.left < 0 || (message.kind === 'WRITE' && isLast && message.left > 0)) {
      const isTolerated = this.#has(message.kind === 'SEND' ? 'longSendCut' : 'lengthUnchecked');
      const code = message.kind === 'SEND' && this.#has('longSendCode') ? 0x63 : 0x61;
      if (!isTolerated) return this.#refuse(code, bth.psn);
    }
    const { repairOf } = this.peer;
    if (this.#has('repairSpoilsOthers') && repairOf !== undefined && repairOf !== this) payload[0] = ~(payload[0] ?? 0);
    const isSkipped = this.#has('burstSkipped') && this.#waiting([Op.ACKNOWLEDGE]) >= 32;
    if (!isSkipped)
      message.memory?.bytes.set(payload.subarray(0, Math.max(0, message.memory.bytes.length - message.at)), message.at);
    message.at += payload.length;
    this.#expected = after(this.#expected, 1);
    this.#message = isLast ? undefined : message;
    if (isLast) this.#msn++;
    if (isLast && message.kind === 'SEND') this.#receives--;
    if (ieth !== undefined && this.#has('invalidateNak')) this.#refuse(0x62, bth.psn);
    // class J: the queue pair is in error, and says nothing
    if (ieth !== undefined && !this.#has('invalidateAlive')) this.#isError = true;
    if (this.#isError) return;
    const isCountedEarly = this.#has('msnEarly') && !isLast;
    const isLong = isLast && message.start !== undefined && distance(bth.psn, message.start) >= 32;
    if (bth.ackReq && !(isLong && this.#has('longWriteSilent')))
      this.#ack(bth.psn, this.#msn + (isCountedEarly ? 1 : 0));
  }

  #outOfSequence(psn: number, isFirst: boolean): void {
    if (isFirst || !this.#has('middleDropped')) this.#refuse(0x61, psn);
  }

  /** The first packet of a SEND or WRITE. @returns undefined when it is refused */
  #begin({ bth, reth, payload }: Decoded): Message | undefined {
    const isEmpty = payload.length === 0;
    if (reth === undefined) {
      if (isEmpty && this.#has('emptySendRefused')) {
        this.#refuse(0x61, bth.psn);
        return undefined;
      }
      if (this.#receives > 0 && this.#early-- <= 0)
        return { kind: 'SEND', memory: undefined, at: 0, left: RECEIVE_BYTES };
      this.#rnrSent = true;
      const psn = this.#has('rnrPsnWrong') ? after(bth.psn, 1) : bth.psn;
      this.#say(nak.rnr({ psn, msn: this.#msn, timer: this.#has('rnrCodeWrong') ? 1 : RNR_TIMER }));
      return undefined;
    }
    const { va, rkey, length } = reth;
    if (length === 0 && !this.#has('zeroLengthWriteChecked'))
      return { kind: 'WRITE', memory: undefined, at: 0, left: 0 };
    let found: Memory | number = this.#find(rkey, va, length, true);
    const [region] = this.peer.memory as [Memory];
    if (rkey !== region.rkey && length > 0 && va === VA && this.#has('keyUncheckedWrite')) found = region;
    const isOver = rkey === region.rkey && typeof found === 'number';
    if (isOver && this.#has('boundsUnchecked')) found = region;
    if (isOver && this.#has('boundsLate')) region.bytes.fill(0, Number(va - VA));
    if (typeof found !== 'number') return { kind: 'WRITE', memory: found, at: Number(va - found.va), left: length };
    const isKey = rkey !== region.rkey && this.#has('nakKeyPsnWrong');
    this.#refuse(found, isKey ? after(bth.psn, -1) : bth.psn);
    return undefined;
  }
}
