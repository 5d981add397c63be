/**
 * Memory windows of type 1 are valid for every queue pair of their protection domain, those of type 2B for the queue
 * pair over which they were bound. Each type is unbound in its own way (IBTA 10.6.7.2).
 */
import { describe, expect, test } from 'vitest';
import { ack, encodeFrame, nak, request } from '../../src/probe/packet/packets.js';
import { PING, pattern, rc, TARGET_VA } from '../kit/conversation.js';
import {
  AT,
  binding,
  bound,
  INVALIDATE,
  MW_BIND,
  next,
  READ,
  refused,
  region,
  SIZE,
  WRITE,
  write,
  ZERO_BASED,
} from './memory-windows.js';

describe('type 1', () => {
  test('is bound again without being invalidated: the old range and key are invalid', async () => {
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

  test('keeps its old binding when a bind fails', async () => {
    const c = await rc();
    const { mw, mr, rkey } = bound(c, 1);
    c.post(1, binding(c, mw, mr, { va: 0n })).wc({ status: 'MW_BIND_ERR' });
    expect([c.rig.x.mrRkey(mw), c.rig.x.mrIsValid(mw)]).toEqual([rkey, true]);
    expect(c.rig.errno(c.rig.x.mrDereg(mr.mr))).toBe('EBUSY');
  });

  test('bound with length 0 is unbound, and releases the region', async () => {
    const c = await rc();
    const { mw, mr, rkey } = bound(c, 1);
    c.post(1, binding(c, mw, mr, { length: 0 })).wc({ wrId: 90, opcode: 'BIND_MW' });
    expect(c.rig.x.mrIsValid(mw)).toBe(false);
    expect(c.rig.errno(c.rig.x.mrDereg(mr.mr))).toBe('OK');
    refused(c, write(TARGET_VA + BigInt(AT), rkey));
  });

  test('may be used by every queue pair of its domain', async () => {
    const c = await rc();
    const { rkey } = bound(c, 1);
    const d = await rc({ rig: c.rig });
    d.in(1, write(TARGET_VA + BigInt(AT), rkey)).out(ack({ psn: 100, msn: 1 }));
  });

  test('cannot be based at zero', async () => {
    const c = await rc();
    c.post(0, binding(c, c.rig.window(1), region(c), { access: WRITE | ZERO_BASED })).wc({ status: 'MW_BIND_ERR' });
  });

  test('cannot be invalidated, by neither end', async () => {
    const c = await rc();
    const { rkey } = bound(c, 1);
    c.post(1, { wrId: 1, opcode: 'LOCAL_INV', imm: rkey }).wc({ wrId: 1, status: 'MW_BIND_ERR' });
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
  test('may be used over the queue pair alone that bound it', async () => {
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

  test('must be invalidated before it is bound again', async () => {
    const c = await rc();
    const { mw, mr, rkey } = bound(c, 2);
    c.post(1, binding(c, mw, mr)).wc({ status: 'MW_BIND_ERR' });
    expect([c.rig.x.mrRkey(mw), c.rig.x.mrIsValid(mw)]).toEqual([rkey, true]);
  });

  test('needs a length', async () => {
    const c = await rc();
    c.post(0, binding(c, c.rig.window(2), region(c), { length: 0 })).wc({ status: 'MW_BIND_ERR' });
  });

  test('is invalidated by LOCAL_INV; then its region may be closed, or the window be bound again', async () => {
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
    d.post(1, { opcode: 'LOCAL_INV', imm: rkey }).wc({ status: 'MW_BIND_ERR' });
    expect(c.rig.x.mrIsValid(mw)).toBe(true);
  });

  test('is invalidated by the peer’s SEND_WITH_INVALIDATE', async () => {
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

  test('cannot be invalidated by the peer of another queue pair', async () => {
    const c = await rc();
    const { mw, rkey } = bound(c, 2);
    const d = await rc({ rig: c.rig, receives: 1 });
    d.in(1, request.sendOnlyInvalidate({ psn: 100, payload: PING, invalidate: rkey }))
      .silent()
      .wc({ status: 'REM_INV_REQ_ERR' });
    expect(c.rig.x.mrIsValid(mw)).toBe(true);
  });

  test('is invalidated with its queue pair: a later owner of the number cannot use it, and its region may be closed', async () => {
    const c = await rc();
    const [mine, kept] = [bound(c, 2), bound(c, 2)];
    const over = await rc({ rig: c.rig });
    const other = bound(over, 2);
    c.post(2, { opcode: 'LOCAL_INV', imm: kept.rkey }).wc({});
    expect(c.rig.errno(c.rig.x.mrDereg(mine.mr.mr))).toBe('EBUSY');
    c.rig.x.qpDestroy(c.qp.handle);
    expect([mine, kept, other].map(({ mw }) => c.rig.x.mrIsValid(mw))).toEqual([false, false, true]);
    expect(c.rig.errno(c.rig.x.mrDereg(mine.mr.mr))).toBe('OK');
    // it can be bound over another queue pair
    const wr = binding(over, mine.mw, other.mr);
    over
      .post(3, wr)
      .wc({ wrId: 90 })
      .in(4, write(TARGET_VA + BigInt(AT), c.rig.x.mrRkey(mine.mw)))
      .out(ack({ psn: 100, msn: 1 }));
  });

  test('a region with a bound window cannot be invalidated', async () => {
    const c = await rc();
    const [mw, mr] = [c.rig.window(2), region(c, 15 | MW_BIND | INVALIDATE)];
    c.post(0, binding(c, mw, mr))
      .wc({ wrId: 90 })
      .post(1, { wrId: 1, opcode: 'LOCAL_INV', imm: mr.rkey })
      .wc({ wrId: 1, status: 'MW_BIND_ERR' });
    expect(c.rig.x.mrIsValid(mr.mr)).toBe(true);
  });

  test('a window that is invalidated during a WRITE refuses the rest', async () => {
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

  test('a window that is invalidated during a READ refuses the rest', async () => {
    const c = await rc({ mtu: 256 });
    const { mw, rkey } = bound(c, 2);
    c.rig.put(encodeFrame(c.there, request.read({ psn: 100, va: TARGET_VA + BigInt(AT), rkey, length: SIZE })));
    c.rig.x.rx(1000, 1);
    c.rig.out(1000, 3);
    c.rig.x.mwFree(mw);
    c.at(2)
      .out(nak.remoteAccess({ psn: 103, msn: 1 }))
      .events('QP_ACCESS_ERR');
  });
});
