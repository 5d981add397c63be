/**
 * Memory windows: keys for a part of a region, with access rights of their own, bound and unbound by work requests
 * (IBTA 10.6.7). The rules of both types.
 */
import { describe, expect, test } from 'vitest';
import { ack, type Packet, request, uc } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, pattern, type RcOptions, rc, TARGET_VA, unreliable } from '../kit/conversation.js';
import type { SendRequest } from '../kit/rig.js';
import {
  AT,
  ATOMIC,
  binding,
  bound,
  FLUSH_GLOBAL,
  INVALIDATE,
  LENGTH,
  LOCAL_WRITE,
  MW_BIND,
  READ,
  refused,
  region,
  SIZE,
  WRITE,
  write,
} from './memory-windows.js';

describe.each([1, 2] as const)('type %d', (type) => {
  test('gives no access before it is bound', async () => {
    const c = await rc();
    const mw = c.rig.window(type);
    expect(c.rig.x.mrIsValid(mw)).toBe(false);
    refused(c, write(TARGET_VA, c.rig.x.mrRkey(mw)));
  });

  test('gives access to its range, at the region’s addresses, once it is bound', async () => {
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

  test('has a new key then, and the old one is invalid', async () => {
    const c = await rc();
    const { rkey } = bound(c, type);
    refused(c, write(TARGET_VA + BigInt(AT), ((rkey & 0xffffff00) | ((rkey - 1) & 0xff)) >>> 0));
  });

  describe('limits an access to its own bounds, not to those of the region', () => {
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

  describe('gives the rights of its bind, whatever the region gives', () => {
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
    test('may give a right that the region does not: reading', async () => {
      const c = await rc();
      const [mw, mr] = [c.rig.window(type), region(c, LOCAL_WRITE | MW_BIND)];
      const wr = binding(c, mw, mr);
      c.post(0, wr)
        .wc({ opcode: 'BIND_MW' })
        .in(1, write(TARGET_VA + BigInt(AT), wr.bind?.rkey as number))
        .out(ack({ psn: 100, msn: 1 }));
    });
  });

  test('keeps its region open while it is bound', async () => {
    const c = await rc();
    const { mw, mr } = bound(c, type);
    expect(c.rig.errno(c.rig.x.mrDereg(mr.mr))).toBe('EBUSY');
    expect(c.rig.rereg(mr.mr, mr.ptr, mr.length, 15, TARGET_VA)).toBe('EBUSY');
    expect(c.rig.x.mrIsValid(mw)).toBe(true);
    expect(c.rig.errno(c.rig.x.mwFree(mw))).toBe('OK');
    expect(c.rig.errno(c.rig.x.mrDereg(mr.mr))).toBe('OK');
  });

  test('gives no access after it is freed', async () => {
    const c = await rc();
    const { mw, rkey } = bound(c, type);
    expect(c.rig.errno(c.rig.x.mwFree(mw))).toBe('OK');
    refused(c, write(TARGET_VA + BigInt(AT), rkey));
  });

  test('is no local memory: an SGE with its key is refused', async () => {
    const c = await rc();
    const { mw } = bound(c, type);
    c.post(1, { wrId: 1, opcode: 'SEND', pieces: [{ ptr: c.target.ptr + AT, length: 4, lkey: c.rig.x.mrLkey(mw) }] })
      .silent()
      .wc({ wrId: 1, status: 'LOC_PROT_ERR' });
  });

  describe('fails to bind with MW_BIND_ERR, and gives no access then', () => {
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

test('a domain with a window cannot be freed', async () => {
  const { rig } = await rc();
  const pd = rig.x.pdAlloc();
  const mw = rig.window(2, pd);
  expect(rig.errno(rig.x.pdFree(pd))).toBe('EBUSY');
  rig.x.mwFree(mw);
  expect(rig.errno(rig.x.pdFree(pd))).toBe('OK');
});
