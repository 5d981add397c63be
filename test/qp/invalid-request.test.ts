/**
 * Requests that break the rules of sequence and length (IBTA 9.7.4.1.3, 9.7.4.1.6): a NAK of an invalid request, and
 * the end of the queue pair. The receive that was being filled completes in error; without one, an event is raised.
 */
import { describe, test } from 'vitest';
import { ack, nak, OPCODES, type Packet, request } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, pattern, rc, TARGET_VA } from '../kit/conversation.js';

type Make = (c: Conversation, psn: number) => Packet;
const MTU = pattern(1024);
const at = (c: Conversation) => ({ va: TARGET_VA, rkey: c.target.rkey });

/** Every request packet, each valid by itself. */
const PACKETS: Record<string, Make> = {
  SEND_FIRST: (_, psn) => request.sendFirst({ psn, payload: MTU }),
  SEND_MIDDLE: (_, psn) => request.sendMiddle({ psn, payload: MTU }),
  SEND_LAST: (_, psn) => request.sendLast({ psn, payload: PING }),
  SEND_LAST_WITH_IMM: (_, psn) => request.sendLastImm({ psn, payload: PING, imm: 1 }),
  SEND_LAST_WITH_INVALIDATE: (_, psn) => request.sendLastInvalidate({ psn, payload: PING, invalidate: 1 }),
  SEND_ONLY: (_, psn) => request.sendOnly({ psn, payload: PING }),
  SEND_ONLY_WITH_IMM: (_, psn) => request.sendOnlyImm({ psn, payload: PING, imm: 1 }),
  SEND_ONLY_WITH_INVALIDATE: (_, psn) => request.sendOnlyInvalidate({ psn, payload: PING, invalidate: 1 }),
  WRITE_FIRST: (c, psn) => request.writeFirst({ psn, ...at(c), length: 2000, payload: MTU }),
  WRITE_MIDDLE: (_, psn) => request.writeMiddle({ psn, payload: MTU }),
  WRITE_LAST: (_, psn) => request.writeLast({ psn, payload: PING }),
  WRITE_LAST_WITH_IMM: (_, psn) => request.writeLastImm({ psn, payload: PING, imm: 1 }),
  WRITE_ONLY: (c, psn) => request.writeOnly({ psn, ...at(c), payload: PING }),
  WRITE_ONLY_WITH_IMM: (c, psn) => request.writeOnlyImm({ psn, ...at(c), payload: PING, imm: 1 }),
  READ: (c, psn) => request.read({ psn, ...at(c), length: 8 }),
  COMPARE_SWAP: (c, psn) => request.compareSwap({ psn, ...at(c), compare: 0n, swap: 0n }),
  FETCH_ADD: (c, psn) => request.fetchAdd({ psn, ...at(c), add: 0n }),
};
const continues = (kind: string) => (name: string) => new RegExp(`^${kind}_(MIDDLE|LAST)`).test(name);
const names = Object.keys(PACKETS);
const make = (name: string, c: Conversation, psn: number) => (PACKETS[name] as Make)(c, psn);

describe('outside of a message', () => {
  test.each(names.filter((name) => /MIDDLE|LAST/.test(name)))('%s is an invalid request', async (name) => {
    const c = await rc({ receives: 1 });
    c.in(0, make(name, c, 100))
      .out(nak.invalidRequest({ psn: 100 }))
      .state('ERR')
      .events('QP_REQ_ERR')
      .wc({ wrId: 1, status: 'WR_FLUSH_ERR' });
  });
});

describe('in the middle of a SEND', () => {
  test.each(names.filter((name) => !continues('SEND')(name)))('%s fails the receive of the message', async (name) => {
    const c = await rc({ receives: 2 });
    c.in(0, make('SEND_FIRST', c, 100))
      .in(1, make('SEND_MIDDLE', c, 101))
      .in(2, make(name, c, 102))
      .out(nak.invalidRequest({ psn: 102 }))
      .state('ERR')
      .wc({ wrId: 1, status: 'LOC_QP_OP_ERR' }, { wrId: 2, status: 'WR_FLUSH_ERR' })
      .counts({ resp_remote_invalid_request: 1, resp_cqe_error: 1 });
  });
});

describe('in the middle of a WRITE', () => {
  test.each(names.filter((name) => !continues('WRITE')(name)))('%s is an invalid request', async (name) => {
    const c = await rc({ receives: 1 });
    c.in(0, make('WRITE_FIRST', c, 100))
      .in(1, make(name, c, 101))
      .out(nak.invalidRequest({ psn: 101 }))
      .state('ERR')
      .events('QP_REQ_ERR')
      .wc({ wrId: 1, status: 'WR_FLUSH_ERR' });
  });
});

test('a READ or atomic between two messages does not change the expected opcode', async () => {
  const c = await rc({ receives: 1 });
  c.in(0, make('READ', c, 100), make('FETCH_ADD', c, 101));
  c.take();
  c.in(1, make('SEND_FIRST', c, 102), request.sendLast({ psn: 103, payload: PING, ackReq: true }))
    .out(ack({ psn: 103, msn: 3 }))
    .wc({ wrId: 1, byteLen: 1028 });
});

describe('lengths of a SEND', () => {
  const short = (bytes: number) => pattern(bytes);
  const cases: Record<string, Packet[]> = {
    'a FIRST of less than the MTU': [request.sendFirst({ psn: 100, payload: short(1020) })],
    'a FIRST of more than the MTU': [request.sendFirst({ psn: 100, payload: short(1028) })],
    'an empty FIRST': [request.sendFirst({ psn: 100 })],
    'an ONLY of more than the MTU': [request.sendOnly({ psn: 100, payload: short(1025) })],
    'a MIDDLE of less than the MTU': [
      request.sendFirst({ psn: 99, payload: MTU }),
      request.sendMiddle({ psn: 100, payload: short(4) }),
    ],
    'an empty LAST': [request.sendFirst({ psn: 99, payload: MTU }), request.sendLast({ psn: 100 })],
    'a LAST of more than the MTU': [
      request.sendFirst({ psn: 99, payload: MTU }),
      request.sendLast({ psn: 100, payload: short(1025) }),
    ],
  };
  test.each(Object.entries(cases))('%s is an invalid request', async (_, packets) => {
    const c = await rc({ receives: 1, rqPsn: 101 - packets.length });
    c.in(0, ...packets)
      .out(nak.invalidRequest({ psn: 100 }))
      .state('ERR')
      .wc({ wrId: 1, status: 'LOC_LEN_ERR' });
  });

  test('a SEND longer than its receive is refused with its first byte too many', async () => {
    const c = await rc();
    c.recv(1, 0, 1027)
      .recv(2, 4096, 64)
      .in(0, request.sendFirst({ psn: 100, payload: MTU }))
      .silent()
      .in(1, request.sendLast({ psn: 101, payload: PING }))
      .out(nak.invalidRequest({ psn: 101 }))
      .state('ERR')
      .wc({ wrId: 1, status: 'LOC_LEN_ERR' }, { wrId: 2, status: 'WR_FLUSH_ERR' });
  });

  test('a SEND into a receive without memory is too long', async () => {
    const c = await rc();
    c.recv(1, 0, 0)
      .in(0, request.sendOnly({ psn: 100, payload: PING }))
      .out(nak.invalidRequest({ psn: 100 }))
      .wc({ wrId: 1, status: 'LOC_LEN_ERR' })
      .state('ERR');
  });
});

describe('lengths of a WRITE', () => {
  const target = (c: Conversation, length: number, payload = MTU) => ({ ...at(c), length, payload });
  const cases: Record<string, (c: Conversation) => Packet[]> = {
    'a FIRST of less than the MTU': (c) => [request.writeFirst({ psn: 100, ...target(c, 2000, pattern(1020)) })],
    'a FIRST that is already all': (c) => [request.writeFirst({ psn: 100, ...target(c, 1024) })],
    'a FIRST of more than it announces': (c) => [request.writeFirst({ psn: 100, ...target(c, 4) })],
    'an ONLY of less than it announces': (c) => [request.writeOnly({ psn: 100, ...target(c, 5, PING) })],
    'an ONLY of more than it announces': (c) => [request.writeOnly({ psn: 100, ...target(c, 3, PING) })],
    'an ONLY of more than the MTU': (c) => [request.writeOnly({ psn: 100, ...at(c), payload: pattern(1025) })],
    'an announced length of more than 2^31': (c) => [request.writeFirst({ psn: 100, ...target(c, 0x80000001) })],
    'a MIDDLE of less than the MTU': (c) => [
      request.writeFirst({ psn: 99, ...target(c, 4000) }),
      request.writeMiddle({ psn: 100, payload: PING }),
    ],
    'a MIDDLE that is already all': (c) => [
      request.writeFirst({ psn: 99, ...target(c, 2048) }),
      request.writeMiddle({ psn: 100, payload: MTU }),
    ],
    'a LAST of less than is left': (c) => [
      request.writeFirst({ psn: 99, ...target(c, 1029) }),
      request.writeLast({ psn: 100, payload: PING }),
    ],
    'a LAST of more than is left': (c) => [
      request.writeFirst({ psn: 99, ...target(c, 1027) }),
      request.writeLast({ psn: 100, payload: PING }),
    ],
    'an empty LAST': (c) => [request.writeFirst({ psn: 99, ...target(c, 2000) }), request.writeLast({ psn: 100 })],
  };
  test.each(Object.entries(cases))('%s is an invalid request', async (_, packets) => {
    const c = await rc({ rqPsn: 99 });
    const list = packets(c);
    if (list.length === 1) c.in(0, request.writeOnly({ psn: 99, va: 0n, rkey: 0 }));
    const msn = 2 - list.length;
    c.in(1, ...list)
      .out(nak.invalidRequest({ psn: 100, msn }))
      .state('ERR')
      .events('QP_REQ_ERR');
  });
});

test('a READ of more than 2^31 bytes is an invalid request', async () => {
  const c = await rc();
  c.in(0, request.read({ psn: 100, ...at(c), length: 0x80000001 }))
    .out(nak.invalidRequest({ psn: 100 }))
    .state('ERR')
    .events('QP_REQ_ERR');
});

describe('RC opcodes that are reserved', () => {
  const codes = Array.from({ length: 32 }, (_, code) => code).filter(
    (code) => code > 0x14 && ![0x16, 0x17, 0x1c, 0x1d].includes(code),
  );
  test.each(codes.map((code) => [code, OPCODES.get(code)?.name ?? 'reserved'] as const))(
    '0x%s (%s) is an invalid request',
    async (code) => {
      const c = await rc({ receives: 1 });
      c.in(0, { bth: { opcode: code, psn: 100, ackReq: true, solicited: false }, payload: PING })
        .out(nak.invalidRequest({ psn: 100 }))
        .state('ERR')
        .events('QP_REQ_ERR')
        .wc({ wrId: 1, status: 'WR_FLUSH_ERR' });
    },
  );
});

describe('a receive with a local error', () => {
  const BAD: Record<string, (c: Conversation) => { ptr: number; length: number; lkey: number }> = {
    'an unknown local key': (c) => ({ ptr: c.buffer.ptr, length: 64, lkey: 0x1234 }),
    'the remote key': (c) => ({ ptr: c.buffer.ptr, length: 64, lkey: c.buffer.rkey }),
    'a range outside of the region': (c) => c.buffer.piece(c.buffer.length - 3, 64),
    'a region without the right to write': (c) => c.rig.regionAt(c.buffer.ptr, 64, 4).piece(0, 64),
    'a region of another protection domain': (c) =>
      c.rig.regionAt(c.buffer.ptr, 64, 15, 0n, c.rig.x.pdAlloc()).piece(0, 64),
  };
  test.each(Object.entries(BAD))('%s: NAK of a remote operational error', async (_, piece) => {
    const c = await rc();
    c.qp.recv(1, [piece(c)]);
    c.recv(2, 4096, 64)
      .in(0, request.sendOnly({ psn: 100, payload: PING }))
      .out(nak.remoteOperational({ psn: 100 }))
      .state('ERR')
      .wc({ wrId: 1, status: 'LOC_PROT_ERR' }, { wrId: 2, status: 'WR_FLUSH_ERR' });
  });

  test('fails when its region is closed during a SEND', async () => {
    const c = await rc();
    const mr = c.rig.region(4096);
    c.qp.recv(1, [mr.piece(0, 4096)]);
    c.in(0, request.sendFirst({ psn: 100, payload: MTU }))
      .at(1, () => c.rig.x.mrDereg(mr.mr))
      .in(2, request.sendLast({ psn: 101, payload: PING }))
      .out(nak.remoteOperational({ psn: 101 }))
      .state('ERR')
      .wc({ wrId: 1, status: 'LOC_PROT_ERR' })
      .holds(mr, 1024, new Uint8Array(4));
  });

  test('is not noticed when the wrong SGE lies behind the end of the message', async () => {
    const c = await rc();
    c.qp.recv(1, [c.buffer.piece(0, 4), { ptr: 0, length: 64, lkey: 0 }]);
    c.in(0, request.sendOnly({ psn: 100, payload: PING, ackReq: true }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1, byteLen: 4 });
  });
});
