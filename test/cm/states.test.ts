/** Every message in every state, and the transitions between states. */
import { expect, describe as group, test } from 'vitest';
import { CONNECTION_STATES, isTransition } from '../../src/cm/core/states.js';
import { CONVERSATIONS, inState, type RoleAndState } from './conversation.js';
import * as mads from './mads.js';
import { outcome, STIMULI, type Stimulus } from './statematrix.js';

/** Reactions in every state. */
const ALWAYS: Partial<Record<Stimulus, string>> = { 'REP for nobody': 'REJ 6', 'DREQ of another peer': 'DREP' };

/** Messages sent, events, and the next state. Messages that are not listed are ignored. */
const MATRIX: Readonly<Record<RoleAndState, Partial<Record<Stimulus, string>>>> = {
  'active REQ_SENT': {
    REQ: 'CONNECT_REQUEST',
    REP: 'CONNECT_RESPONSE, -> REP_RCVD',
    'REJ of REQ': 'REJECTED, -> CLOSED',
    DREQ: 'DREP, REJECTED, -> TIMEWAIT',
    'DREQ of another peer': 'DREP, REJECTED, -> TIMEWAIT',
    'REP of another peer': 'CONNECT_RESPONSE, -> REP_RCVD',
    'REQ, same QP': 'CONNECT_REQUEST',
    'REQ, same id': 'CONNECT_REQUEST',
  },
  'active REP_RCVD': {
    REQ: 'REJ 10',
    REP: 'MRA',
    'REJ of REP': 'REJECTED, -> TIMEWAIT',
    'REJ, timeout': 'REJECTED, -> TIMEWAIT',
    DREQ: 'DISCONNECTED, -> DREQ_RCVD',
    'REQ, same QP': 'REJ 10',
    'REQ, same id': 'REJ 10',
  },
  'active ESTABLISHED': {
    REQ: 'REJ 10, DREQ, -> DREQ_SENT',
    REP: 'RTU',
    'REJ of REP': 'DISCONNECTED, -> TIMEWAIT',
    'REJ, timeout': 'DISCONNECTED, -> TIMEWAIT',
    DREQ: 'DISCONNECTED, -> DREQ_RCVD',
    'REQ, same QP': 'REJ 10, DREQ, -> DREQ_SENT',
    'REQ, same id': 'REJ 10, DREQ, -> DREQ_SENT',
  },
  'active DREQ_SENT': {
    REQ: 'REJ 10, DISCONNECTED, -> TIMEWAIT',
    'REJ of REP': 'DISCONNECTED, -> TIMEWAIT',
    'REJ, timeout': 'DISCONNECTED, -> TIMEWAIT',
    DREQ: 'DREP, DISCONNECTED, -> TIMEWAIT',
    DREP: 'DISCONNECTED, -> TIMEWAIT',
    'REQ, same QP': 'REJ 10, DISCONNECTED, -> TIMEWAIT',
    'REQ, same id': 'REJ 10, DISCONNECTED, -> TIMEWAIT',
  },
  'active DREQ_RCVD': {
    REQ: 'REJ 10',
    'REQ, same QP': 'REJ 10',
    'REQ, same id': 'REJ 10',
  },
  'active TIMEWAIT': {
    REQ: 'REJ 10',
    DREQ: 'DREP',
    'REQ, same QP': 'REJ 10',
    'REQ, same id': 'REJ 10',
  },
  'passive REQ_RCVD': {
    REQ: 'MRA',
    REP: 'REJ 6',
    'REJ of REP': 'REJECTED, -> CLOSED',
    'REJ, timeout': 'REJECTED, -> CLOSED',
    'REP of another peer': 'REJ 6',
    'REQ, same QP': 'REJ 10, REJECTED, -> CLOSED',
    'REQ, same id': 'REJ 10, REJECTED, -> CLOSED',
  },
  'passive REJ_SENT': {
    REQ: 'REJ 28',
    REP: 'REJ 6',
    'REP of another peer': 'REJ 6',
    'REQ, same QP': 'CONNECT_REQUEST',
    'REQ, same id': 'REJ 10',
  },
  'passive REP_SENT': {
    REQ: 'REP',
    REP: 'REJ 6',
    RTU: 'ESTABLISHED, -> ESTABLISHED',
    'REJ of REP': 'REJECTED, -> CLOSED',
    'REJ, timeout': 'REJECTED, -> CLOSED',
    DREQ: 'DISCONNECTED, -> DREQ_RCVD',
    'REP of another peer': 'REJ 6',
    'REQ, same QP': 'REJ 10, REJECTED, -> CLOSED',
    'REQ, same id': 'REJ 10, REJECTED, -> CLOSED',
  },
  'passive ESTABLISHED': {
    REP: 'REJ 6',
    'REJ of REP': 'DISCONNECTED, -> TIMEWAIT',
    'REJ, timeout': 'DISCONNECTED, -> TIMEWAIT',
    DREQ: 'DISCONNECTED, -> DREQ_RCVD',
    'REP of another peer': 'REJ 6',
    'REQ, same QP': 'REJ 10, DREQ, -> DREQ_SENT',
    'REQ, same id': 'REJ 10, DREQ, -> DREQ_SENT',
  },
  'passive DREQ_SENT': {
    REP: 'REJ 6',
    'REJ of REP': 'DISCONNECTED, -> TIMEWAIT',
    'REJ, timeout': 'DISCONNECTED, -> TIMEWAIT',
    DREQ: 'DREP, DISCONNECTED, -> TIMEWAIT',
    DREP: 'DISCONNECTED, -> TIMEWAIT',
    'REP of another peer': 'REJ 6',
    'REQ, same QP': 'REJ 10, DISCONNECTED, -> TIMEWAIT',
    'REQ, same id': 'REJ 10, DISCONNECTED, -> TIMEWAIT',
  },
  'passive DREQ_RCVD': {
    REP: 'REJ 6',
    'REP of another peer': 'REJ 6',
    'REQ, same QP': 'REJ 10',
    'REQ, same id': 'REJ 10',
  },
  'passive TIMEWAIT': {
    REQ: 'REJ 10',
    REP: 'REJ 6',
    DREQ: 'DREP',
    'REP of another peer': 'REJ 6',
    'REQ, same QP': 'REJ 10',
    'REQ, same id': 'REJ 10',
  },
};

group.each(Object.keys(CONVERSATIONS) as RoleAndState[])('%s', (way) => {
  test.each(Object.keys(STIMULI) as Stimulus[])('%s', (stimulus) => {
    expect(outcome(way, stimulus)).toBe(MATRIX[way][stimulus] ?? ALWAYS[stimulus] ?? '-');
  });
});

/** The same messages from another address: no connection ends, whatever they name. */
const FROM_ELSEWHERE: Partial<Record<Stimulus, string>> = {
  // It names the peer's GID, to which a REP would go.
  REQ: 'REJ 12',
  'REQ, same QP': 'REJ 12',
  'REQ, same id': 'REJ 12',
  // As for connections that do not exist.
  REP: 'REJ 6',
  'REP for nobody': 'REJ 6',
  'REP of another peer': 'REJ 6',
  DREQ: 'DREP',
  'DREQ for another QP': 'DREP',
  'DREQ of another peer': 'DREP',
};

group.each(Object.keys(CONVERSATIONS) as RoleAndState[])('%s, and from another address', (way) => {
  test.each(Object.keys(STIMULI) as Stimulus[])('%s', (stimulus) => {
    expect(outcome(way, stimulus, '10.0.0.66')).toBe(FROM_ELSEWHERE[stimulus] ?? '-');
  });
});

test('a REQ with GUID, id and queue pair of another peer is a new request', () => {
  const talk = inState('passive ESTABLISHED');
  talk.source = '10.0.0.66';
  for (const id of [mads.REQ.id, 0x999]) talk.receive(mads.req({ id, from: [10, 0, 0, 66] })).events();
  expect([talk.state, talk.core.stateOf(talk.id)]).toEqual(['ESTABLISHED', 'ESTABLISHED']);
  // The peer's own duplicates and stale connections are still found.
  talk.source = mads.PEER_ADDRESS;
  talk.discard().receive(mads.req({ id: 0x998 }));
  expect(talk.sent().map(({ name }) => name)).toEqual(['REJ', 'DREQ']);
});

test('only the transitions of the table happen', () => {
  const rows = CONNECTION_STATES.map((from) => {
    const to = CONNECTION_STATES.filter((state) => isTransition(from, state));
    return `${from} -> ${to.join(' ')}`;
  });
  expect(rows).toEqual([
    'REQ_SENT -> REP_RCVD TIMEWAIT CLOSED',
    'REP_RCVD -> ESTABLISHED DREQ_RCVD TIMEWAIT CLOSED',
    'REQ_RCVD -> REJ_SENT REP_SENT CLOSED',
    'REJ_SENT -> CLOSED',
    'REP_SENT -> ESTABLISHED DREQ_SENT DREQ_RCVD TIMEWAIT CLOSED',
    'ESTABLISHED -> DREQ_SENT DREQ_RCVD TIMEWAIT',
    'DREQ_SENT -> TIMEWAIT CLOSED',
    'DREQ_RCVD -> TIMEWAIT',
    'TIMEWAIT -> CLOSED',
    'CLOSED -> ',
  ]);
});
