/** What a core makes of each message in each state, in one line of text. */
import { parseMad } from '../../src/cm/mad.js';
import * as mads from './mads.js';
import { inState, OUR_QPN, type Talk, type Way } from './talk.js';

const TIMEOUT = 4;
const CONSUMER = 28;

/** Everything that may come from the peer, about the connection that there is. */
export const STIMULI = {
  REQ: (t: Talk) => t.hear(mads.req()),
  REP: (t: Talk) => t.hear(mads.rep(t.ids)),
  RTU: (t: Talk) => t.rtu(),
  'MRA of REQ': (t: Talk) => t.hear(mads.mra({ ...t.ids, subject: 0, timeout: 24 })),
  'MRA of REP': (t: Talk) => t.hear(mads.mra({ ...t.ids, subject: 1, timeout: 24 })),
  'REJ of REQ': (t: Talk) => t.hear(mads.rej({ ...t.ids, id: 0, subject: 0, reason: CONSUMER })),
  'REJ of REP': (t: Talk) => t.hear(mads.rej({ ...t.ids, subject: 1, reason: CONSUMER })),
  'REJ, timeout': (t: Talk) =>
    t.hear(mads.rej({ ...t.ids, remote: 0, subject: 2, reason: TIMEOUT, info: mads.u64Bytes(mads.PEER_GUID) })),
  DREQ: (t: Talk) => t.dreq(),
  'DREQ for another QP': (t: Talk) => t.hear(mads.dreq({ ...t.ids, qpn: OUR_QPN + 1 })),
  DREP: (t: Talk) => t.drep(),
  LAP: (t: Talk) => t.hear(new mads.Mad(0x19, 1n).u32(0, mads.REQ.id).u32(4, t.id).bytes),
  APR: (t: Talk) => t.hear(new mads.Mad(0x1a, 1n).u32(0, mads.REQ.id).u32(4, t.id).bytes),
  // and about others
  'REP for nobody': (t: Talk) => t.hear(mads.rep({ ...t.ids, id: 0x999, remote: 0x4444 })),
  'REP of another peer': (t: Talk) => t.hear(mads.rep({ ...t.ids, id: 0x999, qpn: 0x99 })),
  'DREQ of another peer': (t: Talk) => t.hear(mads.dreq({ ...t.ids, id: 0x999, qpn: OUR_QPN })),
  'REQ, same QP': (t: Talk) => t.hear(mads.req({ id: 0x999, qpn: t.peerQpn })),
  'REQ, same id': (t: Talk) => t.hear(mads.req({ psn: 0x5555 })),
} as const;

export type Stimulus = keyof typeof STIMULI;

/** `-` = nothing; otherwise what was said, what was told, and the state that follows. */
export function outcome(way: Way, stimulus: Stimulus): string {
  const talk = inState(way);
  const before = talk.state;
  STIMULI[stimulus](talk);
  const said = talk.core.takeMessages().map(({ bytes }) => {
    const message = parseMad(bytes);
    if (typeof message === 'string') throw new Error(message);
    if (message.name === 'REJ') return `REJ ${message.reason}`;
    return message.name;
  });
  const told = talk.told().map(({ type }) => type);
  const next = talk.state === before ? [] : [`-> ${talk.state}`];
  return [...said, ...told, ...next].join(', ') || '-';
}
