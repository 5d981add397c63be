/**
 * Fast registration: a work request registers memory with a region that has none, an invalidation unregisters it (IBTA
 * 10.6.3.7). And reregistration, which is a verb and no work request.
 */
import { describe, expect, test } from 'vitest';
import { ack, nak, type Packet, request, uc } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, rc, TARGET_VA, unreliable } from '../kit/conversation.js';
import type { SendRequest } from '../kit/rig.js';

const INVALIDATE = 1 << 24;
const LENGTH = 4096;
const next = (rkey: number): number => ((rkey & 0xffffff00) | ((rkey + 1) & 0xff)) >>> 0;

const fast = (c: Conversation, pd = c.rig.pd): number => {
  const mr = c.rig.x.mrAllocFast(pd);
  expect(mr).not.toBe(0);
  return mr;
};

/** A request that registers the target's first bytes, with the test's changes. */
function registering(c: Conversation, mr: number, change: Partial<SendRequest['register'] & object> = {}): SendRequest {
  const rkey = next(c.rig.x.mrRkey(mr));
  const register = { rkey, ptr: c.target.ptr, length: LENGTH, access: 15, iova: TARGET_VA, ...change };
  return { wrId: 80, opcode: 'REG_MR', register };
}

/** A fast region registered over the target. */
function registered(c: Conversation): { mr: number; rkey: number } {
  const mr = fast(c);
  c.post(0, registering(c, mr)).silent().wc({ wrId: 80, opcode: 'REG_MR' });
  return { mr, rkey: c.rig.x.mrRkey(mr) };
}

const write = (psn: number, rkey: number, va = TARGET_VA): Packet =>
  request.writeOnly({ psn, va, rkey, payload: PING, ackReq: true });

test('a fast region gives no access before it is registered', async () => {
  const c = await rc();
  const mr = fast(c);
  expect(c.rig.x.mrIsValid(mr)).toBe(false);
  c.in(0, write(100, c.rig.x.mrRkey(mr), 0n))
    .out(nak.remoteAccess({ psn: 100 }))
    .events('QP_ACCESS_ERR');
  const d = await rc({ rig: c.rig });
  d.post(1, { wrId: 1, opcode: 'SEND', pieces: [{ ptr: c.target.ptr, length: 4, lkey: c.rig.x.mrLkey(mr) }] })
    .silent()
    .wc({ wrId: 1, status: 'LOC_PROT_ERR' });
});

test('REG_MR takes no PSN; both keys have the new tag, and the old ones are invalid', async () => {
  const c = await rc();
  const mr = fast(c);
  const before = c.rig.x.mrRkey(mr);
  const wr = registering(c, mr);
  c.post(0, wr, { wrId: 1, opcode: 'SEND', inline: PING })
    .out(request.sendOnly({ psn: 1000, payload: PING, ackReq: true }))
    .wc({ wrId: 80, opcode: 'REG_MR' })
    .in(1, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1 });
  const [rkey, lkey] = [c.rig.x.mrRkey(mr), c.rig.x.mrLkey(mr)];
  expect(rkey).toBe(wr.register?.rkey);
  expect(lkey).not.toBe(rkey);
  expect(lkey >>> 8).toBe(rkey >>> 8);
  c.in(2, write(100, rkey))
    .out(ack({ psn: 100, msn: 1 }))
    .holds(c.target, 0, PING)
    .post(3, { wrId: 2, opcode: 'SEND', pieces: [{ ptr: c.target.ptr, length: 4, lkey }] })
    .out(request.sendOnly({ psn: 1001, payload: PING, ackReq: true }))
    .in(4, ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 2 })
    .in(5, write(101, before))
    .out(nak.remoteAccess({ psn: 101, msn: 1 }))
    .events('QP_ACCESS_ERR');
});

test('an invalidated region can be registered again with other memory, rights and addresses', async () => {
  const c = await rc({ receives: 1 });
  const { mr, rkey } = registered(c);
  c.post(1, { wrId: 1, opcode: 'LOCAL_INV', imm: rkey })
    .wc({ wrId: 1 })
    .post(2, registering(c, mr, { ptr: c.target.ptr + LENGTH, length: 64, iova: 0x10n, access: 3 }))
    .wc({ wrId: 80 });
  const second = c.rig.x.mrRkey(mr);
  c.in(3, write(100, second, 0x10n))
    .out(ack({ psn: 100, msn: 1 }))
    .holds(c.target, LENGTH, PING)
    .in(4, request.sendOnlyInvalidate({ psn: 101, payload: PING, invalidate: second, ackReq: true }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 1, flags: 8, invalidatedRkey: second })
    .post(5, registering(c, mr))
    .wc({ wrId: 80 })
    .in(6, write(102, c.rig.x.mrRkey(mr)))
    .out(ack({ psn: 102, msn: 3 }))
    .in(7, write(103, second, 0x10n))
    .out(nak.remoteAccess({ psn: 103, msn: 3 }))
    .events('QP_ACCESS_ERR');
});

test('REG_MR registers a region again that was registered with the right to be invalidated', async () => {
  const c = await rc();
  const region = c.rig.regionAt(c.target.ptr, 64, 15 | INVALIDATE, 0n);
  c.post(0, { opcode: 'LOCAL_INV', imm: region.rkey }, registering(c, region.mr))
    .wc({ opcode: 'LOCAL_INV' }, { wrId: 80 })
    .in(1, write(100, c.rig.x.mrRkey(region.mr)))
    .out(ack({ psn: 100, msn: 1 }));
});

test('one list of requests can register, use and invalidate a region', async () => {
  const c = await rc();
  const mr = fast(c);
  const wr = registering(c, mr);
  const rkey = wr.register?.rkey as number;
  c.post(
    0,
    wr,
    { wrId: 1, opcode: 'SEND', inline: PING },
    { wrId: 2, opcode: 'LOCAL_INV', imm: rkey },
    registering(c, mr, { rkey: next(rkey) }),
  )
    .out(request.sendOnly({ psn: 1000, payload: PING, ackReq: true }))
    .wc({ wrId: 80 })
    .in(1, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 80 });
  expect(c.rig.x.mrRkey(mr)).toBe(next(rkey));
});

test('an unreliable connection registers and invalidates too', async () => {
  const c = await unreliable();
  const { rkey } = registered(c);
  c.in(1, uc(request.writeOnly({ psn: 100, va: TARGET_VA, rkey, payload: PING })))
    .holds(c.target, 0, PING)
    .post(2, { wrId: 1, opcode: 'LOCAL_INV', imm: rkey })
    .wc({ wrId: 1 })
    .in(3, uc(request.writeOnly({ psn: 101, va: TARGET_VA, rkey, payload: PING })))
    .counts({ drop_unreliable_refused: 1 });
});

describe('a REG_MR that cannot be executed fails, and gives no access', () => {
  const BAD: Record<string, (c: Conversation, mr: number) => SendRequest> = {
    'no bytes': (c, mr) => registering(c, mr, { length: 0 }),
    'memory behind the end of the card': (c, mr) => registering(c, mr, { ptr: 16 * 2 ** 20 - 8, length: 9 }),
    'memory that no card has': (c, mr) => registering(c, mr, { ptr: 0xfffffff0, length: 0x20 }),
    'addresses that wrap': (c, mr) => registering(c, mr, { iova: 2n ** 64n - BigInt(LENGTH) + 1n }),
    'remote write without local write': (c, mr) => registering(c, mr, { access: 2 }),
    'rights that do not exist': (c, mr) => registering(c, mr, { access: 1 | 512 }),
    'another index': (c, mr) => registering(c, mr, { rkey: (c.rig.x.mrRkey(mr) ^ 0x5a5a5a00) >>> 0 }),
    'a region of another domain': (c) => registering(c, fast(c, c.rig.x.pdAlloc())),
    'a region that has its memory for good': (c) => registering(c, c.target.mr),
    'a region that may be closed but is not': (c) =>
      registering(c, c.rig.regionAt(c.target.ptr, 64, 15 | INVALIDATE).mr),
    'a window': (c) => registering(c, c.rig.window(2)),
  };
  test.each(Object.entries(BAD))('%s', async (_, bad) => {
    const c = await rc();
    const mr = fast(c);
    const before = c.rig.x.mrRkey(mr);
    c.post(0, bad(c, mr), { wrId: 81, opcode: 'SEND', inline: PING })
      .silent()
      .wc({ wrId: 80, opcode: 'REG_MR', status: 'MW_BIND_ERR' }, { wrId: 81, status: 'WR_FLUSH_ERR' })
      .state('ERR');
    expect([c.rig.x.mrRkey(mr), c.rig.x.mrIsValid(mr)]).toEqual([before, false]);
  });

  test('a REG_MR of a registered region fails', async () => {
    const c = await rc();
    const { mr, rkey } = registered(c);
    c.post(1, registering(c, mr, { ptr: c.target.ptr + 64 })).wc({ wrId: 80, status: 'MW_BIND_ERR' });
    expect([c.rig.x.mrRkey(mr), c.rig.x.mrIsValid(mr)]).toEqual([rkey, true]);
  });
});

describe('rereg of a region', () => {
  const OTHER_VA = 0x7000_0000n;

  test('with other rights makes the old keys invalid, and gives the new rights', async () => {
    const c = await rc();
    const { mr, ptr, rkey, lkey } = c.rig.regionAt(c.target.ptr, LENGTH, 15, TARGET_VA);
    expect(c.rig.rereg(mr, ptr, LENGTH, 1 | 2, TARGET_VA)).toBe('OK');
    const now = c.rig.x.mrRkey(mr);
    expect([rkey, lkey]).not.toContain(now);
    c.in(0, write(100, now))
      .out(ack({ psn: 100, msn: 1 }))
      .in(1, request.read({ psn: 101, va: TARGET_VA, rkey: now, length: 4 }))
      .out(nak.remoteAccess({ psn: 101, msn: 1 }))
      .events('QP_ACCESS_ERR');
    const d = await rc({ rig: c.rig });
    d.in(2, write(100, rkey))
      .out(nak.remoteAccess({ psn: 100 }))
      .events('QP_ACCESS_ERR');
  });

  test('with other memory and another address', async () => {
    const c = await rc();
    const { mr, ptr } = c.rig.regionAt(c.target.ptr, LENGTH, 15, TARGET_VA);
    expect(c.rig.rereg(mr, ptr + LENGTH, 8, 15, OTHER_VA)).toBe('OK');
    const rkey = c.rig.x.mrRkey(mr);
    c.in(0, write(100, rkey, OTHER_VA + 4n))
      .out(ack({ psn: 100, msn: 1 }))
      .holds(c.target, LENGTH + 4, PING)
      .in(1, write(101, rkey, OTHER_VA + 5n))
      .out(nak.remoteAccess({ psn: 101, msn: 1 }))
      .events('QP_ACCESS_ERR');
  });

  test('with another domain holds that instead of the old one', async () => {
    const c = await rc();
    const { x } = c.rig;
    const [from, to] = [x.pdAlloc(), x.pdAlloc()];
    const { mr, ptr } = c.rig.regionAt(c.target.ptr, LENGTH, 15, TARGET_VA, from);
    expect(c.rig.rereg(mr, ptr, LENGTH, 15, TARGET_VA, to)).toBe('OK');
    expect([x.pdFree(from), x.pdFree(to)].map((errno) => c.rig.errno(errno))).toEqual(['OK', 'EBUSY']);
    expect(c.rig.rereg(mr, ptr, LENGTH, 15, TARGET_VA, c.rig.pd)).toBe('OK');
    expect(c.rig.errno(x.pdFree(to))).toBe('OK');
    c.in(0, write(100, x.mrRkey(mr))).out(ack({ psn: 100, msn: 1 }));
  });

  test('with and without the right to be invalidated', async () => {
    const c = await rc();
    const { mr, ptr } = c.rig.regionAt(c.target.ptr, LENGTH, 15, TARGET_VA);
    expect(c.rig.rereg(mr, ptr, LENGTH, 15 | INVALIDATE, TARGET_VA)).toBe('OK');
    c.post(0, { opcode: 'LOCAL_INV', imm: c.rig.x.mrRkey(mr) }).wc({ opcode: 'LOCAL_INV' });
    expect(c.rig.rereg(mr, ptr, LENGTH, 15, TARGET_VA)).toBe('OK');
    expect(c.rig.x.mrIsValid(mr)).toBe(true);
    c.post(1, { opcode: 'LOCAL_INV', imm: c.rig.x.mrRkey(mr) }).wc({ status: 'MW_BIND_ERR' });
  });

  test('that is refused leaves everything as it was', async () => {
    const c = await rc();
    const { mr, ptr, rkey } = c.rig.regionAt(c.target.ptr, LENGTH, 15, TARGET_VA);
    expect(c.rig.rereg(mr, ptr, LENGTH, 2, TARGET_VA)).toBe('EINVAL');
    expect(c.rig.rereg(mr, ptr, 0, 15, TARGET_VA)).toBe('EINVAL');
    expect(c.rig.rereg(mr, ptr + 8, 0xffffffff, 15, TARGET_VA)).toBe('EINVAL');
    expect(c.rig.rereg(mr, ptr, LENGTH, 15, 2n ** 64n - 1n)).toBe('EINVAL');
    c.in(0, write(100, rkey)).out(ack({ psn: 100, msn: 1 }));
  });

  test('is refused for a window', async () => {
    const c = await rc();
    expect(c.rig.rereg(c.rig.window(2), c.target.ptr, LENGTH, 15, TARGET_VA)).toBe('EINVAL');
  });
});

test('keys run out, and are given again after releases', async () => {
  const { rig } = await rc();
  const taken: number[] = [];
  for (let mr = rig.x.mrAllocFast(rig.pd); mr !== 0; mr = rig.x.mrAllocFast(rig.pd)) taken.push(mr);
  expect(rig.errno(rig.x.lastErrno())).toBe('ENOMEM');
  expect(rig.x.mwAlloc(rig.pd, 2)).toBe(0);
  expect(rig.errno(rig.x.mrDereg(taken[0] as number))).toBe('OK');
  expect(rig.x.mwAlloc(rig.pd, 2)).not.toBe(0);
});
