/** The path MTU of a connection against what the path carries: switches and tunnels drop packets that are too long. */
import { encodeFrame, type Packet, request, response } from '../packet/packets.js';
import type { ResponderCheck } from './check.js';
import { isNak } from './conversation.js';
import { pattern, type ResponderConversation, receivedText } from './responderconversation.js';
import type { RemoteOperation } from './target.js';

/** Bytes of an Ethernet header, and of the tag of a VLAN. */
const [ETHERNET, TAG] = [14, 4];
/** Bytes between the payloads that are tried: those of a multiple of four have no pad (BTH, PadCnt). */
const STEP = 4;

/** One direction of a path. */
interface Direction {
  /** The operation whose payload goes there. */
  readonly operation: RemoteOperation;
  /** The direction, as a finding tells it. */
  readonly text: string;
  /** Name of its measurement. */
  readonly name: string;
  /** Returns a request whose payload has some bytes. */
  request(talk: ResponderConversation, bytes: number): Packet;
}

const DIRECTIONS: readonly Direction[] = [
  {
    ...{ operation: 'WRITE', text: 'the path to the peer', name: 'largest_write' },
    request: ({ psn, region: { va, rkey } }, bytes) =>
      request.writeOnly({ psn, va, rkey, payload: pattern(bytes, 1), ackReq: true }),
  },
  {
    ...{ operation: 'READ', text: 'the path from the peer', name: 'largest_read' },
    request: ({ psn, region: { va, rkey } }, length) => request.read({ psn, va, rkey, length, ackReq: true }),
  },
];

/** Sends a request whose payload has some bytes. @returns whether it is answered */
async function isAnswered(talk: ResponderConversation, direction: Direction, bytes: number): Promise<boolean> {
  const { operation } = direction;
  talk.send(direction.request(talk, bytes));
  const answer = await talk.nextFrom(talk.psn);
  if (answer === undefined) talk.abandon();
  else if (isNak(answer)) talk.fail(`a ${operation} of ${bytes} bytes: ${receivedText(answer)} instead of an answer`);
  // the PSN of a WRITE that is lost is still expected; a READ has arrived, and its answer is lost
  if (answer !== undefined || operation === 'READ') talk.take();
  return answer !== undefined;
}

/** Finds the most bytes that arrive in one packet, when those of the path MTU do not. @returns 0 if none do */
async function most(talk: ResponderConversation, direction: Direction): Promise<number> {
  let [arrives, tooLong] = [0, talk.mtu];
  while (tooLong - arrives > STEP) {
    const bytes = Math.floor((arrives + tooLong) / 2 / STEP) * STEP;
    if (await isAnswered(talk, direction, bytes)) arrives = bytes;
    else tooLong = bytes;
  }
  return arrives;
}

/** Returns the bytes of the IP packet that carries a payload in one direction. */
function ipBytes({ port: { flow } }: ResponderConversation, { operation }: Direction, bytes: number): number {
  const payload = new Uint8Array(bytes);
  const packet =
    operation === 'WRITE'
      ? request.writeOnly({ psn: 0, va: 0n, rkey: 0, payload })
      : response.readOnly({ psn: 0, msn: 0, payload });
  return encodeFrame(flow, packet).length - ETHERNET - (flow.vlan === undefined ? 0 : TAG);
}

/** Number 59. */
export const PATH_MTU_CHECK: ResponderCheck = {
  number: 59,
  name: 'path-mtu',
  title: 'The path carries packets of the whole path MTU, in both directions',
  clause: 'IBTA volume 1, chapter 9: path MTU of a connection',
  sends: 'a WRITE and a READ of as many bytes as the path MTU has; if there is no answer, shorter ones, by halving',
  expects: 'answers to the longest; the bytes that arrive in one packet are reported as largest_write and largest_read',
  counts: ['largest_write', 'largest_read'],
  needs: { receives: false, anyOf: ['WRITE', 'READ'] },
  async run(talk) {
    const found: string[] = [];
    for (const direction of DIRECTIONS) {
      const { operation, text, name } = direction;
      if (!talk.permits(operation)) {
        talk.note(`${text} was not looked at: the peer permits no ${operation}`);
        continue;
      }
      const isWhole = await isAnswered(talk, direction, talk.mtu);
      const bytes = isWhole ? talk.mtu : await most(talk, direction);
      if (bytes === 0) talk.fail(`no answer to a ${operation} of ${STEP} bytes`);
      talk.measure(name, bytes);
      if (isWhole) continue;
      const [carried, needed] = [bytes, talk.mtu].map((payload) => ipBytes(talk, direction, payload));
      found.push(`${text} carries IP packets of ${carried} bytes, and a path MTU of ${talk.mtu} needs ${needed}`);
    }
    if (found.length > 0) talk.fail(found.join('; '));
  },
};
