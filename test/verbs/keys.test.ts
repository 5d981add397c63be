// Memory windows, fast registration, re-registration, ATOMIC WRITE and FLUSH between two devices in one process.
import { describe, expect, test } from 'vitest';
import { type AccessName, createMemoryHub, type Qp, type SendWr, throwIfFailed, type Wc } from '../../src/index.js';
import { incRkey } from '../../src/verbs/work/keys.js';
import { ALL, connectedPair, type End, endOn, openOn, type Pair, pattern } from './pair.js';

const WAIT = { timeout: 20_000 };
const FLUSHING: readonly AccessName[] = [...ALL, 'flushGlobal'];
const BINDABLE: readonly AccessName[] = [...ALL, 'mwBind', 'flushGlobal'];

const flushingPair = (): Promise<Pair> => connectedPair({ connect: { access: FLUSHING } });

async function done(end: End, wr: SendWr): Promise<Wc> {
  end.qp.postSend(wr);
  const wc = await end.cq.next(WAIT);
  throwIfFailed(wc);
  return wc;
}

async function failing(end: End, wr: SendWr): Promise<string> {
  end.qp.postSend(wr);
  return (await end.cq.next(WAIT)).statusName;
}

test('incRkey adds 1 to the tag modulo 256 and keeps the index', () => {
  expect([0x12345600, 0x123456ff, 0xffffffff, 0x000000fe].map(incRkey)).toEqual([
    0x12345601, 0x12345600, 0xffffff00, 0xff,
  ]);
  expect(() => incRkey(-1)).toThrow('rkey is -1, must be from 0 to 4294967295');
  expect(() => incRkey('1' as never)).toThrow(TypeError);
});

describe('memory windows', () => {
  test.each([1, 2] as const)('of type %d are bound, used, and checked against their own bounds', async (type) => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const region = await b.pd.regMr(8192, { access: BINDABLE });
    const mw = await b.pd.allocMw(type);
    const before = mw.rkey;
    expect([mw.type, mw.isBound]).toEqual([type, false]);
    const rkey = b.qp.bindMw(mw, { wrId: 5, mr: region, offset: 1000, length: 500, access: ['remoteWrite'] });
    expect(rkey).toBe(incRkey(before));
    expect(await b.cq.next(WAIT)).toMatchObject({ wrId: 5, ok: true, opcodeName: 'BIND_MW' });
    expect([mw.isBound, mw.rkey]).toEqual([true, rkey]);
    const remoteAddr = Number(region.iova) + 1000;
    await done(a, { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 500), remoteAddr, rkey });
    expect(await failing(a, { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 501), remoteAddr, rkey })).toBe(
      'REM_ACCESS_ERR',
    );
  });

  test('zero-based, begin at address 0, and can be bound again after LOCAL_INV', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const region = await b.pd.regMr(8192, { access: BINDABLE });
    const mw = await b.pd.allocMw();
    const access: readonly AccessName[] = ['remoteWrite', 'zeroBased'];
    const bind = { opcode: 'BIND_MW', mw, mr: region, offset: 4000, length: 8, access } as const;
    await done(b, bind);
    await done(a, {
      opcode: 'RDMA_WRITE',
      sgList: Buffer.from('from zero').subarray(0, 8),
      remoteAddr: 0,
      rkey: mw.rkey,
    });
    expect(region.buffer.toString('latin1', 4000, 4008)).toBe('from zer');
    await done(b, { opcode: 'LOCAL_INV', invalidateRkey: mw.rkey });
    expect(mw.isBound).toBe(false);
    await done(b, { ...bind, offset: 0 });
    await done(a, { opcode: 'RDMA_WRITE', sgList: Buffer.from('again'), remoteAddr: 3, rkey: mw.rkey });
    expect(region.buffer.toString('latin1', 3, 8)).toBe('again');
  });

  test('are invalidated by SEND_WITH_INV of the peer', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const region = await b.pd.regMr(64, { access: BINDABLE });
    const mw = await b.pd.allocMw(2);
    await done(b, { opcode: 'BIND_MW', mw, mr: region, access: ['remoteRead'] });
    b.qp.postRecv({ sgList: b.mr.sge(0, 8) });
    await done(a, { opcode: 'SEND_WITH_INV', sgList: Buffer.from('bye'), invalidateRkey: mw.rkey });
    expect(await b.cq.next(WAIT)).toMatchObject({ hasInvalidated: true, invalidatedRkey: mw.rkey });
    expect(mw.isBound).toBe(false);
    await region.close();
  });

  test('keep their region open, whose close names them', async () => {
    await using pair = await connectedPair();
    const { b } = pair;
    const region = await b.pd.regMr(64, { access: BINDABLE });
    const mw = await b.pd.allocMw(1);
    await done(b, { opcode: 'BIND_MW', mw, mr: region, access: ['remoteRead'] });
    const why = `EBUSY: mr ${region.label} has memory windows bound to it: invalidate or close them first`;
    await expect(region.close()).rejects.toThrow(why);
    await expect(region.rereg({ access: ALL })).rejects.toThrow(why);
    expect(region.isClosed).toBe(false);
    await mw.close();
    await region.close();
  });

  test('have a completion that explains a refused bind', async () => {
    await using pair = await connectedPair();
    const { b } = pair;
    const mw = await b.pd.allocMw(2);
    b.qp.postSend({ opcode: 'BIND_MW', mw, mr: b.mr, access: ['remoteRead'] });
    const wc = await b.cq.next(WAIT);
    expect(wc).toMatchObject({ statusName: 'MW_BIND_ERR', opcodeName: 'BIND_MW' });
    expect(wc.explain().likelyCauses[0]).toContain('mwBind');
    expect(mw.isBound).toBe(false);
  });

  test('refuse wrong arguments by name, value and rule', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const [mw, region] = [await b.pd.allocMw(2), await b.pd.regMr(64, { access: BINDABLE })];
    const bind = { opcode: 'BIND_MW', mw, mr: region, access: ['remoteRead'] } as const;
    const post = (wr: object) => () => b.qp.postSend({ ...bind, ...wr } as SendWr);
    expect(post({ mw: undefined })).toThrow('mw is undefined, must be a memory window');
    expect(post({ mr: {} })).toThrow('mr is an object, must be a memory region');
    expect(post({ offset: 65 })).toThrow('offset is 65, must be from 0 to 64');
    expect(post({ offset: 60, length: 5 })).toThrow('length is 5, must be from 0 to 4');
    expect(post({ access: ['write'] })).toThrow("access has 'write', must be one of");
    expect(post({ rkey: mw.rkey ^ 0x100 })).toThrow(`must equal the key of ${mw} in its upper 24 bits`);
    expect(post({ mr: await (await b.device.allocPd()).regMr(64) })).toThrow(
      /^mr belongs to pd \d+, the queue pair to/,
    );
    expect(() => a.qp.postSend(bind)).toThrow(/^mw belongs to pd/);
    await expect(b.pd.allocMw(3 as never)).rejects.toThrow('type is 3, must be 1 or 2');
  });

  test('close with their domain, and keep it open before', async () => {
    const device = await openOn(createMemoryHub());
    const { pd, qp, mr, cq } = await endOn(device);
    const mw = await pd.allocMw();
    for (const object of [qp, mr, cq]) await object.close();
    await expect(pd.close()).rejects.toThrow(`has 1 mw (${mw.label})`);
    await device.close({ force: true });
    expect(mw.isClosed).toBe(true);
    expect(() => mw.isBound).toThrow('is closed');
  });
});

describe('fast registration', () => {
  test('takes register, use by the peer, invalidate and register again in one list', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const fast = await b.pd.allocMr();
    expect([fast.isValid, fast.length]).toEqual([false, 0]);
    pattern(100).copy(b.mr.buffer, 64);
    a.qp.postRecv({ sgList: a.mr.sge(0, 200) });
    b.qp.postSend({ opcode: 'REG_MR', mr: fast, buffer: b.mr.buffer.subarray(64, 164), access: ALL, iova: 0x1000 });
    const { rkey } = fast;
    // Requests posted after a REG_MR may use its keys before it is executed.
    b.qp.postSend({ opcode: 'SEND', sgList: fast.sge(10, 90) });
    b.qp.postSend({ opcode: 'LOCAL_INV', invalidateRkey: rkey });
    b.qp.postSend({ opcode: 'REG_MR', mr: fast, buffer: b.mr, access: ALL });
    for (const opcodeName of ['REG_MR', 'SEND', 'LOCAL_INV', 'REG_MR'])
      expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, opcodeName });
    expect(await a.cq.next(WAIT)).toMatchObject({ ok: true, byteLen: 90 });
    expect(a.mr.buffer.subarray(0, 90).equals(pattern(100).subarray(10))).toBe(true);
    expect(fast.rkey).toBe(incRkey(rkey));
    expect([fast.isValid, fast.length, fast.remote]).toEqual([
      true,
      b.mr.length,
      { addr: b.mr.addr, rkey: fast.rkey, length: b.mr.length },
    ]);
    const at = { remoteAddr: fast.iova, rkey: fast.rkey };
    await done(a, { opcode: 'RDMA_WRITE', sgList: Buffer.from('fast'), ...at });
    expect(b.mr.buffer.toString('latin1', 0, 4)).toBe('fast');
    expect(await failing(a, { opcode: 'RDMA_WRITE', sgList: Buffer.from('x'), ...at, rkey })).toBe('REM_ACCESS_ERR');
  });

  test('keeps its memory when the region of the memory is closed', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const [fast, base] = [await b.pd.allocMr(), await b.pd.regMr(2 ** 20)];
    const free = (): number => b.device.query().memoryAvailable;
    await done(b, { opcode: 'REG_MR', mr: fast, buffer: base, access: ALL });
    const held = free();
    await base.close();
    expect(free()).toBeLessThan(held + 2 ** 19);
    await done(a, { opcode: 'RDMA_WRITE', sgList: Buffer.from('kept'), remoteAddr: fast.iova, rkey: fast.rkey });
    await fast.close();
    expect(free()).toBeGreaterThan(held + 2 ** 19);
  });

  test('releases the memory of a registration when a later one is executed', async () => {
    await using pair = await connectedPair();
    const { b } = pair;
    const [fast, base] = [await b.pd.allocMr(), await b.pd.regMr(2 ** 20)];
    await done(b, { opcode: 'REG_MR', mr: fast, buffer: base });
    await base.close();
    const held = b.device.query().memoryAvailable;
    for (let i = 0; i < 2; i++) {
      await done(b, { opcode: 'LOCAL_INV', invalidateRkey: fast.rkey });
      await done(b, { opcode: 'REG_MR', mr: fast, buffer: b.mr });
    }
    expect(b.device.query().memoryAvailable).toBeGreaterThan(held + 2 ** 19);
  });

  test('fails for a region that is registered', async () => {
    await using pair = await connectedPair();
    const { b } = pair;
    const fast = await b.pd.allocMr();
    await done(b, { opcode: 'REG_MR', mr: fast, buffer: b.mr });
    b.qp.postSend({ opcode: 'REG_MR', mr: fast, buffer: b.mr });
    const wc = await b.cq.next(WAIT);
    expect(wc.statusName).toBe('MW_BIND_ERR');
    expect(wc.explain().likelyCauses[0]).toContain('registered already');
  });

  test('refuses wrong arguments', async () => {
    await using pair = await connectedPair();
    const { b } = pair;
    const fast = await b.pd.allocMr();
    const post = (wr: object) => () => b.qp.postSend({ opcode: 'REG_MR', mr: fast, buffer: b.mr, ...wr } as SendWr);
    expect(post({ mr: b.mr })).toThrow('must be a fast region of pd.allocMr');
    expect(post({ buffer: new Uint8Array(0) })).toThrow('the memory has 0 bytes');
    expect(post({ buffer: undefined })).toThrow('buffer is undefined, must be memory');
    expect(post({ iova: -1 })).toThrow('iova is -1');
    expect(() => fast.sge(0, 1)).toThrow('length is 1, must be from 0 to 0');
  });
});

describe('re-registration', () => {
  test('with other rights gives new keys and invalidates the old ones', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const mr = await b.pd.regMr(64, { access: ['localWrite'] });
    const { rkey, lkey, iova } = mr;
    await mr.rereg({ access: ALL });
    expect([mr.access, mr.iova, mr.length]).toEqual([ALL, iova, 64]);
    expect([rkey, lkey]).not.toContain(mr.rkey);
    await done(a, { opcode: 'RDMA_WRITE', sgList: Buffer.from('now'), remoteAddr: mr.iova, rkey: mr.rkey });
    expect(mr.buffer.toString('latin1', 0, 3)).toBe('now');
    expect(await failing(a, { opcode: 'RDMA_READ', sgList: a.mr.sge(0, 1), remoteAddr: iova, rkey })).toBe(
      'REM_ACCESS_ERR',
    );
  });

  test('with other memory frees the old memory unless others use it', async () => {
    await using pair = await connectedPair();
    const { b } = pair;
    const mr = await b.pd.regMr(2 ** 20, { access: ALL, iova: 0x5000 });
    const held = b.device.query().memoryAvailable;
    await mr.rereg({ buffer: b.mr.buffer.subarray(8, 16) });
    expect([mr.length, mr.addr, mr.iova]).toEqual([8, b.mr.addr + 8, b.mr.addr + 8]);
    expect(b.device.query().memoryAvailable).toBeGreaterThan(held + 2 ** 19);
    b.mr.buffer.write('shared', 8);
    expect(mr.buffer.toString('latin1', 0, 6)).toBe('shared');
    await mr.rereg({ buffer: 4096, iova: 0x7000 });
    expect([mr.length, mr.iova, mr.buffer.length]).toEqual([4096, 0x7000, 4096]);
  });

  test('moves the region to another domain', async () => {
    await using device = await openOn(createMemoryHub());
    const [one, other] = [await device.allocPd(), await device.allocPd()];
    const mr = await one.regMr(64);
    await mr.rereg({ pd: other });
    expect(mr.pd).toBe(other);
    await one.close();
    await expect(other.close()).rejects.toThrow(`has 1 mr (${mr.label})`);
    await mr.close();
    await other.close();
  });

  test('changes nothing when it is refused', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const mr = await b.pd.regMr(64, { access: ALL });
    const { rkey } = mr;
    await expect(mr.rereg({ access: ['remoteWrite'] })).rejects.toThrow(/^EINVAL: .*need localWrite/);
    await expect(mr.rereg({ buffer: new ArrayBuffer(0) })).rejects.toThrow(RangeError);
    await expect(mr.rereg({ pd: a.pd })).rejects.toThrow('belongs to another device');
    expect([mr.rkey, mr.access]).toEqual([rkey, ALL]);
    await done(a, { opcode: 'RDMA_WRITE', sgList: Buffer.from('x'), remoteAddr: mr.iova, rkey });
  });

  test('lets a zero-based region begin at address 0', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const mr = await b.pd.regMr(64, { access: [...ALL, 'zeroBased'] });
    expect(mr.remote.addr).toBe(0);
    await done(a, { opcode: 'RDMA_WRITE', sgList: Buffer.from('zero'), remoteAddr: 2, rkey: mr.rkey });
    expect(mr.buffer.toString('latin1', 2, 6)).toBe('zero');
    await mr.rereg({ access: ALL });
    expect(mr.iova).toBe(mr.addr);
    await mr.rereg({ access: [...ALL, 'zeroBased'] });
    expect(mr.iova).toBe(0);
    await expect(b.pd.regMr(64, { access: ['zeroBased'], iova: 8 })).rejects.toThrow(
      'must be 0 for a region with access zeroBased',
    );
  });
});

describe('ATOMIC WRITE', () => {
  test('writes eight bytes, inline or from memory', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    pattern(8).copy(a.mr.buffer);
    const at = { remoteAddr: Number(b.mr.iova) + 16, rkey: b.mr.rkey };
    expect(await done(a, { opcode: 'ATOMIC_WRITE', sgList: a.mr.sge(0, 8), ...at })).toMatchObject({
      opcodeName: 'ATOMIC_WRITE',
    });
    expect(b.mr.buffer.subarray(16, 24).equals(pattern(8))).toBe(true);
    await done(a, { opcode: 'ATOMIC_WRITE', sgList: pattern(8, 2), ...at });
    expect(b.mr.buffer.subarray(16, 24).equals(pattern(8, 2))).toBe(true);
    const short = { opcode: 'ATOMIC_WRITE', sgList: a.mr.sge(0, 7), ...at } as const;
    expect(() => a.qp.postSend(short)).toThrow('sgList of ATOMIC_WRITE has 7 bytes, must have 8');
    const odd = { opcode: 'ATOMIC_WRITE', sgList: a.mr.sge(0, 8), ...at, remoteAddr: at.remoteAddr + 4 } as const;
    a.qp.postSend(odd);
    const wc = await a.cq.next(WAIT);
    expect(wc.statusName).toBe('REM_INV_REQ_ERR');
    expect(wc.explain().likelyCauses.join()).toContain('multiple of 8');
  });
});

describe('FLUSH', () => {
  test('covers a range or a whole region, behind a WRITE', async () => {
    await using pair = await flushingPair();
    const { a, b } = pair;
    const mr = await b.pd.regMr(4096, { access: FLUSHING });
    const at = { remoteAddr: mr.iova, rkey: mr.rkey };
    a.qp.postSend([
      { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 4096), ...at },
      { opcode: 'FLUSH', length: 4096, ...at },
      { opcode: 'FLUSH', placement: 'global', selectivity: 'mr', ...at },
    ]);
    for (const opcodeName of ['RDMA_WRITE', 'FLUSH', 'FLUSH'])
      expect(await a.cq.next(WAIT)).toMatchObject({ ok: true, opcodeName });
    expect(await failing(a, { opcode: 'FLUSH', length: 4097, ...at })).toBe('REM_ACCESS_ERR');
  });

  test('needs the rights of the region and of the queue pair', async () => {
    await using pair = await flushingPair();
    const { a, b } = pair;
    const flush = { opcode: 'FLUSH', length: 8, remoteAddr: b.mr.iova, rkey: b.mr.rkey } as const;
    expect(await failing(a, flush)).toBe('REM_ACCESS_ERR');
    await using other = await connectedPair();
    const mr = await other.b.pd.regMr(8, { access: FLUSHING });
    expect(await failing(other.a, { ...flush, remoteAddr: mr.iova, rkey: mr.rkey })).toBe('REM_INV_REQ_ERR');
  });

  test('refuses wrong arguments', async () => {
    await using pair = await connectedPair();
    const { a } = pair;
    const post = (wr: object) => () =>
      a.qp.postSend({ opcode: 'FLUSH', remoteAddr: 0, rkey: 1, length: 8, ...wr } as SendWr);
    expect(post({ placement: 'persistent' })).toThrow("placement is 'persistent', must be 'global'");
    expect(post({ selectivity: 'all' })).toThrow("selectivity is 'all', must be 'range' or 'mr'");
    expect(post({ length: undefined })).toThrow('length is undefined, must be an integer');
    expect(post({ rkey: undefined })).toThrow('rkey is undefined');
  });

  test('works between ends with the same quirk only', async () => {
    await using pair = await connectedPair({ connect: { access: FLUSHING, timeout: 8, retryCnt: 1 } });
    const { a, b } = pair;
    const mr = await b.pd.regMr(64, { access: FLUSHING });
    const flush = { opcode: 'FLUSH', length: 64, remoteAddr: mr.iova, rkey: mr.rkey } as const;
    const share = (qp: Qp): void => {
      qp.quirks = ['rxeFlushIcrc'];
    };
    share(a.qp);
    share(b.qp);
    expect(a.qp.quirks).toEqual(['rxeFlushIcrc']);
    await done(a, flush);
    // With the quirk, the right ICRC is accepted as well.
    a.qp.quirks = [];
    await done(a, flush);
    share(a.qp);
    b.qp.quirks = [];
    a.qp.postSend(flush);
    const wc = await a.cq.next(WAIT);
    expect(wc.statusName).toBe('RETRY_EXC_ERR');
    expect(wc.explain().likelyCauses[0]).toContain('rxeFlushIcrc');
    expect(b.qp.counters().drop_icrc).toBeGreaterThan(0);
    expect(() => {
      a.qp.quirks = ['none' as never];
    }).toThrow("quirks has 'none', must be one of rxeFlushIcrc, rxeFlushAddress");
  });
});
