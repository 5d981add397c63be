/**
 * Loss of the path, in both directions. A check that loses a packet must not look like a defect of the peer, and a peer
 * that answers repetitions only must not look like a path that loses packets.
 */
import { decodeRoce } from '../packet/decode.js';
import type { Decoded } from '../packet/frame.js';
import { CNP, Op } from '../packet/opcodes.js';
import { psnAfter, psnDistance } from '../packet/psn.js';
import type { ResponderCheck } from './check.js';
import { isNak } from './conversation.js';
import { Nak, REQUESTS, type Received, type ResponderConversation } from './responderconversation.js';
import type { CheckResult, Evidence } from './result.js';
import { AT_ONCE } from './rules.js';

/** Requests, one after the other. */
const COUNT = 200;
/** Requests after which a peer that has answered none of them at once is held to answer repetitions only. */
const ENOUGH = 10;
/** Time in which a peer answers one request (ns). */
const WAIT = 30e6;

/** Loss of a path, as requests have shown it. */
export interface PathLoss {
  /** Requests that were sent. */
  readonly sent: number;
  /** Requests that did not arrive. */
  readonly requests: number;
  /** Answers that did not arrive. */
  readonly answers: number;
}

/** Returns whether a packet answers a request, so that all before it have arrived. */
const answers = (packet: Received, psn: number): boolean => !isNak(packet) && psnDistance(packet.bth.psn, psn) >= 0;

/** Number 58. */
export const LOSS_CHECK: ResponderCheck = {
  number: 58,
  name: 'answered-at-once',
  title: 'The peer answers requests when they come, and not only when they are repeated',
  clause: 'IBTA volume 1, chapter 9: responder, ACK request bit',
  sends: `${COUNT} requests, one after the other, or as many SENDs as receives are posted; in all checks requests without an answer are repeated`,
  expects: 'an answer to each; lost_requests and lost_answers are those that the path has lost',
  counts: ['sent_requests', 'lost_requests', 'lost_answers'],
  needs: REQUESTS,
  rule: AT_ONCE,
  async run(talk) {
    let [sent, requests, replies, repeated] = [0, 0, 0, 0];
    const hasMemory = talk.permits('WRITE') || talk.permits('READ') || talk.permits('ATOMIC');
    // each SEND takes a receive
    const count = hasMemory ? COUNT : Math.min(COUNT, talk.peer.receives - 1);
    while (sent < count) {
      const first = talk.request(sent++);
      talk.send(first);
      if (await isAnswered(talk, first.bth.psn)) continue;
      // the next request shows what was lost: its NAK names the first one, or its answer stands for both
      const second = talk.request(sent++);
      talk.send(second);
      const reply = await talk.next(WAIT);
      if (reply !== undefined && answers(reply, second.bth.psn)) {
        replies++;
        continue;
      }
      if (reply?.aeth?.syndrome === Nak.SEQUENCE && reply.bth.psn === first.bth.psn) requests++;
      else repeated++;
      await talk.done([first, second], 'requests that were repeated');
      if (repeated >= ENOUGH && repeated * 2 >= sent)
        talk.fail(`${repeated * 2} of ${sent} requests are answered only when they are repeated`);
    }
    talk.measure('sent_requests', sent);
    talk.measure('lost_requests', requests);
    talk.measure('lost_answers', replies);
    if (requests + replies > 0) talk.note(lossText({ sent, requests, answers: replies }));
  },
};

/** Waits for the answer to a request; those of earlier ones are passed over. */
async function isAnswered(talk: ResponderConversation, psn: number): Promise<boolean> {
  for (;;) {
    const packet = await talk.next(WAIT);
    if (packet === undefined) return false;
    if (answers(packet, psn)) return true;
  }
}

/** Returns the loss that `LOSS_CHECK` has measured; undefined if it has measured none. */
export function lossOf({ measurements }: CheckResult): PathLoss | undefined {
  const [sent, requests, lost] = ['sent_requests', 'lost_requests', 'lost_answers'].map(
    (name) => measurements[name]?.[0],
  );
  return sent === undefined ? undefined : { sent, requests: requests ?? 0, answers: lost ?? 0 };
}

/** Returns the loss of a path as text. */
export function lossText({ sent, requests, answers: lost }: PathLoss): string {
  const share = (count: number) => `${((count / sent) * 100).toFixed(1)} %`;
  return `the path loses ${share(requests)} of our packets and ${share(lost)} of the peer's`;
}

/** The state of a look at packets. Packets do not tell the connection that they were sent on. */
class Seen {
  /** PSNs of requests that have left. */
  readonly #left = new Set<number>();
  /** READs and atomic operations: the first PSN of each, the one behind it, and that of its next response. */
  #open: { readonly psn: number; readonly end: number; next: number }[] = [];
  /** PSNs that ACKs of ours have acknowledged. */
  readonly #acks: number[] = [];
  /** The PSN behind the requests of the peer, by the queue pair that they came to. */
  readonly #next = new Map<number, number>();

  sent({ aeth, bth, reth }: Decoded, mtu: number): void {
    const { opcode, psn } = bth;
    if (aeth !== undefined || opcode === Op.RDMA_READ_RESPONSE_MIDDLE) {
      if ((aeth?.syndrome ?? 0) >>> 5 === 0) this.#acks.push(psn);
      return;
    }
    this.#left.add(psn);
    const span = opcode === Op.RDMA_READ_REQUEST ? Math.max(1, Math.ceil((reth?.length ?? 0) / mtu)) : 1;
    const isAnswered = opcode === Op.RDMA_READ_REQUEST || opcode === Op.FETCH_ADD || opcode === Op.COMPARE_SWAP;
    if (isAnswered) this.#open.push({ psn, end: psnAfter(psn, span), next: psn });
  }

  /** @returns whether a packet of the peer shows that another one was lost */
  showsLoss({ aeth, bth }: Decoded): boolean {
    const { opcode, psn } = bth;
    if (aeth?.syndrome === Nak.SEQUENCE) return this.#left.has(psn);
    if (opcode === Op.ACKNOWLEDGE) return false;
    if (aeth !== undefined || opcode === Op.RDMA_READ_RESPONSE_MIDDLE) return this.#skipsAnswer(psn);
    return this.#skipsRequest(bth.destQp, psn);
  }

  /** Whether a response to a later request, or a later one to the same READ, comes before one that is due. */
  #skipsAnswer(psn: number): boolean {
    const before = this.#open.filter(({ end }) => isBefore(end, psnAfter(psn, 1)));
    const current = this.#open.find((one) => !isBefore(psn, one.psn) && isBefore(psn, one.end));
    this.#open = this.#open.filter((one) => !before.includes(one));
    const isGap = current !== undefined && isBefore(current.next, psn);
    if (current !== undefined && current.next === psn) current.next = psnAfter(psn, 1);
    return isGap || before.some((one) => one !== current && one.next === one.psn);
  }

  #skipsRequest(qp: number, psn: number): boolean {
    const next = this.#next.get(qp) ?? psn;
    if (!isBefore(psn, next)) this.#next.set(qp, psnAfter(psn, 1));
    if (isBefore(next, psn)) return true;
    return isBefore(psn, next) && this.#acks.some((ack) => !isBefore(ack, psn));
  }
}

const isBefore = (psn: number, other: number): boolean => psnDistance(psn, other) < 0;

/**
 * Returns whether packets show that some of them were lost: the peer says that a PSN is missing which had left; an
 * answer to a READ or atomic operation stays out although that of a later one comes; a PSN of the peer is left out, or
 * comes again after its ACK.
 */
export function showsLoss(evidence: readonly Evidence[]): boolean {
  const packets = evidence.flatMap(({ direction, frame }) => {
    const packet = decodeRoce(frame);
    const isOfConnection = packet !== undefined && packet.bth.opcode !== CNP && packet.deth === undefined;
    return isOfConnection ? [{ direction, packet }] : [];
  });
  // the largest payload is that of a full packet, unless all messages have one packet
  const mtu = Math.max(1, ...packets.map(({ packet }) => packet.payload.length));
  const seen = new Seen();
  for (const { direction, packet } of packets)
    if (direction === 'out') seen.sent(packet, mtu);
    else if (seen.showsLoss(packet)) return true;
  return false;
}
