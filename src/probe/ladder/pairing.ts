/**
 * Pairs the two directions of each connection. A capture has no source queue pair numbers, except those that rdma_cm
 * and datagrams carry; the others are found by the order of requests and responses.
 */
import { Op, UD_SEND_ONLY } from '../packet/opcodes.js';
import { groupBy } from './group.js';
import { isResponse, isSequenced } from './packet.js';
import { endOf, firstOf, type Seen, type Way } from './ways.js';

/** The evidence that two directions belong together. */
export interface Pairing {
  /**
   * `rdma_cm`: its messages name both queue pairs. `datagrams`: they name their source. `order`: responses follow the
   * requests. `addresses`: no other direction is left between the two. `none`: there is no opposite direction.
   */
  readonly by: 'rdma_cm' | 'datagrams' | 'order' | 'addresses' | 'none';
  /** Responses that follow a request of the other direction with their PSN. Only of `order`. */
  readonly fits?: number;
  /** All responses that should. Only of `order`. */
  readonly of?: number;
  /** The fit of the next best direction, from 0 to 1. Only of `order`. */
  readonly rival?: number;
}

/** Two directions, or one without its opposite. */
export interface Pair {
  readonly first: Way;
  readonly second: Way | undefined;
  readonly pairing: Pairing;
}

/** The next best direction of a clear pairing fits at most as well as this. */
const CLEAR = 0.75;
/** Requests of the same PSN that are compared for a response: those seen last. */
const CANDIDATES = 32;

/** Pairs ways. @returns the pairs in the order of their first packets */
export function pairWays(ways: readonly Way[]): Pair[] {
  const pairs = new Pairs(ways);
  pairs.byConnectionManager();
  pairs.byDatagrams();
  pairs.byOrder();
  pairs.byAddresses();
  return pairs.all();
}

/** Returns how sure a pairing is, in a sentence. */
export function pairingText({ by, fits, of, rival = 0 }: Pairing): string {
  switch (by) {
    case 'rdma_cm':
      return 'The messages of rdma_cm name both queue pairs.';
    case 'datagrams':
      return 'The datagrams name their source queue pairs.';
    case 'order':
      return (
        `${fits} of ${of} responses follow a request with their PSN` +
        (rival < CLEAR ? ': the pairing is clear.' : ', but another queue pair fits almost as well: a guess.')
      );
    case 'addresses':
      return 'Nothing tells that the two directions belong together, but that no others are left: a guess.';
    default:
      return 'The capture has one direction only.';
  }
}

interface Score {
  readonly ways: readonly [Way, Way];
  score: number;
  fits: number;
}

class Pairs {
  readonly #partner = new Map<Way, { readonly other: Way; readonly pairing: Pairing }>();
  /** Ways that were divided, because two others answer one after the other. */
  readonly #ways: Way[];

  constructor(ways: readonly Way[]) {
    this.#ways = [...ways];
  }

  all(): Pair[] {
    const done = new Set<Way>();
    const pairs: Pair[] = [];
    for (const first of this.#ways.sort((a, b) => firstOf(a) - firstOf(b))) {
      if (done.has(first)) continue;
      const { other: second, pairing } = this.#partner.get(first) ?? { other: undefined, pairing: { by: 'none' } };
      if (second !== undefined) done.add(second);
      pairs.push({ first, second, pairing });
    }
    return pairs;
  }

  byConnectionManager(): void {
    const named = groupBy(this.#ways, (way) => way.named);
    for (const way of this.#ways) {
      if (way.named?.other === undefined || this.#partner.has(way)) continue;
      const other = named.get(way.named.other)?.find((each) => each.src === way.dst && each.dst === way.src);
      if (other !== undefined && !this.#partner.has(other)) this.#join(way, other, { by: 'rdma_cm' });
    }
  }

  byDatagrams(): void {
    const opposite = groupBy(this.#ways, (way) => `${way.src} ${endOf(way.dst, way.qp)}`);
    for (const way of this.#ways) {
      const [{ packet }] = way.packets as [Seen];
      // the queue pairs 1 of two ends speak with each other only
      const source = way.qp === 1 ? 1 : packet.bth.opcode >= UD_SEND_ONLY ? packet.deth?.srcQp : undefined;
      if (source === undefined || this.#partner.has(way)) continue;
      const [other] = opposite.get(`${way.dst} ${endOf(way.src, source)}`) ?? [];
      if (other !== undefined && other !== way && !this.#partner.has(other))
        this.#join(way, other, { by: 'datagrams' });
    }
  }

  /** Responses follow their requests: the pair is best where most do, and each soon after the request of its PSN. */
  byOrder(): void {
    const { scores, responses } = this.#scores();
    scores.sort((a, b) => b.score - a.score);
    const best = new Map<Way, Score>();
    const rivals = new Map<Score, number>();
    for (const each of scores) {
      const [a, b] = each.ways;
      const chosen = [a, b].map((way) => best.get(way)).filter((found) => found !== undefined);
      for (const better of chosen) rivals.set(better, Math.max(rivals.get(better) ?? 0, each.score / better.score));
      if (chosen.length === 0 && !this.#partner.has(a) && !this.#partner.has(b))
        for (const way of each.ways) best.set(way, each);
    }
    const pairingOf = (each: Score): Pairing => ({
      by: 'order',
      fits: each.fits,
      of: each.ways.reduce((sum, way) => sum + (responses.get(way) ?? 0), 0),
      rival: Math.min(1, rivals.get(each) ?? 0),
    });
    const chosen = new Set(best.values());
    for (const each of chosen) this.#join(...each.ways, pairingOf(each));
    for (const each of scores) if (!chosen.has(each)) this.#divide(each, pairingOf(each));
  }

  /** One direction alone may be a CNP's, or that of a requester whose peer is silent: its address has one candidate. */
  byAddresses(): void {
    const alone = this.#ways.filter((way) => !this.#partner.has(way));
    const left = groupBy(alone, ({ src, dst }) => `${src} ${dst}`);
    for (const way of alone) {
      const [here, there] = [left.get(`${way.src} ${way.dst}`), left.get(`${way.dst} ${way.src}`)];
      const [other] = there ?? [];
      if (here?.length !== 1 || there?.length !== 1 || other === undefined || other === way) continue;
      if (!this.#partner.has(way)) this.#join(way, other, { by: 'addresses' });
    }
  }

  /** A queue pair number that is used again, with another peer after the first: its way is two. */
  #divide({ ways: [a, b] }: Score, pairing: Pairing): void {
    const [way, other] = this.#partner.has(a) ? [a, b] : [b, a];
    const taken = this.#partner.get(way)?.other;
    if (taken === undefined || this.#partner.has(other)) return;
    const [early, late] = firstOf(taken) < firstOf(other) ? [taken, other] : [other, taken];
    if (lastOf(early) > firstOf(late)) return;
    const cut = way.packets.findIndex(({ at, packet }) => at > lastOf(early) && !isResponse(packet.bth.opcode));
    if (cut <= 0 || (way.packets[cut] as Seen).at > firstOf(late)) return;
    const before: Way = { ...way, packets: way.packets.slice(0, cut) };
    const after: Way = {
      ...way,
      began: 'another queue pair answers from here',
      packets: way.packets.slice(cut),
    };
    this.#ways.splice(this.#ways.indexOf(way), 1, before, after);
    const kept = (this.#partner.get(way) as { pairing: Pairing }).pairing;
    this.#partner.delete(way);
    this.#join(taken === early ? before : after, taken, kept);
    this.#join(taken === early ? after : before, other, pairing);
  }

  #join(way: Way, other: Way, pairing: Pairing): void {
    this.#partner.set(way, { other, pairing });
    this.#partner.set(other, { other: way, pairing });
  }

  #scores(): { scores: Score[]; responses: Map<Way, number> } {
    const scores = new Map<Way, Map<Way, Score>>();
    const responses = new Map<Way, number>();
    const asked = new Map<string, Map<number, Way[]>>();
    const open = this.#ways.filter((way) => !this.#partner.has(way));
    const all = open.flatMap((way) =>
      way.packets.filter(({ packet }) => isSequenced(packet)).map((seen) => ({ way, seen })),
    );
    for (const { way, seen } of all.sort((a, b) => a.seen.at - b.seen.at)) {
      const { opcode, psn } = seen.packet.bth;
      if (!isResponse(opcode)) {
        const key = `${way.src} ${way.dst}`;
        const psns = asked.get(key) ?? new Map<number, Way[]>();
        asked.set(key, psns);
        psns.set(psn, [way, ...(psns.get(psn) ?? []).filter((each) => each !== way)].slice(0, CANDIDATES));
        continue;
      }
      if (!hasRequestPsn(opcode)) continue;
      responses.set(way, (responses.get(way) ?? 0) + 1);
      for (const [rank, requester] of (asked.get(`${way.dst} ${way.src}`)?.get(psn) ?? []).entries()) {
        const score = scoreOf(scores, requester, way);
        score.score += 1 / (1 + rank);
        score.fits++;
      }
    }
    return { scores: [...scores.values()].flatMap((each) => [...each.values()]), responses };
  }
}

/** The responses in the middle and at the end of a READ have PSNs that no request has. */
function hasRequestPsn(opcode: number): boolean {
  return opcode !== Op.RDMA_READ_RESPONSE_MIDDLE && opcode !== Op.RDMA_READ_RESPONSE_LAST;
}

/** The score of two ways is one, whichever of them asks. */
function scoreOf(scores: Map<Way, Map<Way, Score>>, requester: Way, responder: Way): Score {
  const found = scores.get(responder)?.get(requester) ?? scores.get(requester)?.get(responder);
  if (found !== undefined) return found;
  const score: Score = { ways: [requester, responder], score: 0, fits: 0 };
  const of = scores.get(requester) ?? new Map<Way, Score>();
  scores.set(requester, of);
  of.set(responder, score);
  return score;
}

const lastOf = ({ packets }: Way): number => (packets.at(-1) as Seen).at;
