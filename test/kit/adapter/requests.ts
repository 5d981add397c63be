/** The rules that an adapter expects of a requester, judged packet by packet as the requests leave. */
import type { Decoded } from '../../../src/probe/packet/packets.js';
import {
  creditsIn,
  distance,
  packetsFor,
  psnAfter,
  RD_ATOMIC,
  rnrTime,
  type Seen,
  see,
  takesReceive,
  Violation,
} from './rules.js';

/** A packet that was sent and has no answer yet. A READ has a record for each packet of its response. */
interface Sent {
  readonly operation: Seen['kind']['operation'];
  /** Everything that a retransmission has to repeat; of a READ its address, key and end. */
  readonly content: string;
  readonly asksForAck: boolean;
  /** Address of this packet of a READ's response, and the one after its last byte. */
  readonly va: bigint;
  readonly end: bigint;
  readonly isLast: boolean;
}

export class RequestJudge {
  /** PSN of the next new packet. */
  #next: number;
  /** PSN that continues the packets before. */
  #cursor: number;
  /** Oldest PSN without an answer, as far as the card can know. */
  #oldest: number;
  readonly #sent = new Map<number, Sent>();
  /** The message of which only the first packets were sent, and the bytes left of a WRITE. */
  #open: 'SEND' | 'WRITE' | undefined;
  #left = 0;
  /** Number of receives that the first n messages take. */
  readonly #taken: number[] = [0];
  /** Receives that the card may take; Infinity without flow control. */
  #limit: number;
  /** PSN of the one packet that was sent beyond the limit, while it has no answer. */
  #trusted: number | undefined;
  #rnrUntil = 0;
  /** PSN to which a NAK commands the card to rewind, and to which it has done so. */
  #commanded: number | undefined;
  #rewound: number | undefined;
  /** PSN that would have followed, had the card not rewound. */
  #resume: number | undefined;

  constructor(
    psn: number,
    readonly mtu: number,
    hasCredits: boolean,
  ) {
    this.#next = psn;
    this.#cursor = psn;
    this.#oldest = psn;
    this.#limit = hasCredits ? 0 : Number.POSITIVE_INFINITY;
  }

  /** @throws Violation */
  judge(seen: Seen, now: number): void {
    const { psn } = seen.d.bth;
    if (now < this.#rnrUntil) fail(seen, `a request ${this.#rnrUntil - now} ns before the RNR timer ends`, '9.7.5.2.8');
    if (distance(this.#oldest, this.#cursor) > 0) this.#cursor = this.#oldest;
    if (this.#commanded !== undefined && psn !== this.#oldest)
      fail(seen, `a NAK asks for a rewind to PSN ${this.#oldest}`, '9.7.5.2.8');
    // one packet that is sent again on trial, and is answered, needs no others behind it
    const goesOn =
      (psn === this.#next || psn === this.#resume) &&
      this.#rewound !== undefined &&
      distance(this.#oldest, this.#rewound) > 0;
    if (psn !== this.#cursor && psn !== this.#oldest && !goesOn)
      fail(seen, `neither PSN ${this.#cursor}, which follows, nor ${this.#oldest}, the oldest unanswered`, '9.7.3.1');
    if (psn === this.#oldest && psn !== this.#cursor) this.#resume = this.#cursor;
    if (psn === this.#oldest) this.#commanded = undefined;
    if (distance(psn, this.#next) >= 0) this.#judgeNew(seen);
    else this.#judgeAgain(seen);
  }

  /** An answer reaches the card. */
  answered(bytes: Uint8Array, now: number): void {
    const { d, kind } = see(bytes);
    if (kind.operation === 'CNP') return;
    const { psn } = d.bth;
    if (distance(psn, this.#next) >= 0) return;
    const syndrome = d.aeth?.syndrome ?? 0;
    const isAck = kind.operation === 'ACK' && syndrome >>> 5 === 0;
    this.#acknowledge(isAck ? psnAfter(psn) : psn);
    const hasResult = kind.operation === 'READ_RESPONSE' || kind.operation === 'ATOMIC_ACK';
    if (hasResult && psn === this.#oldest) this.#forget();
    if (d.aeth && syndrome >>> 5 === 0) this.#credit(d.aeth);
    if (kind.operation !== 'ACK' || isAck || psn !== this.#oldest || psn === this.#cursor) return;
    if (syndrome >>> 5 === 1) {
      this.#rnrUntil = now + rnrTime(syndrome);
      this.#cursor = psn;
    } else if (this.#rewound !== psn && now >= this.#rnrUntil) {
      this.#commanded = psn;
    }
  }

  /** @throws Violation when the card waits for an answer for which it has not asked */
  quiet(): void {
    // it may also wait for its turn: for the RNR timer, or for its rate
    if (this.#sent.size === 0 || this.#cursor !== this.#next || this.#open !== undefined) return;
    if (![...this.#sent.values()].some(({ asksForAck }) => asksForAck))
      throw new Violation(`nothing from PSN ${this.#oldest} on asks for an ACK`, '9.7.3.2');
  }

  #judgeNew(seen: Seen): void {
    const { d, kind } = seen;
    const { operation, isFirst, isLast } = kind;
    this.#judgeSequence(seen);
    if (operation === 'READ' || operation === 'ATOMIC') this.#judgeDepth(seen);
    this.#judgeCredits(seen);
    if (d.bth.solicited && !(isLast && (operation === 'SEND' || d.immdt !== undefined)))
      fail(seen, 'a solicited event without a receive that it completes', '9.2.3');
    const count = operation === 'READ' ? packetsFor(d.reth?.length ?? 0, this.mtu) : 1;
    const va = d.reth?.va ?? 0n;
    const end = va + BigInt(d.reth?.length ?? 0);
    for (let i = 0; i < count; i++)
      this.#sent.set(psnAfter(this.#next, i), {
        operation,
        content: contentOf(d),
        asksForAck: d.bth.ackReq || operation === 'READ' || operation === 'ATOMIC',
        va: va + BigInt(i * this.mtu),
        end,
        isLast: i === count - 1,
      });
    this.#next = psnAfter(this.#next, count);
    this.#cursor = this.#next;
    if (isLast)
      this.#taken.push(this.#receives + (takesReceive({ ...seen, kind: { ...kind, isFirst: true } }) ? 1 : 0));
    this.#open = isLast ? undefined : isFirst ? (operation as 'SEND' | 'WRITE') : this.#open;
  }

  get #receives(): number {
    return this.#taken.at(-1) as number;
  }

  /** Order of opcodes, and length of the whole message (IBTA 9.7.4.1.2, 9.7.4.1.6). */
  #judgeSequence(seen: Seen): void {
    const { d, kind } = seen;
    if (kind.isFirst !== (this.#open === undefined) || (this.#open ?? kind.operation) !== kind.operation)
      fail(
        seen,
        `this opcode does not follow ${this.#open ? `a ${this.#open} that goes on` : 'a message'}`,
        '9.7.4.1.2',
      );
    if (kind.operation === 'ATOMIC' && (d.atomiceth?.va ?? 0n) % 8n !== 0n)
      fail(seen, 'an atomic at an address that 8 does not divide', '9.4.5.2');
    if (kind.operation !== 'WRITE') return;
    if (kind.isFirst) this.#left = d.reth?.length ?? 0;
    this.#left -= d.payload.length;
    if (kind.isLast ? this.#left !== 0 : this.#left <= 0)
      fail(seen, `${this.#left} bytes of the WRITE are left after this packet`, '9.7.4.1.6');
  }

  #judgeDepth(seen: Seen): void {
    let count = 0;
    for (const { operation, isLast } of this.#sent.values())
      if (isLast && (operation === 'READ' || operation === 'ATOMIC')) count++;
    if (count >= RD_ATOMIC)
      fail(seen, `${count} READs and atomics are outstanding, ${RD_ATOMIC} are allowed`, '9.7.4.1');
  }

  /** Beyond the credits, one packet may go, which asks for an ACK; the next one waits for its answer. */
  #judgeCredits(seen: Seen): void {
    if (this.#trusted !== undefined && seen.d.bth.psn !== this.#trusted)
      if (takesReceive(seen) || this.#open === 'SEND')
        fail(seen, `PSN ${this.#trusted} went without a credit and has no answer yet`, '9.7.7.2');
    if (!takesReceive(seen) || this.#receives < this.#limit) return;
    if (this.#receives > this.#limit) fail(seen, `${this.#limit} messages may take a receive`, '9.7.7.2');
    if (!seen.d.bth.ackReq) fail(seen, 'a message without a credit does not ask for an ACK', '9.7.7.2');
    this.#trusted = seen.d.bth.psn;
  }

  /** A retransmission repeats what it was, but for AckReq; a READ may ask for the rest alone. */
  #judgeAgain(seen: Seen): void {
    const { d, kind } = seen;
    const { psn } = d.bth;
    const before = this.#sent.get(psn) as Sent;
    let count = 1;
    if (kind.operation === 'READ' && before.operation === 'READ') {
      const { va, length } = d.reth as NonNullable<Decoded['reth']>;
      const end = va + BigInt(length);
      const isPart = end < before.end && length > 0 && length % this.mtu === 0;
      if (va !== before.va || (end !== before.end && !isPart))
        fail(seen, `this READ of ${length} bytes at ${va} is no part of the first one`, '9.7.5.1.4');
      count = packetsFor(length, this.mtu);
    }
    if (contentOf(d) !== before.content) fail(seen, 'the PSN had other contents', '9.7.5.1.4');
    this.#rewound = psn === this.#oldest ? psn : this.#rewound;
    this.#cursor = psnAfter(psn, count);
  }

  /** Everything before `end` has arrived, except for READs and atomics whose results have not. */
  #acknowledge(end: number): void {
    while (distance(end, this.#oldest) > 0) {
      const operation = this.#sent.get(this.#oldest)?.operation;
      if (operation === 'READ' || operation === 'ATOMIC') return;
      this.#forget();
    }
  }

  #forget(): void {
    if (this.#trusted === this.#oldest) this.#trusted = undefined;
    // the packet for which the RNR timer runs has an answer
    this.#rnrUntil = 0;
    this.#sent.delete(this.#oldest);
    this.#oldest = psnAfter(this.#oldest);
    this.#commanded = undefined;
  }

  #credit({ syndrome, msn }: NonNullable<Decoded['aeth']>): void {
    const credits = creditsIn(syndrome);
    const limit = credits === undefined ? Number.POSITIVE_INFINITY : (this.#taken[msn] ?? 0) + credits;
    this.#limit = Math.max(this.#limit, limit);
    // the receive that the trusted packet takes is advertised now
    if (this.#limit > this.#receives || (this.#open === undefined && this.#limit === this.#receives))
      this.#trusted = undefined;
  }
}

function fail(seen: Seen, rule: string, clause: string): never {
  throw new Violation(rule, clause, seen.bytes);
}

function contentOf({ bth, reth, atomiceth, immdt, ieth, payload }: Decoded): string {
  const isRead = bth.opcode === 0x0c;
  const atomic = atomiceth && [atomiceth.va, atomiceth.rkey, atomiceth.swapAdd, atomiceth.compare].join();
  const remote = reth && (isRead ? [reth.rkey] : [reth.va, reth.rkey, reth.length]).join();
  const data = Buffer.from(payload).toString('latin1');
  return [bth.opcode, bth.solicited, remote, atomic, immdt, ieth, data].join(' ');
}
