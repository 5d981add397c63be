/**
 * Measurements of a peer that answers: latency by size, message rate, and flow completion time by size and loss. They
 * fail when answers do not come or data is wrong, and for no time.
 */
import { Op } from '../packet/opcodes.js';
import type { Packet } from '../packet/packets.js';
import { psnDistance } from '../packet/psn.js';
import type { ResponderCheck } from './check.js';
import { isSame, Nak, pattern, type ResponderConversation, receivedText } from './responderconversation.js';

const CLAUSE = 'none: the figures are for comparison';
const KIB = 1024;
/** Packets in flight, which one ACK may complete. */
const WINDOW = 64;
/** One packet of so many requests an ACK, as well as the last one. */
const ACK_EVERY = 16;
/** Time without an answer after which everything that is not acknowledged is sent again (ns). */
const TIMEOUT = 10e6;
/** Timeouts without progress after which a peer is held not to answer. */
const MOST_TIMEOUTS = 20;

/** Returns a size as names of figures have it. */
const sizeText = (bytes: number): string => (bytes < KIB ? `${bytes}B` : `${bytes / KIB}KiB`);

/** Returns numbers from 0 to 1 that look random, the same ones for the same seed (mulberry32). */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * Sends packets as a simple requester does: a window of them, and everything from the missing packet on after a NAK or
 * a timeout. `isLost` tells for each transmission whether it is left out.
 * @returns the time from the first packet to the last ACK (ns)
 */
async function transfer(
  talk: ResponderConversation,
  packets: readonly Packet[],
  isLost: () => boolean,
): Promise<number> {
  const start = talk.port.now();
  const first = (packets[0] as Packet).bth.psn;
  let [acknowledged, next, timeouts, end] = [0, 0, 0, start];
  while (acknowledged < packets.length) {
    const most = Math.min(packets.length, acknowledged + WINDOW);
    for (; next < most; next++) if (!isLost()) talk.send(packets[next] as Packet);
    const answer = await talk.next(TIMEOUT);
    if (answer === undefined) {
      if (++timeouts > MOST_TIMEOUTS) talk.fail(`packet ${acknowledged + 1} of ${packets.length} is not acknowledged`);
      next = acknowledged;
      continue;
    }
    const { aeth, bth } = answer;
    const at = psnDistance(bth.psn, first);
    const isNak = aeth?.syndrome === Nak.SEQUENCE;
    if (bth.opcode !== Op.ACKNOWLEDGE || aeth === undefined || (aeth.syndrome >>> 5 !== 0 && !isNak))
      return talk.fail(`packet ${acknowledged + 1} of ${packets.length}: ${receivedText(answer)}`);
    const done = isNak ? at : at + 1;
    if (done > packets.length) talk.fail(`${receivedText(answer)}, which was not sent`);
    if (done > acknowledged) timeouts = 0;
    if (done >= acknowledged && isNak) next = done;
    acknowledged = Math.max(acknowledged, done);
    next = Math.max(next, acknowledged);
    end = answer.at;
  }
  return end - start;
}

const SIZES = [8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB];
const LATENCY_ROUNDS = 10;

const latency: ResponderCheck = {
  number: 56,
  name: 'latency',
  title: 'WRITEs and READs of 8 bytes to 64 KiB are answered, one after the other',
  clause: CLAUSE,
  sends: `${LATENCY_ROUNDS} WRITEs and READs of each of the sizes ${SIZES.map(sizeText).join(', ')}`,
  expects: 'ACKs and the data; write_latency and read_latency by size, to the ACK and to the last response',
  needs: { receives: false },
  async run(talk) {
    for (const size of SIZES.filter((one) => one <= talk.region.length)) {
      const name = sizeText(size);
      for (let i = 0; i < LATENCY_ROUNDS; i++) {
        const data = pattern(size, i);
        const packets = talk.write(data);
        const wrote = talk.port.now();
        const ack = await talk.done(packets, `a WRITE of ${name}`);
        talk.measure(`write_latency_${name}`, ack.at - wrote);
        const asked = talk.port.now();
        const found = await talk.read(0, size);
        talk.measure(`read_latency_${name}`, (talk.evidence.at(-1)?.at ?? asked) - asked);
        if (!isSame(found, data)) talk.fail(`a READ of ${name} gives other bytes than were written`);
      }
    }
  },
};

const MESSAGES = 512;
const MESSAGE_BYTES = 8;

const messageRate: ResponderCheck = {
  number: 56,
  name: 'message-rate',
  title: `WRITEs of ${MESSAGE_BYTES} bytes with ${WINDOW} of them in flight are all carried out`,
  clause: CLAUSE,
  sends: `${MESSAGES} WRITEs of ${MESSAGE_BYTES} bytes to different addresses, ${WINDOW} in flight`,
  expects: 'ACKs and the data; message_rate in messages per second, which this process limits as well',
  counts: ['message_rate'],
  needs: { receives: false },
  async run(talk) {
    const data = pattern(MESSAGES * MESSAGE_BYTES, 1);
    const packets = Array.from({ length: MESSAGES }, (_, i) => {
      const at = i * MESSAGE_BYTES;
      return talk.write(data.subarray(at, at + MESSAGE_BYTES), at);
    }).flat();
    const time = await transfer(talk, packets, () => false);
    if (time > 0) talk.measure('message_rate', (MESSAGES * 1e9) / time);
    await talk.holds(0, data, 'a WRITE that is acknowledged is not carried out');
  },
};

/** Sizes of flows, and how many of each. */
const FLOWS = [
  { bytes: 4 * KIB, count: 10 },
  { bytes: 64 * KIB, count: 3 },
  { bytes: 1024 * KIB, count: 1 },
];
const LOSSES = [0.001, 0.01];
/** Bytes of one WRITE of a flow. */
const WRITE_BYTES = 16 * KIB;

/** Returns the WRITEs of a flow, and where they go: as many places as the memory has, one after the other. */
function trafficOf(talk: ResponderConversation, bytes: number, seed: number) {
  const places = Math.floor(talk.region.length / WRITE_BYTES);
  const held = new Map<number, Uint8Array>();
  const packets: Packet[] = [];
  for (let at = 0; at < bytes; at += WRITE_BYTES) {
    const index = at / WRITE_BYTES;
    const offset = (index % places) * WRITE_BYTES;
    const data = pattern(Math.min(WRITE_BYTES, bytes - at), seed + index);
    held.set(offset, data);
    packets.push(...talk.write(data, offset));
  }
  const asking = packets.map((packet, i) => {
    const ackReq = i === packets.length - 1 || (i + 1) % ACK_EVERY === 0;
    return { ...packet, bth: { ...packet.bth, ackReq } };
  });
  return { packets: asking, held };
}

const completion: ResponderCheck = {
  number: 56,
  name: 'flow-completion',
  title: 'Flows are complete and right however many of their packets are lost',
  clause: 'IBTA volume 1, chapter 9: reliable service; the figures are for comparison',
  sends: `flows of ${FLOWS.map(({ bytes }) => sizeText(bytes)).join(', ')} in WRITEs of ${sizeText(WRITE_BYTES)}, of which ${LOSSES.map((loss) => `${loss * 100} %`).join(', ')} of the packets are left out, repaired after NAKs and after ${TIMEOUT / 1e6} ms`,
  expects: 'ACKs of everything and the data; flow_completion_time by size and loss',
  needs: { receives: false },
  async run(talk) {
    for (const loss of LOSSES) {
      for (const { bytes, count } of FLOWS) {
        const name = `flow_completion_time_${sizeText(bytes)}_${loss * 100}%`;
        const random = randomOf(bytes + loss * 1000);
        for (let i = 0; i < count; i++) {
          const { packets, held } = trafficOf(talk, bytes, i);
          talk.measure(name, await transfer(talk, packets, () => random() < loss));
          // answers to what was sent twice
          while ((await talk.next(1e6)) !== undefined);
          for (const [offset, data] of held)
            await talk.holds(
              offset,
              data,
              `a flow of ${sizeText(bytes)} with a loss of ${loss * 100} % has wrong data`,
            );
        }
      }
    }
  },
};

/** In the order of their numbers. */
export const PERFORMANCE_CHECKS: readonly ResponderCheck[] = [latency, messageRate, completion];
