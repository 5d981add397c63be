/** The reaction of a core to each message in each state, as one line of text. */
import { parseMad } from '../../src/cm/core/mad.js';
import { type Conversation, inState, OUR_QPN, type RoleAndState } from './conversation.js';
import * as mads from './mads.js';

const TIMEOUT = 4;
const CONSUMER = 28;

/** Messages of the peer about the connection. */
export const STIMULI = {
  REQ: (t: Conversation) => t.receive(mads.req()),
  REP: (t: Conversation) => t.receive(mads.rep(t.ids)),
  RTU: (t: Conversation) => t.rtu(),
  'MRA of REQ': (t: Conversation) => t.receive(mads.mra({ ...t.ids, subject: 0, timeout: 24 })),
  'MRA of REP': (t: Conversation) => t.receive(mads.mra({ ...t.ids, subject: 1, timeout: 24 })),
  'REJ of REQ': (t: Conversation) => t.receive(mads.rej({ ...t.ids, id: 0, subject: 0, reason: CONSUMER })),
  'REJ of REP': (t: Conversation) => t.receive(mads.rej({ ...t.ids, subject: 1, reason: CONSUMER })),
  'REJ, timeout': (t: Conversation) =>
    t.receive(mads.rej({ ...t.ids, remote: 0, subject: 2, reason: TIMEOUT, info: mads.u64Bytes(mads.PEER_GUID) })),
  DREQ: (t: Conversation) => t.dreq(),
  'DREQ for another QP': (t: Conversation) => t.receive(mads.dreq({ ...t.ids, qpn: OUR_QPN + 1 })),
  DREP: (t: Conversation) => t.drep(),
  LAP: (t: Conversation) => t.receive(new mads.Mad(0x19, 1n).u32(0, mads.REQ.id).u32(4, t.id).bytes),
  APR: (t: Conversation) => t.receive(new mads.Mad(0x1a, 1n).u32(0, mads.REQ.id).u32(4, t.id).bytes),
  // about other connections
  'REP for nobody': (t: Conversation) => t.receive(mads.rep({ ...t.ids, id: 0x999, remote: 0x4444 })),
  'REP of another peer': (t: Conversation) => t.receive(mads.rep({ ...t.ids, id: 0x999, qpn: 0x99 })),
  'DREQ of another peer': (t: Conversation) => t.receive(mads.dreq({ ...t.ids, id: 0x999, qpn: OUR_QPN })),
  'REQ, same QP': (t: Conversation) => t.receive(mads.req({ id: 0x999, qpn: t.peerQpn })),
  'REQ, same id': (t: Conversation) => t.receive(mads.req({ psn: 0x5555 })),
} as const;

export type Stimulus = keyof typeof STIMULI;

/**
 * Returns the messages sent, the events, and the next state; `-`: none of these.
 * @param source address that the message comes from; default the peer's
 */
export function outcome(way: RoleAndState, stimulus: Stimulus, source: string = mads.PEER_ADDRESS): string {
  const talk = inState(way);
  const before = talk.state;
  talk.source = source;
  STIMULI[stimulus](talk);
  const sent = talk.core.takeMessages().map(({ bytes }) => {
    const message = parseMad(bytes);
    if (typeof message === 'string') throw new Error(message);
    if (message.name === 'REJ') return `REJ ${message.reason}`;
    return message.name;
  });
  const events = talk.events().map(({ type }) => type);
  const next = talk.state === before ? [] : [`-> ${talk.state}`];
  return [...sent, ...events, ...next].join(', ') || '-';
}
