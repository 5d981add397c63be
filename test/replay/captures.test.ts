/**
 * The card replaces one end of each captured connection. The other end's packets go in; the card must send what the
 * captured end sent. Every permitted difference has a name here and a reason.
 */
import { expect, describe as group, test } from 'vitest';
import { psnDistance } from '../../src/probe/packet/psn.js';
import { CAPTURES } from '../kit/fixtures.js';
import { type Conversation, conversations, type Said, said } from './conversation.js';
import { capturedRequests, isPlain, ReplayedRequester } from './requester.js';
import { ReplayedResponder, type ResponderSetup } from './responder.js';

/**
 * Captures whose memory and access rights the packets do not show: test/qp/capture.test.ts replays them, and
 * test/protocols/nvme/captures.test.ts those of NVMe.
 */
const ELSEWHERE = [
  ...['nvme_aen', 'nvme_connect', 'nvme_discover', 'nvme_rw'],
  ...['rxt_atomic_write', 'rxt_flush_global', 'rxt_flush_mr', 'rxt_mw'],
];

/** Set-up of the captured responders, where it matters. */
const SETUPS: Readonly<Record<string, ResponderSetup>> = {
  rxt_psnahead: { rqPsn: 2097147 },
  rxt_qpnoread: { access: 1 | 2 | 8 },
  rxt_rdatomic0: { maxDestRdAtomic: 0 },
  rxt_send_inv_mr: { forbidsInvalidation: true },
  rxt_sendtoolong: { receiveBytes: 100 },
};

/** Partial captures: the captured responder's last responses are missing. */
const CUT = [
  'dup10_write_bw_64k',
  'loss5_read_bw_64k',
  'loss5_write_bw_64k',
  'mtu9000_rc_pingpong_1e6',
  'rc_pingpong_1e6',
  'reorder_write_bw_64k',
];
/** Responses were lost before they reached the recorder. */
const isLossy = (capture: string): boolean => capture.startsWith('loss5_');
/** The server's program changes the memory that is read: the packets do not determine its content. */
const isChanging = (capture: string): boolean => capture.startsWith('rping');

/**
 * rxe forgets that it has sent an RNR NAK and sends a sequence NAK for the next packet as well; the rules demand
 * silence.
 */
function withoutRnrQuirk(answers: readonly Said[]): Said[] {
  let rnr = -1;
  return answers.filter(({ syndrome = 0, psn }) => {
    if (syndrome >>> 5 === 1) rnr = psn;
    else if (syndrome === 0x60 && psn === rnr) return false;
    return true;
  });
}

/**
 * When a READ is requested again from its middle, rxe continues with MIDDLE; the rules demand FIRST (or ONLY) with its
 * AETH.
 */
function withoutReplayOpcodes(answer: Said): Said {
  const names: Record<string, string> = { FIRST: 'MORE', MIDDLE: 'MORE', LAST: 'END', ONLY: 'END' };
  const place = /^RDMA_READ_RESPONSE_(\w+)$/.exec(answer.opcode)?.[1];
  if (place === undefined) return answer;
  const { syndrome: _s, msn: _m, ...rest } = answer;
  return { ...rest, opcode: names[place] as string };
}

/**
 * rxe answers a duplicate with the ACK of all that it has executed. The card acknowledges the duplicate alone, because
 * rxe as the requester does not bear more (assembly/qp/deferredack.ts).
 */
function withNewestPsns(ours: readonly Said[], theirs: readonly Said[]): Said[] {
  return ours.map((answer, i) => {
    const same = theirs[i];
    const isOlder = answer.syndrome === 31 && same?.syndrome === 31 && psnDistance(same.psn, answer.psn) > 0;
    return isOlder ? { ...answer, psn: same.psn } : answer;
  });
}

function expectedOf({ capture, packets }: Conversation): Said[] {
  let theirs = packets.filter(({ isRequest }) => !isRequest).map(({ frame }) => said(frame));
  if (capture.includes('rnr')) theirs = withoutRnrQuirk(theirs);
  return theirs.map((answer) => tolerant(capture, answer));
}

function tolerant(capture: string, answer: Said): Said {
  const same = capture === 'loss5_read_bw_64k' ? withoutReplayOpcodes(answer) : answer;
  return isChanging(capture) ? { ...same, payload: '' } : same;
}

/** The card's packets that the recording has too, in its order. */
function recorded(ours: readonly Said[], theirs: readonly Said[]): Said[] {
  let next = 0;
  const text = theirs.map((answer) => key(answer));
  return ours.filter((answer) => next < text.length && key(answer) === text[next] && ++next > 0);
}
const key = (answer: Said): string =>
  JSON.stringify(answer, (_, value) => (typeof value === 'bigint' ? `${value}` : value));

const TALKS = CAPTURES.filter((capture) => !ELSEWHERE.includes(capture)).flatMap(conversations);
const name = ({ capture, srcIp, requester }: Conversation): string => `${capture}: ${srcIp} asks from ${requester}`;

group('the card as the responder', () => {
  test.each(TALKS.map((talk) => [name(talk), talk] as const))('%s', async (_, talk) => {
    const { capture } = talk;
    const replayed = await ReplayedResponder.create(talk, SETUPS[capture]);
    replayed.play();
    let ours = replayed.answers.map((answer) => tolerant(capture, answer));
    const theirs = expectedOf(talk);
    if (capture === 'rxt_sendtoolong') {
      // rxe sends a remote operational error; by the rules a message that does not fit is an invalid request (IBTA
      // 9.9.3)
      expect(theirs.map(({ syndrome }) => syndrome)).toEqual([0x63]);
      expect(ours.map(({ syndrome }) => syndrome)).toEqual([0x61]);
      return;
    }
    if (capture.startsWith('reorder')) ours = withNewestPsns(ours, theirs);
    if (isLossy(capture)) ours = recorded(ours, theirs);
    else if (CUT.includes(capture)) ours = ours.slice(0, theirs.length);
    expect(ours).toEqual(theirs);
  });
});

/** The status of a request after each NAK (IBTA 9.9.2). */
const REFUSED: Readonly<Record<number, string>> = {
  97: 'REM_INV_REQ_ERR',
  98: 'REM_ACCESS_ERR',
  99: 'REM_OP_ERR',
};
/** The capture ends before all requests are answered, or the other end never answers. */
const OPEN_ENDED = [...CUT, 'rxt_send_inv_mr'];

group('the card as the requester', () => {
  const plain = TALKS.filter(isPlain);

  test('most connections were recorded without a repeated request', () => {
    expect(plain.length).toBeGreaterThan(70);
  });

  test.each(plain.map((talk) => [name(talk), talk] as const))('%s', async (_, talk) => {
    const replayed = await ReplayedRequester.create(talk);
    replayed.play();
    expect(replayed.requests).toEqual(capturedRequests(talk));
    const refusal = talk.packets.find(({ frame }) => (frame.aeth?.syndrome ?? 0) in REFUSED)?.frame.aeth?.syndrome;
    const statuses = replayed.completions.map(({ status }) => status);
    if (refusal !== undefined) {
      expect(statuses).toEqual([REFUSED[refusal]]);
      return;
    }
    expect(statuses.every((status) => status === 'SUCCESS')).toBe(true);
    expect(replayed.completions.map(({ wrId }) => wrId)).toEqual(statuses.map((_, i) => i));
    if (!OPEN_ENDED.includes(talk.capture)) expect(statuses.length).toBe(replayed.posted);
    for (const { offset, bytes } of replayed.read.slice(0, CUT.includes(talk.capture) ? 0 : undefined))
      expect(Buffer.compare(replayed.local.subarray(offset, offset + bytes.length), bytes)).toBe(0);
  });
});
