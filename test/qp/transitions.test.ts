/**
 * The transitions of a queue pair and the attributes of each, against the table of IBTA 10.3 as in Linux'
 * ib_modify_qp_is_ok. Every pair of states is tried with every attribute.
 */
import { describe, expect, test } from 'vitest';
import { Rig, RigQp } from '../kit/rig.js';

const STATES = ['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR'];
type Type = 'RC' | 'UC' | 'UD';
/** Required; optional. */
type Row = readonly [string, string];

const RETRY = 'TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC';
const CONNECTED = 'AV PATH_MTU DEST_QPN RQ_PSN';

const TABLE: Record<Type, Record<string, Row>> = {
  UD: {
    'RESET INIT': ['PKEY_INDEX PORT QKEY', ''],
    'INIT INIT': ['', 'PKEY_INDEX PORT QKEY'],
    'INIT RTR': ['', 'PKEY_INDEX QKEY'],
    'RTR RTS': ['SQ_PSN', 'QKEY'],
    'RTS RTS': ['', 'QKEY'],
    'RTS SQD': ['', 'EN_SQD_ASYNC_NOTIFY'],
    'SQD RTS': ['', 'QKEY'],
    'SQD SQD': ['', 'PKEY_INDEX QKEY'],
    'SQE RTS': ['', 'QKEY'],
  },
  UC: {
    'RESET INIT': ['PKEY_INDEX PORT ACCESS_FLAGS', ''],
    'INIT INIT': ['', 'PKEY_INDEX PORT ACCESS_FLAGS'],
    'INIT RTR': [CONNECTED, 'ACCESS_FLAGS PKEY_INDEX'],
    'RTR RTS': ['SQ_PSN', 'ACCESS_FLAGS'],
    'RTS RTS': ['', 'ACCESS_FLAGS'],
    'RTS SQD': ['', 'EN_SQD_ASYNC_NOTIFY'],
    'SQD RTS': ['', 'ACCESS_FLAGS'],
    'SQD SQD': ['', 'AV ACCESS_FLAGS PKEY_INDEX'],
    'SQE RTS': ['', 'ACCESS_FLAGS'],
  },
  RC: {
    'RESET INIT': ['PKEY_INDEX PORT ACCESS_FLAGS', ''],
    'INIT INIT': ['', 'PKEY_INDEX PORT ACCESS_FLAGS'],
    'INIT RTR': [`${CONNECTED} MAX_DEST_RD_ATOMIC MIN_RNR_TIMER`, 'ACCESS_FLAGS PKEY_INDEX'],
    'RTR RTS': [`SQ_PSN ${RETRY}`, 'ACCESS_FLAGS MIN_RNR_TIMER'],
    'RTS RTS': ['', 'ACCESS_FLAGS MIN_RNR_TIMER'],
    'RTS SQD': ['', 'EN_SQD_ASYNC_NOTIFY'],
    'SQD RTS': ['', 'ACCESS_FLAGS MIN_RNR_TIMER'],
    'SQD SQD': ['', `PORT AV ${RETRY} MAX_DEST_RD_ATOMIC ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER`],
  },
};
const ATTRIBUTES: Readonly<Record<string, number>> = {
  EN_SQD_ASYNC_NOTIFY: 0,
  ACCESS_FLAGS: 1,
  PKEY_INDEX: 0,
  PORT: 1,
  QKEY: 5,
  AV: 0,
  PATH_MTU: 1024,
  TIMEOUT: 14,
  RETRY_CNT: 7,
  RNR_RETRY: 7,
  RQ_PSN: 1,
  MAX_QP_RD_ATOMIC: 1,
  MIN_RNR_TIMER: 1,
  SQ_PSN: 1,
  MAX_DEST_RD_ATOMIC: 1,
  DEST_QPN: 9,
};

const words = (text: string): string[] => text.split(' ').filter((word) => word !== '');
const wanted = (names: readonly string[]) =>
  Object.fromEntries(names.map((name) => [name, ATTRIBUTES[name] as number]));
/** In the order of their bits, as qpRefused lists them. */
const inOrder = (names: readonly string[]) => Object.keys(ATTRIBUTES).filter((name) => names.includes(name));

/**
 * The attributes of a transition; undefined where there is none. RESET and ERR can be entered from all states, except
 * ERR from RESET.
 */
function rowOf(type: Type, from: string, to: string): Row | undefined {
  if (to === 'RESET' || (to === 'ERR' && from !== 'RESET')) return ['', ''];
  return TABLE[type][`${from} ${to}`];
}

/** A fresh queue pair in a state, or undefined if the type lacks that state. */
function inState(rig: Rig, type: Type, state: string): RigQp | undefined {
  if (type === 'RC' && state === 'SQE') return undefined;
  const qp = new RigQp(rig, { type, sendWr: 2, recvWr: 2 });
  const until = state === 'INIT' || state === 'RTR' ? state : 'RTS';
  if (state !== 'RESET') qp.connect({ destQpn: 9, sqPsn: 0, rqPsn: 0, until });
  if (state === 'SQE') fail(rig, qp);
  if (state === 'SQD' || state === 'ERR') expect(qp.modify({ STATE: STATES.indexOf(state) })).toBe('OK');
  expect(qp.state).toBe(state);
  qp.vector({ destQpn: 9, sqPsn: 0, rqPsn: 0 });
  return qp;
}

/** A send over memory of no region. */
function fail(rig: Rig, qp: RigQp): void {
  qp.vector({ destQpn: 9, sqPsn: 0, rqPsn: 0 });
  const to = { ah: rig.x.ahCreate(rig.pd), qpn: 9, qkey: 0 };
  rig.x.setPort(0, 1024);
  expect(qp.send({ opcode: 'SEND', pieces: [{ ptr: 4096, length: 1, lkey: 0 }], to })).toBe('OK');
  rig.out(0);
}

describe.each<Type>(['RC', 'UC', 'UD'])('%s', (type) => {
  test.each(STATES.flatMap((from) => STATES.map((to) => [from, to])))('%s to %s', async (from, to) => {
    const rig = await Rig.create();
    const state = { STATE: STATES.indexOf(to as string) };
    const fresh = () => inState(rig, type, from as string);
    const qp = fresh();
    if (qp === undefined) return;
    const row = rowOf(type, from as string, to as string);
    if (row === undefined) {
      expect(qp.modify({ ...state, ...wanted(Object.keys(ATTRIBUTES)) })).toBe('EINVAL');
      expect(qp.refused()).toEqual({ missing: [], forbidden: ['STATE'], range: [] });
      expect(qp.state).toBe(from);
      return;
    }
    const [required, optional] = row.map(words) as [string[], string[]];
    const rest = Object.keys(ATTRIBUTES).filter((name) => ![...required, ...optional].includes(name));
    // all forbidden attributes are named, all missing ones are named, and nothing is changed
    expect(qp.modify({ ...state, ...wanted([...required, ...rest]) })).toBe(rest.length === 0 ? 'OK' : 'EINVAL');
    expect(qp.refused()).toEqual({ missing: [], forbidden: inOrder(rest), range: [] });
    if (required.length > 0) {
      expect(qp.modify({ ...state, ...wanted(optional) })).toBe('EINVAL');
      expect(qp.refused()).toEqual({ missing: inOrder(required), forbidden: [], range: [] });
    }
    expect(qp.state).toBe(from);
    // the smallest and the largest value; querying the state has overwritten the address vector
    qp.vector({ destQpn: 9, sqPsn: 0, rqPsn: 0 });
    expect(qp.modify({ ...state, ...wanted(required) })).toBe('OK');
    expect(qp.state).toBe(to);
    const other = fresh() as RigQp;
    const believed = { CUR_STATE: STATES.indexOf(from as string) };
    expect(other.modify({ ...state, ...believed, ...wanted([...required, ...optional]) })).toBe('OK');
    expect(other.state).toBe(to);
  });
});
