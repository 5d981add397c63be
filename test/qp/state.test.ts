/**
 * The states of a queue pair: the whole matrix of transitions, the attributes at fault in a refused one, and the
 * operations that each state allows.
 */
import { describe, expect, test } from 'vitest';
import { ack, type Packet, request } from '../../src/probe/packet/packets.js';
import { PING, rc, send } from '../kit/conversation.js';
import { type ConnectOptions, Rig, type RigQp } from '../kit/rig.js';

const STATES = ['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR'] as const;
type State = (typeof STATES)[number];
const OPTIONS: ConnectOptions = { destQpn: 0x22, sqPsn: 1000, rqPsn: 100 };
/** A value in range for every attribute. */
const VALUES: Record<string, number> = {
  CUR_STATE: 0,
  EN_SQD_ASYNC_NOTIFY: 1,
  ACCESS_FLAGS: 15,
  PKEY_INDEX: 0,
  PORT: 1,
  QKEY: 0,
  AV: 0,
  PATH_MTU: 1024,
  TIMEOUT: 14,
  RETRY_CNT: 7,
  RNR_RETRY: 7,
  RQ_PSN: 100,
  MAX_QP_RD_ATOMIC: 4,
  ALT_PATH: 0,
  MIN_RNR_TIMER: 12,
  SQ_PSN: 1000,
  MAX_DEST_RD_ATOMIC: 4,
  PATH_MIG_STATE: 0,
  CAP: 0,
  DEST_QPN: 0x22,
};

/** A fresh queue pair in a state. RC has no SQE, so none can enter it. */
function inState(rig: Rig, state: State): RigQp {
  const qp = rig.qp();
  if (state === 'RESET') return qp;
  const until = state === 'INIT' || state === 'RTR' ? state : 'RTS';
  qp.connect({ ...OPTIONS, until });
  if (state === 'SQD') expect(qp.modify({ STATE: 4 })).toBe('OK');
  if (state === 'ERR') expect(qp.modify({ STATE: 6 })).toBe('OK');
  expect(qp.state).toBe(state);
  return qp;
}

/** One row of the matrix: the attributes that the transition requires and allows, found by trying. */
function move(rig: Rig, from: State, to: State): string {
  const tried = inState(rig, from);
  const STATE = STATES.indexOf(to);
  if (tried.modify({ STATE }) !== 'OK' && tried.refused().forbidden.includes('STATE')) return 'illegal';
  const required = tried.state === to && tried.refused().missing.length === 0 ? [] : tried.refused().missing;
  const given = Object.fromEntries(required.map((name) => [name, VALUES[name] as number]));
  const optional = Object.keys(VALUES).filter((name) => {
    if (required.includes(name)) return false;
    const qp = inState(rig, from);
    qp.vector(OPTIONS);
    const value = name === 'CUR_STATE' ? STATES.indexOf(from) : (VALUES[name] as number);
    const done = qp.modify({ STATE, ...given, [name]: value }) === 'OK';
    expect(qp.state, `${from} to ${to} with ${name}`).toBe(done ? to : from);
    rig.x.qpDestroy(qp.handle);
    rig.x.cqDestroy(qp.cq);
    return done;
  });
  return `${required.join(' ') || '-'} (${optional.join(' ') || '-'})`;
}

test('the table of transitions: required attributes (optional ones); SQE does not exist for reliable connections', async () => {
  const rig = await Rig.create(1, { maxQp: 512 });
  const from = STATES.filter((state) => state !== 'SQE');
  const matrix = from.flatMap((a) => STATES.map((b) => `${a} -> ${b}: ${move(rig, a, b)}`));
  expect(matrix.filter((line) => !line.endsWith('illegal'))).toMatchInlineSnapshot(`
    [
      "RESET -> RESET: - (CUR_STATE)",
      "RESET -> INIT: ACCESS_FLAGS PKEY_INDEX PORT (CUR_STATE)",
      "INIT -> RESET: - (CUR_STATE)",
      "INIT -> INIT: - (CUR_STATE ACCESS_FLAGS PKEY_INDEX PORT)",
      "INIT -> RTR: AV PATH_MTU RQ_PSN MIN_RNR_TIMER MAX_DEST_RD_ATOMIC DEST_QPN (CUR_STATE ACCESS_FLAGS PKEY_INDEX)",
      "INIT -> ERR: - (CUR_STATE)",
      "RTR -> RESET: - (CUR_STATE)",
      "RTR -> RTS: TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC SQ_PSN (CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER)",
      "RTR -> ERR: - (CUR_STATE)",
      "RTS -> RESET: - (CUR_STATE)",
      "RTS -> RTS: - (CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER)",
      "RTS -> SQD: - (CUR_STATE EN_SQD_ASYNC_NOTIFY)",
      "RTS -> ERR: - (CUR_STATE)",
      "SQD -> RESET: - (CUR_STATE)",
      "SQD -> RTS: - (CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER)",
      "SQD -> SQD: - (CUR_STATE ACCESS_FLAGS PKEY_INDEX PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MIN_RNR_TIMER MAX_DEST_RD_ATOMIC)",
      "SQD -> ERR: - (CUR_STATE)",
      "ERR -> RESET: - (CUR_STATE)",
      "ERR -> ERR: - (CUR_STATE)",
    ]
  `);
});

test('every legal transition succeeds, and no other', async () => {
  const rig = await Rig.create();
  const legal = (from: State) =>
    STATES.filter((to) => {
      const qp = inState(rig, from);
      return qp.modify({ STATE: STATES.indexOf(to) }) === 'OK' || !qp.refused().forbidden.includes('STATE');
    }).join(' ');
  expect(legal('RESET')).toBe('RESET INIT');
  expect(legal('INIT')).toBe('RESET INIT RTR ERR');
  expect(legal('RTR')).toBe('RESET RTS ERR');
  expect(legal('RTS')).toBe('RESET RTS SQD ERR');
  expect(legal('SQD')).toBe('RESET RTS SQD ERR');
  expect(legal('ERR')).toBe('RESET ERR');
});

describe('a refused modify', () => {
  test('names the missing attributes', async () => {
    const qp = inState(await Rig.create(), 'RESET');
    expect(qp.modify({ STATE: 1, PORT: 1 })).toBe('EINVAL');
    expect(qp.refused()).toEqual({ missing: ['ACCESS_FLAGS', 'PKEY_INDEX'], forbidden: [], range: [] });
  });

  test('names the attributes that are not allowed', async () => {
    const qp = inState(await Rig.create(), 'RTS');
    expect(qp.modify({ STATE: 3, SQ_PSN: 7, TIMEOUT: 1 })).toBe('EINVAL');
    expect(qp.refused()).toEqual({ missing: [], forbidden: ['TIMEOUT', 'SQ_PSN'], range: [] });
  });

  test('names the state when there is no such transition', async () => {
    const qp = inState(await Rig.create(), 'INIT');
    expect(qp.modify({ STATE: 3 })).toBe('EINVAL');
    expect(qp.refused()).toEqual({ missing: [], forbidden: ['STATE'], range: [] });
    const all = { AV: 0, PATH_MTU: 256, DEST_QPN: 1, RQ_PSN: 1, MAX_DEST_RD_ATOMIC: 1, MIN_RNR_TIMER: 1 };
    for (const nobodys of [7, 18, 99, 0xffffffff]) {
      expect(inState(qp.rig, 'RESET').modify({ STATE: nobodys, ...all })).toBe('EINVAL');
      expect(qp.modify({ STATE: nobodys })).toBe('EINVAL');
      expect(qp.refused().forbidden).toEqual(['STATE']);
    }
  });

  const WRONG: [State, Record<string, number>][] = [
    ['INIT', { ACCESS_FLAGS: 16 }],
    ['INIT', { PKEY_INDEX: 1 }],
    ['INIT', { PORT: 0 }],
    ['INIT', { PORT: 2 }],
    ['INIT', { CUR_STATE: 3 }],
    ['SQD', { TIMEOUT: 32 }],
    ['SQD', { RETRY_CNT: 8 }],
    ['SQD', { RNR_RETRY: 8 }],
    ['SQD', { MIN_RNR_TIMER: 32 }],
    ['SQD', { MAX_QP_RD_ATOMIC: 129 }],
    ['SQD', { MAX_DEST_RD_ATOMIC: 129 }],
  ];
  test.each(WRONG)('in %s names the value out of range: %o', async (state, attributes) => {
    const qp = inState(await Rig.create(), state);
    const same = STATES.indexOf(state);
    expect(qp.modify({ STATE: same, ...attributes })).toBe('EINVAL');
    expect(qp.refused()).toEqual({ missing: [], forbidden: [], range: Object.keys(attributes) });
  });

  test.each([0, 255, 257, 1000, 8192])('path MTU %i', async (PATH_MTU) => {
    const qp = inState(await Rig.create(), 'INIT');
    qp.vector(OPTIONS);
    const all = { STATE: 2, AV: 0, DEST_QPN: 1, RQ_PSN: 1, MAX_DEST_RD_ATOMIC: 1, MIN_RNR_TIMER: 1 };
    expect(qp.modify({ ...all, PATH_MTU })).toBe('EINVAL');
    expect(qp.refused().range).toEqual(['PATH_MTU']);
    expect(qp.modify({ ...all, PATH_MTU: 256, RQ_PSN: 1 << 24, DEST_QPN: 1 << 24 })).toBe('EINVAL');
    expect(qp.refused().range).toEqual(['RQ_PSN', 'DEST_QPN']);
  });

  test('changes nothing', async () => {
    const qp = inState(await Rig.create(), 'INIT');
    expect(qp.modify({ STATE: 1, ACCESS_FLAGS: 1, PORT: 9 })).toBe('EINVAL');
    expect([qp.state, qp.attribute('ACCESS_FLAGS'), qp.attribute('PORT')]).toEqual(['INIT', 15, 1]);
  });
});

test('a query returns what was set', async () => {
  const qp = (await Rig.create()).qp();
  const set = { mtu: 2048, timeout: 9, retryCnt: 3, rnrRetry: 4, minRnrTimer: 5, maxRdAtomic: 6, maxDestRdAtomic: 7 };
  qp.connect({ ...OPTIONS, ...set, access: 3 });
  const names = ['STATE', 'PATH_MTU', 'TIMEOUT', 'RETRY_CNT', 'RNR_RETRY', 'MIN_RNR_TIMER', 'MAX_QP_RD_ATOMIC'];
  expect(names.map((name) => qp.attribute(name))).toEqual([3, 2048, 9, 3, 4, 5, 6]);
  const more = ['MAX_DEST_RD_ATOMIC', 'ACCESS_FLAGS', 'DEST_QPN', 'SQ_PSN', 'RQ_PSN', 'QPN', 'PORT'];
  expect(more.map((name) => qp.attribute(name))).toEqual([7, 3, 0x22, 1000, 100, qp.qpn, 1]);
});

describe('what each state allows', () => {
  const sent: Packet = request.sendOnly({ psn: 1000, payload: PING, ackReq: true });
  const ping = { wrId: 9, opcode: 'SEND', inline: PING };

  test('RESET: nothing can be posted', async () => {
    const qp = inState(await Rig.create(), 'RESET');
    expect([qp.send(ping), qp.recv(1)]).toEqual(['EINVAL', 'EINVAL']);
  });

  test('INIT: receives can be posted, requests are dropped', async () => {
    const c = await rc({ until: 'INIT', receives: 1 });
    expect(c.qp.send(ping)).toBe('EINVAL');
    c.in(0, send({ psn: 100 }), ack({ psn: 1000, msn: 1 }))
      .silent()
      .counts({ drop_qp_state: 2 })
      .wc();
  });

  test('RTR: requests are answered, answers are dropped, nothing can be sent', async () => {
    const c = await rc({ until: 'RTR', receives: 1 });
    expect(c.qp.send(ping)).toBe('EINVAL');
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .events('COMM_EST')
      .in(1, ack({ psn: 1000, msn: 1 }))
      .silent()
      .counts({ drop_qp_state: 1 });
  });

  test('RTR to RTS keeps what was received', async () => {
    const c = await rc({ until: 'RTR', receives: 2 });
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .events('COMM_EST');
    const set = { STATE: 3, SQ_PSN: 1000, TIMEOUT: 14, RETRY_CNT: 7, RNR_RETRY: 7, MAX_QP_RD_ATOMIC: 1 };
    c.at(1, () => c.qp.modify(set))
      .in(2, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }))
      .wc({ wrId: 2 });
  });

  test('SQD: requests are answered; what is posted waits for RTS', async () => {
    const c = await rc({ receives: 1 });
    c.at(0, () => c.qp.modify({ STATE: 4 }))
      .post(1, ping)
      .silent()
      .in(2, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .at(3, () => c.qp.modify({ STATE: 3 }))
      .out(sent)
      .in(4, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 9 });
  });

  test('SQD: a message that was begun is finished', async () => {
    const c = await rc({ mtu: 256 });
    const payload = c.buffer.bytes.slice(0, 40 * 256);
    const packets = request.send({ psn: 1000, payload, mtu: 256 });
    for (const i of [15, 31]) (packets[i] as Packet).bth.ackReq = true;
    c.post(0, { wrId: 1, opcode: 'SEND', pieces: [c.buffer.piece(0, payload.length)] })
      .out(...packets.slice(0, 32))
      .at(1, () => c.qp.modify({ STATE: 4, EN_SQD_ASYNC_NOTIFY: 1 }))
      .in(2, ack({ psn: 1031, msn: 0 }))
      .out(...packets.slice(32))
      .in(3, ack({ psn: 1039, msn: 1 }))
      .events('SQ_DRAINED')
      .wc({ wrId: 1 });
  });

  test('the rights of a queue pair may change in RTS', async () => {
    const c = await rc();
    c.at(0, () => c.qp.modify({ STATE: 3, ACCESS_FLAGS: 1 }));
    expect(c.qp.attribute('ACCESS_FLAGS')).toBe(1);
  });
});
