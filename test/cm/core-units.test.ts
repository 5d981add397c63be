/** Units of the core: service ids, the rdma_cm header, reasons, times, deadlines, derived attributes, listeners. */
import { expect, describe as group, test } from 'vitest';
import { areValidEnds, isHostAddress } from '../../src/cm/core/admission.js';
import { CMA_HDR_BYTES, parseCmaHdr, withCmaHdr } from '../../src/cm/core/cmahdr.js';
import { Deadlines } from '../../src/cm/core/deadlines.js';
import { deriveAttributes, mtuBytes, mtuCode } from '../../src/cm/core/derive.js';
import { chooseListener, Listeners, newListener } from '../../src/cm/core/listeners.js';
import { parseMad } from '../../src/cm/core/mad.js';
import type { Message } from '../../src/cm/core/messages.js';
import { Pending } from '../../src/cm/core/pending.js';
import { RejectReason, rejectReasonName, SidrStatus, sidrStatusName } from '../../src/cm/core/reasons.js';
import { parseServiceId, serviceId } from '../../src/cm/core/serviceid.js';
import { ackTimeout, milliseconds, requestPeriod } from '../../src/cm/core/times.js';
import { Random } from '../kit/random.js';
import * as mads from './mads.js';

test('a service id has the port space, then the port', () => {
  expect(serviceId('TCP', 7174)).toBe(0x0000_0000_0106_1c06n);
  expect(serviceId('UDP', 7174)).toBe(0x0000_0000_0111_1c06n);
  expect(parseServiceId(0x0106_ffffn)).toEqual({ space: 'TCP', port: 65535 });
  expect(parseServiceId(0x013f_0001n)).toEqual({ space: 'IB', port: 1 });
  expect(parseServiceId(0x1_0000_0106_1c06n)).toBeUndefined();
  expect(parseServiceId(0x0107_1c06n)).toBeUndefined();
});

group('the header of rdma_cm', () => {
  test('IPv4: version 4, the address in the last four bytes', () => {
    const hdr = { source: '10.0.0.1', destination: '10.0.0.2', sourcePort: 0x1234 };
    const bytes = withCmaHdr(hdr, Uint8Array.of(7, 8));
    const v4 = (last: number) => [...new Array(12).fill(0), 10, 0, 0, last];
    expect([...bytes]).toEqual([0, 0x40, 0x12, 0x34, ...v4(1), ...v4(2), 7, 8]);
    expect(parseCmaHdr(bytes)).toEqual(hdr);
  });

  test('IPv6: version 6, the whole address', () => {
    const hdr = { source: 'fd77::2', destination: 'fd77::3', sourcePort: 1 };
    const bytes = withCmaHdr(hdr, new Uint8Array(0));
    expect(bytes.length).toBe(CMA_HDR_BYTES);
    expect([bytes[1], bytes[4], bytes[5], bytes[19], bytes[35]]).toEqual([0x60, 0xfd, 0x77, 2, 3]);
    expect(parseCmaHdr(bytes)).toEqual(hdr);
  });

  test.each([
    ['version', 0, 1],
    ['IP version', 1, 0x50],
  ])('a header with another %s is refused', (_, at, value) => {
    const bytes = withCmaHdr({ source: '10.0.0.1', destination: '10.0.0.2', sourcePort: 1 }, new Uint8Array(0));
    bytes[at] = value;
    expect(parseCmaHdr(bytes)).toBeUndefined();
  });
});

test('isHostAddress accepts the addresses that a host can have', () => {
  const wrong = ['0.0.0.0', '0.1.2.3', '127.0.0.1', '224.0.0.1', '255.255.255.255', '::', '::1', 'ff02::1'];
  expect(wrong.filter(isHostAddress)).toEqual([]);
  const right = ['10.0.0.1', '169.254.1.1', 'fe80::1', 'fd00::1', '2001:db8::'];
  expect(right.filter(isHostAddress)).toEqual(right);
});

test.each([
  ['10.0.0.1', '10.0.0.2', '::ffff:10.0.0.2', true],
  ['127.0.0.1', '10.0.0.2', '::ffff:10.0.0.2', false],
  ['127.0.0.1', '127.0.0.2', '10.0.0.2', false],
  ['127.0.0.1', '127.0.0.2', '::ffff:127.0.0.2', true],
  ['::1', '::1', '::1', true],
  ['10.0.0.1', '127.0.0.2', '127.0.0.2', false],
])('ends of a connection: %s to %s, reached at %s: %s', (source, destination, reached, may) => {
  expect(areValidEnds({ source, destination, sourcePort: 1 }, reached)).toBe(may);
});

test('reject reasons have names in both directions, and unknown numbers stay numbers', () => {
  expect(rejectReasonName(8)).toBe('INVALID_SERVICE_ID');
  expect(rejectReasonName(28)).toBe('CONSUMER_DEFINED');
  expect(rejectReasonName(34)).toBe('34');
  expect(sidrStatusName(1)).toBe('UNSUPPORTED');
  expect(sidrStatusName(99)).toBe('99');
  const numbers = [...Object.values(RejectReason), ...Object.values(SidrStatus).map((status) => 100 + status)];
  expect(new Set(numbers).size).toBe(numbers.length);
});

group('times', () => {
  test('a time of five bits is read as Linux does, with an upper bound', () => {
    expect([0, 8, 9, 16, 17, 20, 24].map(milliseconds)).toEqual([1, 1, 2, 256, 512, 4096, 65536]);
    expect(milliseconds(31)).toBe(65536);
  });

  test('the period of a REQ is a round trip and the peer’s response time', () => {
    expect(requestPeriod(16, 20)).toBe(4608);
  });

  test('the ACK timeout is 17 against rxe, 18 against mlx5, and bounded', () => {
    expect(ackTimeout(15, 16)).toBe(17);
    expect(ackTimeout(16, 16)).toBe(18);
    expect(ackTimeout(15, 13)).toBe(16);
    expect(ackTimeout(15, 10)).toBe(15);
    expect(ackTimeout(31, 31)).toBe(31);
  });
});

test('deadlines give the earliest, whatever is moved or cleared', () => {
  const random = new Random(11);
  const items = Array.from({ length: 100 }, () => ({ deadline: Number.POSITIVE_INFINITY, heapIndex: -1 }));
  const deadlines = new Deadlines<(typeof items)[number]>();
  for (let i = 0; i < 20_000; i++) {
    const item = random.pick(items);
    if (random.chance(0.3)) deadlines.clear(item);
    else deadlines.set(item, random.below(1000));
    expect(deadlines.next).toBe(Math.min(...items.map(({ deadline }) => deadline)));
  }
  const all = items.map(({ deadline }) => deadline).filter(Number.isFinite);
  const taken: number[] = [];
  while (deadlines.next !== Number.POSITIVE_INFINITY) {
    taken.push(deadlines.next);
    expect(deadlines.takeExpired(deadlines.next - 1)).toBeUndefined();
    expect(deadlines.takeExpired(deadlines.next)).toBeDefined();
  }
  expect(taken).toEqual(all.sort((a, b) => a - b));
});

group('attributes of a queue pair from REQ and REP', () => {
  const req = parseMad(
    mads.req({ mtu: 4, tclass: 0x60, sl: 13, flow: 0x54321, resources: 4, depth: 2 }),
  ) as Message<'REQ'>;
  const rep = parseMad(
    mads.rep({ tid: 1n, id: 2, remote: 3, resources: 3, depth: 1, ackDelay: 16, qpn: 0x50, psn: 0xdef }),
  ) as Message<'REP'>;

  test('the passive end', () => {
    const { init, rtr, rts, route, sl } = deriveAttributes('passive', req, rep, 3);
    expect(init).toEqual({
      state: 'INIT',
      pkeyIndex: 3,
      portNum: 1,
      qpAccessFlags: ['remoteWrite', 'remoteRead', 'remoteAtomic', 'flushGlobal'],
    });
    expect(rtr).toEqual({
      state: 'RTR',
      pathMtu: 2048,
      destQpNum: 0x40,
      rqPsn: 0xdef,
      maxDestRdAtomic: 3,
      minRnrTimer: 0,
    });
    expect(rts).toEqual({ state: 'RTS', sqPsn: 0xabc, timeout: 17, retryCnt: 7, rnrRetry: 6, maxRdAtomic: 1 });
    expect(sl).toBe(5);
    expect(route).toEqual({
      dgid: '::ffff:10.0.0.2',
      sgid: '::ffff:10.0.0.1',
      hopLimit: 64,
      trafficClass: 0x60,
      flowLabel: 0x54321,
    });
  });

  test('the active end', () => {
    const { rtr, rts, route } = deriveAttributes('active', req, rep, 0, { minRnrTimer: 12, pathMtu: 512 });
    expect(rtr).toEqual({
      state: 'RTR',
      pathMtu: 512,
      destQpNum: 0x50,
      rqPsn: 0xabc,
      maxDestRdAtomic: 1,
      minRnrTimer: 12,
    });
    expect(rts).toEqual({ state: 'RTS', sqPsn: 0xdef, timeout: 18, retryCnt: 7, rnrRetry: 5, maxRdAtomic: 3 });
    expect([route.sgid, route.dgid]).toEqual(['::ffff:10.0.0.2', '::ffff:10.0.0.1']);
  });

  test.each(['active', 'passive'] as const)('depths are limited by our card, whatever the peer says: %s', (role) => {
    const many = { ...rep, responderResources: 255, initiatorDepth: 255 };
    const { rtr, rts } = deriveAttributes(role, req, many, 0, { maxRdAtomic: 128 });
    expect([rtr.maxDestRdAtomic, rts.maxRdAtomic]).toEqual([128, 128]);
  });

  test('a peer without responder resources gets no right to read', () => {
    const none = { ...rep, responderResources: 0 };
    expect(deriveAttributes('passive', req, none, 0).init.qpAccessFlags).toEqual(['remoteWrite']);
    expect(deriveAttributes('passive', req, none, 0, { access: ['remoteRead'] }).init.qpAccessFlags).toEqual([
      'remoteWrite',
      'remoteRead',
    ]);
  });

  test('a UC connection has no depths and no timers', () => {
    const { rtr, rts } = deriveAttributes('passive', { ...req, transport: 1 }, rep, 0);
    expect(Object.keys({ ...rtr, ...rts }).sort()).toEqual(['destQpNum', 'pathMtu', 'rqPsn', 'sqPsn', 'state']);
  });

  test('path MTUs have their codes', () => {
    expect([1, 2, 3, 4, 5].map(mtuBytes)).toEqual([256, 512, 1024, 2048, 4096]);
    expect([256, 512, 1024, 2048, 4096].map(mtuCode)).toEqual([1, 2, 3, 4, 5]);
  });
});

group('listeners', () => {
  const on = (address?: string) => ({
    space: 'TCP' as const,
    port: 1,
    transport: 'RC' as const,
    backlog: 1,
    ...(address !== undefined && { address }),
  });

  test('the listener with the most specific address gets a request', () => {
    const listeners = new Listeners();
    const [a, b] = ['10.0.0.1', '10.0.0.2'].map((address) => listeners.add(on(address)));
    const choose = (destination: string) => chooseListener(listeners.find('TCP', 1), destination);
    expect([choose('10.0.0.1'), choose('10.0.0.2'), choose('10.0.0.3')]).toEqual([a, b, undefined]);
    expect(chooseListener([newListener(on('0.0.0.0'), 1)], 'fd00::1')).toBeUndefined();
    expect(chooseListener([newListener(on('::'), 1)], '10.0.0.1')).toBeDefined();
  });

  test.each([
    [undefined, '10.0.0.1'],
    ['10.0.0.1', undefined],
    ['10.0.0.1', '::ffff:10.0.0.1'],
    ['0.0.0.0', '10.0.0.1'],
    ['10.0.0.1', '::'],
  ])('an address and port has one listener: %s and %s', (first, second) => {
    const listeners = new Listeners();
    const { handle } = listeners.add(on(first));
    expect(() => listeners.add(on(second))).toThrow('EADDRINUSE: rdma_cm port 1 (TCP) of');
    expect(() => listeners.add({ ...on(second), port: 2 })).not.toThrow();
    listeners.remove(handle);
    expect(() => listeners.add(on(second))).not.toThrow();
  });
});

test('pending requests are counted by peer, and the oldest of the peer with the most is known', () => {
  const random = new Random(12);
  const pending = new Pending<{ readonly remoteGid: string }>();
  let all: { readonly remoteGid: string }[] = [];
  for (let i = 0; i < 3000; i++) {
    if (all.length === 0 || random.chance(0.52)) {
      const request = { remoteGid: String(random.below(6)) };
      all.push(request);
      pending.add(request);
    } else {
      const gone = random.pick(all);
      all = all.filter((request) => request !== gone);
      pending.delete(gone);
      pending.delete(gone);
    }
    const of = (peer: string) => all.filter(({ remoteGid }) => remoteGid === peer);
    const counts = ['0', '1', '2', '3', '4', '5'].map((peer) => of(peer).length);
    expect([pending.size, pending.most, pending.countOf('3')]).toEqual([all.length, Math.max(...counts), counts[3]]);
    const oldest = pending.oldestOfLargest();
    const peer = oldest?.remoteGid ?? '';
    expect([of(peer).length, of(peer)[0]]).toEqual([pending.most, oldest]);
  }
});
