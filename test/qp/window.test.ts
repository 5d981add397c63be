/** Memory windows: keys that open a part of a region, with rights of their own, bound and closed by work requests (IBTA
 * 10.6.7). Type 1 is open to every queue pair of its domain, type 2B to the one over which it was bound. */
import { describe, expect, test } from 'vitest';
import { type Conversation, PING, pattern, type RcOptions, rc, TARGET_VA, unreliable } from '../kit/conversation.js';
import { ack, frame, nak, type Packet, request, uc } from '../kit/packets.js';
import type { Region, SendRequest } from '../kit/rig.js';

const [LOCAL_WRITE, WRITE, READ, ATOMIC, MW_BIND, ZERO_BASED, FLUSH_GLOBAL] = [1, 2, 4, 8, 16, 32, 256] as const;
const INVALIDATE = 1 << 24;
const LENGTH = 8192;
/** Where the window begins in its region, and its size. */
const [AT, SIZE] = [1024, 2048];

/** The same key with the next tag. */
const next = (rkey: number): number => ((rkey & 0xffffff00) | ((rkey + 1) & 0xff)) >>> 0;

const region = (c: Conversation, access = 15 | MW_BIND | FLUSH_GLOBAL): Region =>
  c.rig.regionAt(c.target.ptr, LENGTH, access, TARGET_VA);

interface Bound {
  readonly mw: number;
  readonly rkey: number;
  readonly mr: Region;
}

/** The request that binds a window, changed where the test wants it. */
function binding(
  c: Conversation,
  mw: number,
  mr: Region,
  change: Partial<SendRequest['bind'] & object> = {},
): SendRequest {
  const rkey = next(c.rig.x.mrRkey(mw));
  const bind = { rkey, lkey: mr.lkey, va: TARGET_VA + BigInt(AT), length: SIZE, access: WRITE | READ, ...change };
  return { wrId: 90, opcode: 'BIND_MW', bind };
}

/** A window that is bound. */
function bound(c: Conversation, type: 1 | 2, change: Partial<SendRequest['bind'] & object> = {}): Bound {
  const [mw, mr] = [c.rig.window(type), region(c)];
  const wr = binding(c, mw, mr, change);
  c.post(0, wr).silent().wc({ wrId: 90, opcode: 'BIND_MW' });
  expect(c.rig.x.mrRkey(mw)).toBe(wr.bind?.rkey);
  return { mw, rkey: c.rig.x.mrRkey(mw), mr };
}

/** The peer is refused, and our user is told. */
function refused(c: Conversation, packet: Packet): void {
  const before = c.target.bytes.slice();
  c.in(1, packet)
    .out(nak.remoteAccess({ psn: 100 }))
    .state('ERR')
    .events('QP_ACCESS_ERR')
    .holds(c.target, 0, before);
}

const write = (va: bigint, rkey: number, payload: Uint8Array = PING): Packet =>
  request.writeOnly({ psn: 100, va, rkey, payload, ackReq: true });

describe.each([1, 2] as const)('type %d', (type) => {
  test('opens nothing before it is bound', async () => {
    const c = await rc();
    const mw = c.rig.window(type);
    expect(c.rig.x.mrIsValid(mw)).toBe(false);
    refused(c, write(TARGET_VA, c.rig.x.mrRkey(mw)));
  });

  test('once bound, its key opens its range at the addresses of the region', async () => {
    const c = await rc();
    const { rkey, mw } = bound(c, type);
    expect(c.rig.x.mrIsValid(mw)).toBe(true);
    const payload = pattern(SIZE);
    const packets = request.write({ psn: 100, va: TARGET_VA + BigInt(AT), rkey, payload, mtu: 1024 });
    c.in(1, ...packets)
      .out(ack({ psn: 101, msn: 1 }))
      .holds(c.target, AT, payload)
      .in(2, request.read({ psn: 102, va: TARGET_VA + BigInt(AT + SIZE - 4), rkey, length: 4 }));
    expect(c.take()).toHaveLength(1);
  });

  test('the key that it had before is dead', async () => {
    const c = await rc();
    const { rkey } = bound(c, type);
    refused(c, write(TARGET_VA + BigInt(AT), ((rkey & 0xffffff00) | ((rkey - 1) & 0xff)) >>> 0));
  });

  describe('an access is held against the bounds of the window, not of the region', () => {
    const OUTSIDE: Record<string, { va: bigint; length: number }> = {
      'a byte before it': { va: TARGET_VA + BigInt(AT) - 1n, length: 4 },
      'a byte behind it': { va: TARGET_VA + BigInt(AT + SIZE) - 3n, length: 4 },
      'the start of the region': { va: TARGET_VA, length: 4 },
      'more than all of it': { va: TARGET_VA + BigInt(AT), length: SIZE + 1 },
      'the offset in the window': { va: 0n, length: 4 },
    };
    test.each(Object.entries(OUTSIDE))('%s: WRITE', async (_, { va, length }) => {
      const c = await rc();
      const { rkey } = bound(c, type);
      const payload = pattern(Math.min(length, 1024));
      refused(
        c,
        length > 1024 ? request.writeFirst({ psn: 100, va, rkey, length, payload }) : write(va, rkey, payload),
      );
    });
    test.each(Object.entries(OUTSIDE))('%s: READ', async (_, { va, length }) => {
      const c = await rc();
      const { rkey } = bound(c, type);
      refused(c, request.read({ psn: 100, va, rkey, length }));
    });
  });

  describe('it gives the rights that it was bound with, whatever the region gives', () => {
    const KINDS: Record<string, [number, (at: { va: bigint; rkey: number }) => Packet]> = {
      WRITE: [WRITE, (at) => write(at.va, at.rkey)],
      READ: [READ, (at) => request.read({ psn: 100, ...at, length: 8 })],
      FETCH_ADD: [ATOMIC, (at) => request.fetchAdd({ psn: 100, ...at, add: 1n })],
      FLUSH: [FLUSH_GLOBAL, (at) => request.flush({ psn: 100, ...at, length: 8, placement: 1, selectivity: 0 })],
    };
    const ALL = WRITE | READ | ATOMIC | FLUSH_GLOBAL;
    const options: RcOptions = { access: 15 | FLUSH_GLOBAL };
    test.each(Object.entries(KINDS))('%s', async (_, [right, make]) => {
      const c = await rc(options);
      const { rkey } = bound(c, type, { access: ALL & ~right });
      refused(c, make({ va: TARGET_VA + BigInt(AT), rkey }));
    });
    test.each(Object.entries(KINDS))('%s alone', async (_, [right, make]) => {
      const c = await rc(options);
      const { rkey } = bound(c, type, { access: right });
      c.in(1, make({ va: TARGET_VA + BigInt(AT), rkey }));
      expect(c.take()).toHaveLength(1);
      c.state('RTS');
    });
    test('it may give what the region does not: reading', async () => {
      const c = await rc();
      const [mw, mr] = [c.rig.window(type), region(c, LOCAL_WRITE | MW_BIND)];
      const wr = binding(c, mw, mr);
      c.post(0, wr)
        .wc({ opcode: 'BIND_MW' })
        .in(1, write(TARGET_VA + BigInt(AT), wr.bind?.rkey as number))
        .out(ack({ psn: 100, msn: 1 }));
    });
  });

  test('the region cannot go while the window is bound, and can afterwards', async () => {
    const c = await rc();
    const { mw, mr } = bound(c, type);
    expect(c.rig.errno(c.rig.x.mrDereg(mr.mr))).toBe('EBUSY');
    expect(c.rig.rereg(mr.mr, mr.ptr, mr.length, 15, TARGET_VA)).toBe('EBUSY');
    expect(c.rig.x.mrIsValid(mw)).toBe(true);
    expect(c.rig.errno(c.rig.x.mwFree(mw))).toBe('OK');
    expect(c.rig.errno(c.rig.x.mrDereg(mr.mr))).toBe('OK');
  });

  test('a window that is freed while it is bound opens nothing any more', async () => {
    const c = await rc();
    const { mw, rkey } = bound(c, type);
    expect(c.rig.errno(c.rig.x.mwFree(mw))).toBe('OK');
    refused(c, write(TARGET_VA + BigInt(AT), rkey));
  });

  test('it is no local memory: a piece under its key is refused', async () => {
    const c = await rc();
    const { mw } = bound(c, type);
    c.post(1, { wrId: 1, opcode: 'SEND', pieces: [{ ptr: c.target.ptr + AT, length: 4, lkey: c.rig.x.mrLkey(mw) }] })
      .silent()
      .wc({ wrId: 1, status: 'LOC_PROT_ERR' });
  });

  describe('what cannot be bound fails with MW_BIND_ERR, and nothing is opened', () => {
    type Bad = (c: Conversation, mw: number) => SendRequest;
    const BAD: Record<string, Bad> = {
      'a region without the right to be bound': (c, mw) => binding(c, mw, region(c, 15)),
      'remote write without local write in the region': (c, mw) => binding(c, mw, region(c, MW_BIND | READ)),
      'remote atomic without local write in the region': (c, mw) =>
        binding(c, mw, region(c, MW_BIND | READ), { access: ATOMIC }),
      'FLUSH, which the region does not allow': (c, mw) =>
        binding(c, mw, region(c, 15 | MW_BIND), { access: FLUSH_GLOBAL }),
      'local write': (c, mw) => binding(c, mw, region(c), { access: LOCAL_WRITE | WRITE }),
      'rights that no window has': (c, mw) => binding(c, mw, region(c), { access: WRITE | INVALIDATE }),
      'a byte before the region': (c, mw) => binding(c, mw, region(c), { va: TARGET_VA - 1n }),
      'a byte behind the region': (c, mw) => binding(c, mw, region(c), { va: TARGET_VA + BigInt(LENGTH - SIZE + 1) }),
      'more bytes than the region has': (c, mw) => binding(c, mw, region(c), { va: TARGET_VA, length: LENGTH + 1 }),
      'a range that wraps': (c, mw) => binding(c, mw, region(c), { va: 2n ** 64n - 8n, length: 0xffffffff }),
      'a local key with another tag': (c, mw) => binding(c, mw, region(c), { lkey: region(c).lkey ^ 1 }),
      'the remote key of the region': (c, mw) => {
        const mr = region(c);
        return binding(c, mw, mr, { lkey: mr.rkey });
      },
      'a region of another domain': (c, mw) =>
        binding(c, mw, c.rig.regionAt(c.target.ptr, LENGTH, 31, TARGET_VA, c.rig.x.pdAlloc())),
      'no region at all': (c, mw) => binding(c, mw, region(c), { lkey: 0 }),
      'a fast region that has no memory': (c, mw) =>
        binding(c, mw, region(c), { lkey: c.rig.x.mrLkey(c.rig.x.mrAllocFast(c.rig.pd)) }),
      'another window instead of a region': (c, mw) =>
        binding(c, mw, region(c), { lkey: c.rig.x.mrLkey(c.rig.window(2)) }),
      'a window of another domain': (c) => binding(c, c.rig.window(type, c.rig.x.pdAlloc()), region(c)),
      'a region instead of a window': (c) => {
        const mr = region(c);
        return binding(c, mr.mr, mr);
      },
      'a window that does not exist': (c, mw) =>
        binding(c, mw, region(c), { rkey: (c.rig.x.mrRkey(mw) ^ 0x12345600) >>> 0 }),
    };
    test.each(Object.entries(BAD))('%s', async (_, bad) => {
      const c = await rc();
      const mw = c.rig.window(type);
      const before = c.rig.x.mrRkey(mw);
      c.post(0, bad(c, mw), { wrId: 91, opcode: 'SEND', inline: PING })
        .silent()
        .wc({ wrId: 90, opcode: 'BIND_MW', status: 'MW_BIND_ERR' }, { wrId: 91, status: 'WR_FLUSH_ERR' })
        .state('ERR');
      expect([c.rig.x.mrRkey(mw), c.rig.x.mrIsValid(mw)]).toEqual([before, false]);
      expect(c.rig.errno(c.rig.x.mwFree(mw))).toBe('OK');
    });
  });

  test('a bind takes no PSN, waits for all before it, and all behind it waits for it', async () => {
    const c = await rc();
    const [mw, mr] = [c.rig.window(type), region(c)];
    const remote = { va: 0x1000n, rkey: 0x77 };
    c.post(0, { wrId: 1, opcode: 'RDMA_WRITE', inline: PING, remote }, binding(c, mw, mr), {
      wrId: 2,
      opcode: 'SEND',
      inline: PING,
    })
      .out(request.writeOnly({ psn: 1000, ...remote, payload: PING, ackReq: true }))
      .wc();
    expect(c.rig.x.mrIsValid(mw)).toBe(false);
    c.in(1, ack({ psn: 1000, msn: 1 }))
      .out(request.sendOnly({ psn: 1001, payload: PING, ackReq: true }))
      .wc({ wrId: 1 }, { wrId: 90 })
      .in(2, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 2 });
  });

  test('an unreliable connection binds windows too', async () => {
    const c = await unreliable();
    const { rkey } = bound(c, type);
    c.in(1, uc(request.writeOnly({ psn: 100, va: TARGET_VA + BigInt(AT), rkey, payload: PING })))
      .holds(c.target, AT, PING)
      .in(2, uc(request.writeOnly({ psn: 101, va: TARGET_VA, rkey, payload: PING })))
      .counts({ drop_unreliable_refused: 1 });
  });
});

test('a bind takes no memory, and no message', async () => {
  const c = await rc();
  const wr = binding(c, c.rig.window(2), region(c));
  expect(c.qp.send({ ...wr, pieces: [c.buffer.piece(0, 4)] })).toBe('EINVAL');
  expect(c.qp.send({ ...wr, inline: PING })).toBe('EINVAL');
});

test('windows are of type 1 or 2', async () => {
  const { rig } = await rc();
  for (const type of [0, 3]) expect(rig.x.mwAlloc(rig.pd, type)).toBe(0);
  expect(rig.errno(rig.x.lastErrno())).toBe('EINVAL');
});

test('a domain with a window stays', async () => {
  const { rig } = await rc();
  const pd = rig.x.pdAlloc();
  const mw = rig.window(2, pd);
  expect(rig.errno(rig.x.pdFree(pd))).toBe('EBUSY');
  rig.x.mwFree(mw);
  expect(rig.errno(rig.x.pdFree(pd))).toBe('OK');
});

describe('type 1', () => {
  test('is bound anew without being closed: the old range and key are gone', async () => {
    const c = await rc();
    const { mw, mr, rkey } = bound(c, 1);
    c.post(1, binding(c, mw, mr, { va: TARGET_VA + 4096n, length: 64 })).wc({ wrId: 90 });
    const now = c.rig.x.mrRkey(mw);
    expect(now).toBe(next(rkey));
    c.in(2, write(TARGET_VA + 4096n, now))
      .out(ack({ psn: 100, msn: 1 }))
      .in(3, request.writeOnly({ psn: 101, va: TARGET_VA + BigInt(AT), rkey: now, payload: PING }))
      .out(nak.remoteAccess({ psn: 101, msn: 1 }))
      .events('QP_ACCESS_ERR');
  });

  test('a bind that fails leaves the old one as it was', async () => {
    const c = await rc();
    const { mw, mr, rkey } = bound(c, 1);
    c.post(1, binding(c, mw, mr, { va: 0n })).wc({ status: 'MW_BIND_ERR' });
    expect([c.rig.x.mrRkey(mw), c.rig.x.mrIsValid(mw)]).toEqual([rkey, true]);
    expect(c.rig.errno(c.rig.x.mrDereg(mr.mr))).toBe('EBUSY');
  });

  test('with length 0 is closed, which lets the region go', async () => {
    const c = await rc();
    const { mw, mr, rkey } = bound(c, 1);
    c.post(1, binding(c, mw, mr, { length: 0 })).wc({ wrId: 90, opcode: 'BIND_MW' });
    expect(c.rig.x.mrIsValid(mw)).toBe(false);
    expect(c.rig.errno(c.rig.x.mrDereg(mr.mr))).toBe('OK');
    refused(c, write(TARGET_VA + BigInt(AT), rkey));
  });

  test('is open to every queue pair of its domain', async () => {
    const c = await rc();
    const { rkey } = bound(c, 1);
    const d = await rc({ rig: c.rig });
    d.in(1, write(TARGET_VA + BigInt(AT), rkey)).out(ack({ psn: 100, msn: 1 }));
  });

  test('cannot be based at zero', async () => {
    const c = await rc();
    c.post(0, binding(c, c.rig.window(1), region(c), { access: WRITE | ZERO_BASED })).wc({ status: 'MW_BIND_ERR' });
  });

  test('cannot be invalidated, neither by us nor by the peer', async () => {
    const c = await rc();
    const { rkey } = bound(c, 1);
    c.post(1, { wrId: 1, opcode: 'LOCAL_INV', imm: rkey }).wc({ wrId: 1, status: 'LOC_QP_OP_ERR' });
    const d = await rc({ receives: 1 });
    const other = bound(d, 1);
    d.in(1, request.sendOnlyInvalidate({ psn: 100, payload: PING, invalidate: other.rkey }))
      .silent()
      .state('ERR')
      .wc({ wrId: 1, status: 'REM_INV_REQ_ERR' });
    expect(d.rig.x.mrIsValid(other.mw)).toBe(true);
  });
});

describe('type 2B', () => {
  test('is open to the queue pair alone over which it was bound', async () => {
    const c = await rc();
    const { rkey } = bound(c, 2);
    const d = await rc({ rig: c.rig });
    const packet = write(TARGET_VA + BigInt(AT), rkey);
    d.in(1, packet)
      .out(nak.remoteAccess({ psn: 100 }))
      .events('QP_ACCESS_ERR');
    c.in(2, packet).out(ack({ psn: 100, msn: 1 }));
  });

  test('based at zero is addressed from 0 on', async () => {
    const c = await rc();
    const { rkey } = bound(c, 2, { access: WRITE | READ | ZERO_BASED });
    c.in(1, write(0n, rkey))
      .out(ack({ psn: 100, msn: 1 }))
      .holds(c.target, AT, PING)
      .in(2, request.writeOnly({ psn: 101, va: BigInt(SIZE - 4), rkey, payload: PING, ackReq: true }))
      .out(ack({ psn: 101, msn: 2 }))
      .holds(c.target, AT + SIZE - 4, PING)
      .in(3, request.writeOnly({ psn: 102, va: BigInt(SIZE - 3), rkey, payload: PING }))
      .out(nak.remoteAccess({ psn: 102, msn: 2 }))
      .events('QP_ACCESS_ERR');
  });

  test('must be closed before it is bound anew', async () => {
    const c = await rc();
    const { mw, mr, rkey } = bound(c, 2);
    c.post(1, binding(c, mw, mr)).wc({ status: 'MW_BIND_ERR' });
    expect([c.rig.x.mrRkey(mw), c.rig.x.mrIsValid(mw)]).toEqual([rkey, true]);
  });

  test('needs bytes', async () => {
    const c = await rc();
    c.post(0, binding(c, c.rig.window(2), region(c), { length: 0 })).wc({ status: 'MW_BIND_ERR' });
  });

  test('LOCAL_INV closes it; then the region may go, or the window be bound again', async () => {
    const c = await rc();
    const { mw, mr, rkey } = bound(c, 2);
    c.post(1, { wrId: 1, opcode: 'LOCAL_INV', imm: rkey })
      .wc({ wrId: 1, opcode: 'LOCAL_INV' })
      .post(2, binding(c, mw, mr))
      .wc({ wrId: 90 })
      .in(3, write(TARGET_VA + BigInt(AT), next(rkey)))
      .out(ack({ psn: 100, msn: 1 }))
      .in(4, request.writeOnly({ psn: 101, va: TARGET_VA + BigInt(AT), rkey, payload: PING }))
      .out(nak.remoteAccess({ psn: 101, msn: 1 }))
      .events('QP_ACCESS_ERR');
  });

  test('LOCAL_INV over another queue pair is refused', async () => {
    const c = await rc();
    const { mw, rkey } = bound(c, 2);
    const d = await rc({ rig: c.rig });
    d.post(1, { opcode: 'LOCAL_INV', imm: rkey }).wc({ status: 'LOC_QP_OP_ERR' });
    expect(c.rig.x.mrIsValid(mw)).toBe(true);
  });

  test('the peer closes it with SEND_WITH_INVALIDATE', async () => {
    const c = await rc({ receives: 1 });
    const { mr, rkey } = bound(c, 2);
    c.in(1, request.sendOnlyInvalidate({ psn: 100, payload: PING, invalidate: rkey, ackReq: true }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1, opcode: 'RECV', flags: 8, invalidatedRkey: rkey });
    expect(c.rig.errno(c.rig.x.mrDereg(mr.mr))).toBe('OK');
    c.in(2, request.writeOnly({ psn: 101, va: TARGET_VA + BigInt(AT), rkey, payload: PING }))
      .out(nak.remoteAccess({ psn: 101, msn: 1 }))
      .events('QP_ACCESS_ERR');
  });

  test('the peer of another queue pair cannot close it', async () => {
    const c = await rc();
    const { mw, rkey } = bound(c, 2);
    const d = await rc({ rig: c.rig, receives: 1 });
    d.in(1, request.sendOnlyInvalidate({ psn: 100, payload: PING, invalidate: rkey }))
      .silent()
      .wc({ status: 'REM_INV_REQ_ERR' });
    expect(c.rig.x.mrIsValid(mw)).toBe(true);
  });

  test('a region with a bound window cannot be invalidated', async () => {
    const c = await rc();
    const [mw, mr] = [c.rig.window(2), region(c, 15 | MW_BIND | INVALIDATE)];
    c.post(0, binding(c, mw, mr))
      .wc({ wrId: 90 })
      .post(1, { wrId: 1, opcode: 'LOCAL_INV', imm: mr.rkey })
      .wc({ wrId: 1, status: 'LOC_QP_OP_ERR' });
    expect(c.rig.x.mrIsValid(mr.mr)).toBe(true);
  });

  test('a window that is closed in the middle of a WRITE refuses the rest', async () => {
    const c = await rc();
    const { rkey } = bound(c, 2);
    const [first, last] = request.write({
      ...{ psn: 100, va: TARGET_VA + BigInt(AT), rkey, payload: pattern(1500), mtu: 1024 },
    });
    if (!first || !last) throw new Error('packets');
    c.in(1, first)
      .post(2, { wrId: 1, opcode: 'LOCAL_INV', imm: rkey })
      .wc({ wrId: 1 })
      .in(3, last)
      .out(nak.remoteAccess({ psn: 101 }))
      .events('QP_ACCESS_ERR');
  });

  test('a window that is closed in the middle of a READ refuses the rest', async () => {
    const c = await rc({ mtu: 256 });
    const { mw, rkey } = bound(c, 2);
    c.rig.put(frame(c.there, request.read({ psn: 100, va: TARGET_VA + BigInt(AT), rkey, length: SIZE })));
    c.rig.x.rx(1000, 1);
    c.rig.out(1000, 3);
    c.rig.x.mwFree(mw);
    c.at(2)
      .out(nak.remoteAccess({ psn: 103, msn: 1 }))
      .events('QP_ACCESS_ERR');
  });
});
