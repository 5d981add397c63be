/** Checks of queue pairs that lose nothing, beside others that do. */
import { type Packet, request } from '../packet/packets.js';
import { psnDistance } from '../packet/psn.js';
import type { ResponderCheck } from './check.js';
import { pattern, type ResponderConversation } from './responderconversation.js';
import type { PeerRegion } from './target.js';

const ROUNDS = 20;
/** Offset of the queue pair that loses packets: behind the bytes of the other one. */
const OFFSET = 8192;
/** Packets of each READ that is repeated. */
const PACKETS = 4;
/** Answers that may be on their way when the last gap is repaired: those of the first READ, and of all rounds. */
const LATE = PACKETS + ROUNDS * (PACKETS + 4);

/** WRITEs and READs one after the other, each with its time. `beside` runs before each of them. */
async function visit(
  talk: ResponderConversation,
  name: string,
  beside: (round: number) => Promise<void>,
): Promise<void> {
  for (let i = 0; i < ROUNDS; i++) {
    const payload = pattern(64, i);
    await beside(i);
    const at = talk.send(talk.write(payload));
    const { psn } = talk;
    const answer = await talk.acked((psn - 1) & 0xffffff, `a WRITE (${name})`);
    talk.measure(name, answer.at - at);
    await talk.holds(0, payload, `a READ gives other bytes than the WRITE before it (${name})`);
  }
}

/** Repairs the last gap. Answers of the last round, a NAK among them, may still be on their way. */
async function repaired(talk: ResponderConversation, missing: readonly Packet[]): Promise<void> {
  const what = 'the repair of the other connection';
  talk.send(missing);
  for (let left = LATE; left > 0; left--) {
    const { aeth, bth } = await talk.answer(what);
    const isAck = aeth !== undefined && aeth.syndrome >>> 5 === 0;
    if (isAck && psnDistance(bth.psn, (missing.at(-1) as Packet).bth.psn) >= 0) return;
  }
  talk.fail(`${what}: ${LATE} other answers before its ACK`);
}

/** Takes what has come for a queue pair. */
async function drain(talk: ResponderConversation): Promise<void> {
  while ((await talk.next(0)) !== undefined);
}

const innocent: ResponderCheck = {
  number: 52,
  name: 'beside-losses',
  title: 'A queue pair that loses nothing works beside one that does',
  clause: 'IBTA volume 1, chapter 9: each connection is reliable on its own',
  sends: `${ROUNDS} WRITEs and READs; then as many while another connection has a gap and repeats a READ before each`,
  expects: 'ACKs and the data; times of the ACKs are reported as latency_alone and latency_beside_losses',
  needs: { receives: false },
  async run(talk) {
    const loser = await talk.another();
    await visit(talk, 'latency_alone', async () => {});
    const { va, rkey }: PeerRegion = loser.region;
    const at = { rkey, va: va + BigInt(OFFSET) };
    const repeated = request.read({ psn: loser.take(PACKETS), ...at, length: PACKETS * loser.mtu });
    loser.send(repeated);
    let missing: Packet[] = [];
    await visit(talk, 'latency_beside_losses', async (round) => {
      await drain(loser);
      // the gap of the round before is repaired, and there is a new one
      const [next, lost, beyond] = [0, 1, 2].map((i) => loser.write(pattern(8, round + i), OFFSET));
      loser.send([...missing, ...(next as Packet[]), ...(beyond as Packet[]), repeated]);
      missing = [...(lost as Packet[]), ...(beyond as Packet[])];
    });
    await repaired(loser, missing);
  },
};

/** In the order of their numbers. */
export const NEIGHBOUR_CHECKS: readonly ResponderCheck[] = [innocent];
