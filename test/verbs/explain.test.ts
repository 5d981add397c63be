// Explanations of failed completions name what to check.
import { describe, expect, test } from 'vitest';
import { counterNames, WcOpcode, WcStatus } from '../../src/device/codes.js';
import { explainDrop } from '../../src/verbs/diagnose/drops.js';
import {
  explain,
  type FailureContext,
  syndromeText,
  throwIfFailed,
  WcError,
} from '../../src/verbs/diagnose/explain.js';

const wc = {
  wrId: 7,
  status: WcStatus.RETRY_EXC_ERR as number,
  opcode: WcOpcode.RDMA_WRITE as number,
  qpNum: 0x1a2b3c,
  syndrome: 0,
  psn: 0x123456,
  timeouts: 7,
  rnrs: 0,
};
const known: FailureContext = {
  peer: { address: '10.0.0.2', qpNum: 0x4d5e },
  timeout: 14,
  retryCnt: 7,
  rnrRetry: 3,
  pathMtu: 1024,
  waitsForCredits: false,
  received: 0,
  drops: {},
  link: 'packet',
};
const causes = (failure: Partial<typeof wc>, about: Partial<FailureContext> = {}) =>
  explain({ ...wc, ...failure }, { ...known, ...about }).likelyCauses.join('\n');

test('an explanation has the facts of the work request', () => {
  expect(explain(wc, known)).toMatchObject({
    summary:
      'RDMA_WRITE (wrId 7) on qp 0x1a2b3c to 10.0.0.2 qp 0x004d5e failed with RETRY_EXC_ERR: ' +
      'the peer did not acknowledge, and all retries are used up',
    status: 'RETRY_EXC_ERR',
    syndrome: 'no answer',
    psn: 0x123456,
    peer: { address: '10.0.0.2', qpNum: 0x4d5e },
    timers: { ackTimeoutMs: 67.108864, timeouts: 7, retryCnt: 7, rnrNaks: 0, rnrRetry: 3 },
  });
});

test('the summary says that a flushed request may have reached the peer, and not of a receive', () => {
  const flushed = (opcode: number) => explain({ ...wc, status: WcStatus.WR_FLUSH_ERR, opcode }, known).summary;
  expect(flushed(WcOpcode.SEND)).toMatch(/before completion; a request in flight may have reached the peer$/);
  expect(flushed(WcOpcode.RECV)).toMatch(/before completion$/);
});

test('a completion explains itself after its queue pair was closed', () => {
  expect(explain(wc, undefined).summary).toContain('RETRY_EXC_ERR');
  expect(explain(wc, undefined).likelyCauses.length).toBeGreaterThan(0);
});

describe('the causes of RETRY_EXC_ERR', () => {
  test('begin with path, address, firewall and NAT when the peer never answered', () => {
    expect(causes({})).toMatch(/nothing at all came back/);
    expect(causes({})).toMatch(/firewall .* UDP port 4791/);
    expect(causes({})).toMatch(/NAT .* ICRC/);
    expect(causes({})).toMatch(/number than 0x004d5e/);
  });
  test('begin with a vanished peer when it answered before', () => {
    expect(causes({}, { received: 900 })).toMatch(/worked before \(900 packets came\)/);
    expect(causes({}, { received: 900 })).not.toMatch(/nothing at all/);
  });
  test('begin with lost packets after sequence NAKs', () => {
    expect(causes({ syndrome: 0x60 })).toMatch(/sequence NAKs/);
    expect(causes({ syndrome: 0x60 })).toMatch(/pathMtu 1024/);
    expect(causes({ syndrome: 0x60 })).not.toMatch(/firewall/);
  });
  test('begin with the peer after RNR NAKs', () => {
    expect(causes({})).toMatch(/longer than 470 ms \(67 ms, 7 retries\)/);
  });
  test('begin with our own drops if there are any', () => {
    expect(causes({}, { drops: { rx_icrc_errors: 12 } }).split('\n')[0]).toMatch(/rx_icrc_errors 12/);
  });
});

test.each([
  ['REM_ACCESS_ERR', /rkey is wrong/, /full address, not an offset/],
  ['REM_INV_REQ_ERR', /qpAccessFlags/, /pathMtu differs: ours is 1024/],
  ['REM_OP_ERR', /peer's receive/, /program or device failed/],
  ['RNR_RETRY_EXC_ERR', /posts no receives/, /rnrRetry 3/],
  ['LOC_PROT_ERR', /lkey/, /protection domain/],
  ['WR_FLUSH_ERR', /first completion/, /moved the queue pair to ERR, or the peer disconnected/],
] as const)('%s', (status, ...patterns) => {
  for (const pattern of patterns) expect(causes({ status: WcStatus[status] })).toMatch(pattern);
});

test('every completion status has a meaning', () => {
  for (const [name, status] of Object.entries(WcStatus))
    if (typeof status === 'number' && !['SUCCESS', 'LOC_EEC_OP_ERR'].includes(name))
      expect(explain({ ...wc, status }, known).summary, name).not.toContain('unknown status');
});

test('every NAK code has a name', () => {
  expect(syndromeText(0)).toBe('no answer');
  expect(syndromeText(0x1f)).toBe('ACK (0x1f)');
  expect(syndromeText(0x2c)).toBe('RNR NAK: no receive posted, timer code 12 (0x2c)');
  expect(syndromeText(0x62)).toBe('NAK: remote access error (0x62)');
  expect(syndromeText(0x7f)).toBe('NAK with reserved code 31 (0x7f)');
  expect(syndromeText(0x80)).toBe('reserved syndrome (0x80)');
});

test('throwIfFailed throws the explanation of a failed completion only', () => {
  const failed = { status: wc.status, explain: () => explain(wc, known) };
  expect(() => throwIfFailed(failed)).toThrow(WcError);
  expect(() => throwIfFailed(failed)).toThrow(/10\.0\.0\.2 qp 0x004d5e[\s\S]*firewall/);
  expect(() => throwIfFailed({ ...failed, status: WcStatus.SUCCESS })).not.toThrow();
});

describe('drop counters', () => {
  test('each have an explanation, and no other counter has one', () => {
    for (const name of counterNames) expect(explainDrop(name) !== undefined, name).toBe(name.startsWith('drop_'));
    expect(explainDrop('toString')).toBeUndefined();
  });

  test('are part of the explanation of a request without an answer', () => {
    const [first] = causes({}, { drops: { drop_source_address: 3, 'link.rx_dropped': 1 } }).split('\n');
    expect(first).toMatch(
      /drop_source_address 3 \(the source address is not the peer's.*\); link\.rx_dropped 1 \(frames arrived faster/,
    );
  });
});
