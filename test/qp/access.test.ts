/**
 * Keys and access rights of a peer, checked one by one (IBTA 9.7.4.1.5, 10.6.3). Each violation causes a NAK of a
 * remote access error, an event for the application, and the end of the queue pair; the memory stays unchanged.
 */
import { describe, expect, test } from 'vitest';
import { ack, nak, type Packet, request } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, pattern, type RcOptions, rc, TARGET_VA } from '../kit/conversation.js';

/** A request of each kind for 8 bytes under a key. */
const KINDS: Record<string, (at: { va: bigint; rkey: number }) => Packet> = {
  WRITE: (at) => request.writeOnly({ psn: 100, ...at, payload: pattern(8) }),
  'WRITE with immediate': (at) => request.writeOnlyImm({ psn: 100, ...at, payload: pattern(8), imm: 1 }),
  READ: (at) => request.read({ psn: 100, ...at, length: 8 }),
  COMPARE_SWAP: (at) => request.compareSwap({ psn: 100, ...at, compare: 0n, swap: 1n }),
  FETCH_ADD: (at) => request.fetchAdd({ psn: 100, ...at, add: 1n }),
};

function refused(c: Conversation, packet: Packet): void {
  const before = c.target.bytes.slice();
  c.in(0, packet)
    .out(nak.remoteAccess({ psn: 100 }))
    .state('ERR')
    .events('QP_ACCESS_ERR')
    .wc({ wrId: 1, status: 'WR_FLUSH_ERR' })
    .holds(c.target, 0, before)
    .counts({ resp_remote_access_errors: 1 });
}

/** Wrong keys: another index with the same tag, another tag with the same index. */
const BAD_KEYS: Record<string, (c: Conversation) => number> = {
  'an index that is in no table': (c) => (c.target.rkey ^ 0x40000000) >>> 0,
  'the right index with another tag': (c) => c.target.rkey ^ 1,
  'the local key': (c) => c.target.lkey,
  'the key 0': () => 0,
  'the key of a region that is gone': (c) => {
    c.rig.x.mrDereg(c.target.mr);
    return c.target.rkey;
  },
  'the key of a region of another protection domain': (c) =>
    c.rig.regionAt(c.target.ptr, 64, 15, TARGET_VA, c.rig.x.pdAlloc()).rkey,
  'a key that was invalidated': (c) => {
    const closed = c.rig.regionAt(c.target.ptr, 64, 15 | (1 << 24), TARGET_VA);
    c.post(0, { opcode: 'LOCAL_INV', imm: closed.rkey }).wc({ opcode: 'LOCAL_INV' });
    return closed.rkey;
  },
  'the key of a region that is a byte too short': (c) => c.rig.regionAt(c.target.ptr, 7, 15, TARGET_VA).rkey,
};

describe.each(Object.entries(BAD_KEYS))('%s gives no access', (_, key) => {
  test.each(Object.entries(KINDS))('to a %s', async (_kind, make) => {
    const c = await rc({ receives: 1 });
    refused(c, make({ va: TARGET_VA, rkey: key(c) }));
  });
});

describe('a region gives only the rights that it was registered with', () => {
  const RIGHTS: Record<string, number> = {
    WRITE: 2,
    'WRITE with immediate': 2,
    READ: 4,
    COMPARE_SWAP: 8,
    FETCH_ADD: 8,
  };
  test.each(Object.entries(KINDS))('%s', async (kind, make) => {
    const c = await rc({ receives: 1 });
    const region = c.rig.regionAt(c.target.ptr, 64, 15 & ~(RIGHTS[kind] as number), TARGET_VA);
    refused(c, make({ va: TARGET_VA, rkey: region.rkey }));
  });

  test('a WRITE needs no right to read, and a READ none to write', async () => {
    const c = await rc();
    const [writable, readable] = [3, 4].map((access) => c.rig.regionAt(c.target.ptr, 64, access, TARGET_VA));
    if (!writable || !readable) throw new Error('two regions');
    c.in(0, request.writeOnly({ psn: 100, va: TARGET_VA, rkey: writable.rkey, payload: PING, ackReq: true }))
      .out(ack({ psn: 100, msn: 1 }))
      .in(1, request.read({ psn: 101, va: TARGET_VA, rkey: readable.rkey, length: 4 }));
    expect(c.take()).toHaveLength(1);
  });
});

describe('an access must lie within the region', () => {
  const LENGTH = 64n * 1024n;
  const OUTSIDE: Record<string, bigint> = {
    'starts before it': TARGET_VA - 8n,
    'ends behind it': TARGET_VA + LENGTH,
    'lies below by 2^64': TARGET_VA - LENGTH,
    'starts at 0': 0n,
    'ends at 2^64': 2n ** 64n - 8n,
    'is the same in its lower 32 bits only': TARGET_VA + 2n ** 32n,
    'is the pointer instead of the address': 0x20000n,
  };
  describe.each(Object.entries(OUTSIDE))('one that %s', (_, va) => {
    test.each(Object.entries(KINDS))('is refused to a %s', async (_kind, make) => {
      const c = await rc({ receives: 1 });
      refused(c, make({ va, rkey: c.target.rkey }));
    });
  });

  const CROSSING: Record<string, { va: bigint; length: number }> = {
    'by one byte at the end': { va: TARGET_VA + LENGTH - 8n, length: 9 },
    'by one byte at the start': { va: TARGET_VA - 1n, length: 9 },
    'by its length alone': { va: TARGET_VA, length: 0x80000000 },
    'past the end of the address space': { va: 2n ** 64n - 4n, length: 8 },
    'so that its end overflows into it': { va: 2n ** 64n - 8n, length: 0x7fffffff },
  };
  test.each(Object.entries(CROSSING))('a READ that goes on beyond it %s is refused', async (_, { va, length }) => {
    const c = await rc({ receives: 1 });
    refused(c, request.read({ psn: 100, va, rkey: c.target.rkey, length }));
  });
  test.each(Object.entries(CROSSING))('a WRITE that goes on beyond it %s is refused with its FIRST', async (_, o) => {
    const c = await rc({ receives: 1 });
    const length = Math.max(o.length, 2000);
    refused(c, request.writeFirst({ psn: 100, va: o.va, rkey: c.target.rkey, length, payload: pattern(1024) }));
  });

  test('a region at the end of the address space can be used to its last byte', async () => {
    const c = await rc();
    const last = c.rig.regionAt(c.target.ptr, 64, 15, 2n ** 64n - 64n);
    c.in(0, request.writeOnly({ psn: 100, va: 2n ** 64n - 4n, rkey: last.rkey, payload: PING, ackReq: true }))
      .out(ack({ psn: 100, msn: 1 }))
      .holds(c.target, 60, PING);
  });
});

test('a region that is closed during a WRITE refuses the rest', async () => {
  const c = await rc();
  const payload = pattern(3000);
  const [first, middle] = request.write({ psn: 100, va: TARGET_VA, rkey: c.target.rkey, payload, mtu: 1024 });
  if (!first || !middle) throw new Error('packets');
  const behind = c.target.bytes.slice(1024);
  c.in(0, first)
    .silent()
    .at(1, () => c.rig.x.mrDereg(c.target.mr))
    .in(2, middle)
    .out(nak.remoteAccess({ psn: 101 }))
    .state('ERR')
    .events('QP_ACCESS_ERR')
    .holds(c.target, 0, payload.slice(0, 1024))
    .holds(c.target, 1024, behind);
});

describe('an operation that the queue pair does not allow is an invalid request, whatever its key', () => {
  const RIGHT: Record<string, number> = { WRITE: 2, READ: 4, COMPARE_SWAP: 8, FETCH_ADD: 8, 'WRITE with immediate': 2 };
  test.each(Object.entries(KINDS))('%s', async (kind, make) => {
    const options: RcOptions = { access: 15 & ~(RIGHT[kind] as number), receives: 1 };
    const c = await rc(options);
    c.in(0, make({ va: TARGET_VA, rkey: c.target.rkey }))
      .out(nak.invalidRequest({ psn: 100 }))
      .state('ERR')
      .events('QP_ACCESS_ERR')
      .wc({ wrId: 1, status: 'WR_FLUSH_ERR' });
  });
  test('a WRITE without bytes that the queue pair does not allow is an invalid request', async () => {
    const c = await rc({ access: 13 });
    c.in(0, request.writeOnly({ psn: 100, va: 0n, rkey: 0 }))
      .out(nak.invalidRequest({ psn: 100 }))
      .events('QP_ACCESS_ERR');
  });
});

test('a NAK acknowledges the requests before it', async () => {
  const c = await rc({ receives: 2 });
  c.in(
    0,
    request.sendOnly({ psn: 100, payload: PING }),
    request.writeOnly({ psn: 101, va: 0n, rkey: 0, payload: PING }),
    request.sendOnly({ psn: 102, payload: PING, ackReq: true }),
  )
    .out(nak.remoteAccess({ psn: 101, msn: 1 }))
    .wc({ wrId: 1 }, { wrId: 2, status: 'WR_FLUSH_ERR' })
    .state('ERR')
    .events('QP_ACCESS_ERR')
    .in(5, request.sendOnly({ psn: 102, payload: PING, ackReq: true }))
    .silent()
    .counts({ drop_after_fault: 1, drop_qp_state: 1 });
});

test('registering refuses remote write and atomic rights without local write, and unknown rights', async () => {
  const { rig } = await rc();
  const ptr = rig.x.memAlloc(4096);
  for (const access of [2, 8, 6, 10, 14, 32, 64, 512, 1 << 25])
    expect(() => rig.regionAt(ptr, 64, access), `access ${access}`).toThrow('EINVAL');
  for (const access of [0, 1, 3, 4, 5, 9, 15]) rig.regionAt(ptr, 64, access);
});

test('registering refuses a range outside of the memory, without bytes, or with addresses that wrap', async () => {
  const { rig } = await rc();
  const ptr = rig.x.memAlloc(4096);
  expect(() => rig.regionAt(ptr, 0)).toThrow('EINVAL');
  expect(() => rig.regionAt(ptr, 0xffffffff)).toThrow('EINVAL');
  expect(() => rig.regionAt(ptr, 64, 15, 2n ** 64n - 63n)).toThrow('EINVAL');
  rig.regionAt(ptr, 64, 15, 2n ** 64n - 64n);
});
