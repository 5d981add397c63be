/**
 * The base of the two strict peer models: the rules of every packet, the habits of adapters, and PSNs. A model judges
 * each packet of the card in the order in which it leaves, so that the network changes nothing about what is right. The
 * models share no code with the card but the second encoder and decoder.
 */
import {
  CNP,
  type Decoded,
  decode,
  describe,
  encode,
  encodeFrame,
  type Flow,
  OPCODES,
  type Packet,
  reverse,
  underived,
} from '../../../src/probe/packet/packets.js';
import type { Random } from '../random.js';

/** A strict peer at the other end of a link. Times are virtual nanoseconds. */
export interface Adapter {
  /** Judges a frame of the card when it leaves. @throws Violation when it breaks a rule */
  inspect(bytes: Uint8Array, now: number): void;
  /** A frame of the card arrives. */
  receive(bytes: Uint8Array, now: number): void;
  /** A frame of this end arrives at the card, before the card processes it. */
  delivered(bytes: Uint8Array, now: number): void;
  /** Does what is due. */
  expire(now: number): void;
  /** Nothing is in flight any more: the card waits for a timer. @throws Violation when it cannot expect an answer */
  quiet(): void;
  /** When `expire` has something to do; Infinity for never. */
  readonly deadline: number;
  /** Takes the frames that were sent since the last call. */
  take(): Uint8Array[];
}

/** READs and atomics outstanding that adapters allow. */
export const RD_ATOMIC = 16;
/** Longest message of a ConnectX, in bytes. */
const MAX_MESSAGE = 2 ** 30;
/** Nanoseconds between two CNPs of an adapter. */
const CNP_INTERVAL = 4000;
/** Receives that each credit code stands for (IBTA table 45), as far as the models need them. */
const CREDITS: readonly number[] = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
/** Microseconds of each RNR timer code (IBTA table 46). */
const RNR_TIMES: readonly number[] = [
  655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10240, 15360,
  20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
];
/** The credit code of an end that has no flow control. */
export const NO_CREDITS = 31;

/** A packet of the card that breaks a rule. */
export class Violation extends Error {
  constructor(
    readonly rule: string,
    clause: string,
    bytes?: Uint8Array,
  ) {
    super(`${rule} (IBTA ${clause})${bytes === undefined ? '' : `: ${describe(bytes)}`}`);
  }
}

/** Returns how far PSN a is ahead of b; negative when it is behind. */
export const distance = (a: number, b: number): number => ((a - b) << 8) >> 8;
export const psnAfter = (psn: number, by = 1): number => (psn + by) & 0xffffff;
/** Returns the number of packets of a message, or of the responses to a READ. */
export const packetsFor = (bytes: number, mtu: number): number => Math.max(1, Math.ceil(bytes / mtu));
/** Returns the syndrome of an ACK that advertises this many receives, rounded down. */
export const creditCode = (receives: number): number => CREDITS.findLastIndex((credits) => credits <= receives);
/** Returns the receives of an ACK's syndrome; undefined without flow control. */
export const creditsIn = (syndrome: number): number | undefined =>
  (syndrome & 31) === NO_CREDITS ? undefined : CREDITS[syndrome & 31];
/** Returns the nanoseconds of an RNR NAK's syndrome. */
export const rnrTime = (syndrome: number): number => (RNR_TIMES[syndrome & 31] as number) * 1000;

/** The operation of a packet, from the name of its opcode. */
export interface Kind {
  readonly operation: 'SEND' | 'WRITE' | 'READ' | 'ATOMIC' | 'READ_RESPONSE' | 'ACK' | 'ATOMIC_ACK' | 'CNP';
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

/** A packet of the card, decoded. */
export interface Seen {
  readonly bytes: Uint8Array;
  readonly d: Decoded;
  readonly kind: Kind;
}

const OPERATIONS: readonly (readonly [RegExp, Kind['operation']])[] = [
  [/^CNP$/, 'CNP'],
  [/^RC RDMA_READ_RESPONSE/, 'READ_RESPONSE'],
  [/^RC RDMA_READ_REQUEST$/, 'READ'],
  [/^RC ATOMIC_ACKNOWLEDGE$/, 'ATOMIC_ACK'],
  [/^RC ACKNOWLEDGE$/, 'ACK'],
  [/^RC (COMPARE_SWAP|FETCH_ADD)$/, 'ATOMIC'],
  [/^RC SEND/, 'SEND'],
  [/^RC RDMA_WRITE/, 'WRITE'],
];

export function see(bytes: Uint8Array): Seen {
  const d = decode(bytes);
  const name = OPCODES.get(d.bth.opcode)?.name ?? '';
  const operation = OPERATIONS.find(([pattern]) => pattern.test(name))?.[1];
  if (operation === undefined) throw new Violation('an adapter knows no such opcode', '9.2.1', bytes);
  const isPart = /_(FIRST|MIDDLE|LAST)(_|$)/.test(name);
  const kind = { operation, isFirst: !isPart || name.includes('FIRST'), isLast: !isPart || name.includes('LAST') };
  return { bytes, d, kind };
}

/** Returns whether a packet takes a receive of the responder. */
export function takesReceive({ d, kind }: Seen): boolean {
  return kind.operation === 'SEND' ? kind.isFirst : kind.operation === 'WRITE' && d.immdt !== undefined;
}

/** The rules of every packet of one queue pair: addresses, fixed fields, lengths, pad and ICRC. */
export class PacketJudge {
  #sport: number | undefined;

  /** @param there of packets from the adapter to the card */
  constructor(
    readonly there: Flow,
    readonly mtu: number,
  ) {}

  /** @throws Violation */
  judge(bytes: Uint8Array): Seen {
    const seen = see(bytes);
    const { d, kind } = seen;
    const back = reverse(this.there);
    const rule = (isKept: boolean, text: string, clause: string): void => {
      if (!isKept) throw new Violation(text, clause, bytes);
    };
    const { eth, ip, udp, bth } = d;
    const [traffic, hops] = ip.version === 4 ? [ip.tos, ip.ttl] : [ip.trafficClass, ip.hopLimit];
    rule(eth.src === back.srcMac && eth.dst === back.dstMac && eth.vlan === back.vlan, 'other MACs or VLAN', 'A17.3');
    rule(ip.src === back.srcIp && ip.dst === back.dstIp, 'other IP addresses', 'A17.3.1');
    rule(ip.version === 6 || ip.fragment === 0x4000, 'a fragment, or without DF', 'A17.3.1');
    rule(hops === back.hopLimit, `hop limit ${hops}, not ${back.hopLimit}`, 'A17.3.1');
    if (kind.operation !== 'CNP') rule(traffic === back.trafficClass, `traffic class ${traffic}`, 'A17.3.1');
    this.#sport ??= udp.sport;
    rule(udp.sport >= 0xc000, `source port ${udp.sport} is not dynamic`, 'A17.3.2');
    rule(udp.sport === this.#sport, `source port ${udp.sport} after ${this.#sport}`, 'A17.3.2');
    rule(udp.checksum === 0, `UDP checksum ${udp.checksum}, not 0`, 'A17.3.2');
    rule(bth.version === 0, `TVer ${bth.version}`, '9.2.5');
    rule(bth.reserved6 === 0 && bth.reserved7 === 0 && !bth.fecn, 'reserved bits are not zero', '9.2');
    rule(bth.becn === (kind.operation === 'CNP'), 'BECN is for CNPs alone', 'A17.9.3');
    rule(bth.pkey === back.pkey, `P_Key ${bth.pkey}, not ${back.pkey}`, '9.6.1');
    rule(bth.destQp === back.destQp, `queue pair ${bth.destQp}, not ${back.destQp}`, '9.6.1');
    rule(d.trailer.length === 0, `${d.trailer.length} bytes behind the packet`, 'A17.3');
    rule(d.icrcOk, 'wrong ICRC', '7.8.1');
    // lengths, header checksum, pad count and pad bytes are those that the second encoder derives
    rule(Buffer.compare(encode(underived(d)), bytes) === 0, 'wrong length, header checksum or pad', '9.2.4');
    if (kind.operation !== 'CNP') this.#length(seen, rule);
    else rule(d.payload.length === 16 && d.payload.every((byte) => byte === 0), 'a CNP is 16 zero bytes', 'A17.9.3');
    return seen;
  }

  /** The payload of one packet (IBTA 9.7.4.1.6). */
  #length({ d, kind }: Seen, rule: (isKept: boolean, text: string, clause: string) => void): void {
    const bytes = d.payload.length;
    const { isFirst, isLast, operation } = kind;
    const hasData = operation === 'SEND' || operation === 'WRITE' || operation === 'READ_RESPONSE';
    rule(hasData || bytes === 0, `${bytes} bytes in a packet without data`, '9.7.4.1.6');
    rule(bytes <= this.mtu, `${bytes} bytes, the path MTU is ${this.mtu}`, '9.7.4.1.6');
    rule(isLast || bytes === this.mtu, `${bytes} bytes within a message, the path MTU is ${this.mtu}`, '9.7.4.1.6');
    rule(isFirst || !isLast || bytes > 0, 'a last packet without data', '9.7.4.1.6');
    rule((d.reth?.length ?? 0) <= MAX_MESSAGE, `${d.reth?.length} bytes, adapters take ${MAX_MESSAGE}`, '9.7.4.1.6');
  }
}

/** Makes frames as adapters do: ECT and no UDP checksum on everything, reserved bits, odd source ports. */
export class Habits {
  readonly #flow: Flow;
  readonly #counts: boolean;
  readonly #reserved6: number;
  readonly #frames: Uint8Array[] = [];
  #id: number;
  #cnpAt = Number.NEGATIVE_INFINITY;

  constructor(there: Flow, random: Random) {
    this.#flow = { ...there, trafficClass: 2, sport: random.pick([0, 69, there.srcQp, 0xfa4f]) };
    this.#counts = random.chance(0.5);
    this.#reserved6 = random.pick([0, 0x10]);
    this.#id = this.#counts ? random.below(65536) : 0;
  }

  send(...packets: readonly Packet[]): void {
    for (const packet of packets) {
      if (this.#counts) this.#id = (this.#id + 1) & 0xffff;
      const bth = { ...packet.bth, reserved6: this.#reserved6 };
      this.#frames.push(encodeFrame({ ...this.#flow, ipId: this.#id }, { ...packet, bth }));
    }
  }

  /** Answers congestion marks with CNPs of their own class, one in 4 us. */
  heed({ ip }: Decoded, now: number): void {
    const traffic = ip.version === 4 ? ip.tos : ip.trafficClass;
    if ((traffic & 3) !== 3 || now < this.#cnpAt + CNP_INTERVAL) return;
    this.#cnpAt = now;
    const bth = { opcode: CNP, psn: 0, ackReq: false, solicited: false, migReq: false, becn: true };
    this.#frames.push(
      encodeFrame({ ...this.#flow, sport: 0, trafficClass: 0xc2 }, { bth, payload: new Uint8Array(16) }),
    );
  }

  take(): Uint8Array[] {
    return this.#frames.splice(0);
  }
}
