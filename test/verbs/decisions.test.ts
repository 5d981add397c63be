// The trace of decisions as a program sees it: device.decisions() and explanations.
import { expect, test } from 'vitest';
import { connectedPair, type End } from './pair.js';

const write = ({ qp, mr }: End, rkey: number, iova: number | bigint) =>
  qp.postSend({ opcode: 'RDMA_WRITE', sgList: mr.sge(0, 8), remoteAddr: iova, rkey });

test('both ends trace their decisions on a refused request, and the explanation has them', async () => {
  await using pair = await connectedPair({ open: { decisions: true } });
  const { a, b } = pair;
  write(a, (b.mr.rkey ^ 1) >>> 0, b.mr.iova);
  const wc = await a.cq.next({ timeout: 20_000 });
  const [failed, state] = a.device.decisions(a.qp).slice(-2);
  expect(failed).toMatchObject({ kind: 'SEND_FAILED', qpNum: a.qp.qpNum, status: 'REM_ACCESS_ERR', syndrome: 0x62 });
  expect(state).toMatchObject({ kind: 'STATE', from: 'RTS', to: 'ERR', reason: 'SEND_FAILED' });
  expect(b.device.decisions().map(({ kind }) => kind)).toEqual(['STATE', 'STATE', 'STATE', 'NAK', 'STATE']);
  expect(a.device.explain(wc).decisions.slice(-2)).toEqual([
    expect.stringMatching(/^ +-?0\.000 ms {2}send fails at psn \d+: REM_ACCESS_ERR, NAK: remote access error$/),
    '      0.000 ms  state RTS -> ERR: a send work request failed',
  ]);
});

test('the trace keeps the given number of decisions, of one queue pair or of all', async () => {
  await using pair = await connectedPair({ open: { decisions: 3 } });
  const { a } = pair;
  const other = await a.pd.createQp({ sendCq: a.cq });
  await other.modify({ state: 'INIT', qpAccessFlags: [], pkeyIndex: 0, portNum: 1 });
  const kept = a.device.decisions();
  expect(kept.map(({ number }) => number)).toEqual([0, 1, 2, 3]);
  expect(a.device.decisions(other)).toEqual(kept.slice(-1));
  await other.modify({ state: 'RESET' });
  expect(a.device.decisions()[0]?.number).toBe(1);
});

test('a device without traceDecisions keeps no decisions', async () => {
  await using pair = await connectedPair();
  const { a } = pair;
  write(a, 1, 1);
  expect((await a.cq.next({ timeout: 20_000 })).explain().decisions).toEqual([]);
  expect(a.device.decisions()).toEqual([]);
});

test.each([-1, 65537])('traceDecisions of %d is refused', async (decisions) => {
  await expect(connectedPair({ open: { decisions } })).rejects.toThrow(RangeError);
});
