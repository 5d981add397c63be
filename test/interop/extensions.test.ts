// Operations without a stock tool, between our card and rxe, each end as requester and as responder: memory windows and
// their invalidation, fast registration, ATOMIC WRITE, FLUSH. Where rxe breaks a rule, the test names the quirk.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Access, WcOpcode, WcStatus } from '../../src/index.js';
import { describeIf } from '../kit/privileges.js';
import { type CardEnd, OurDevice } from './card.js';
import { type EndOptions, MW_BIND, REMOTE_READ, REMOTE_WRITE } from './end.js';
import { describeWithRxe, matrix, testOfRxe } from './environment.js';
import { GUEST_IS } from './guest/differences.js';
import { Peer } from './guest/peer.js';
import { connectPair, Expected, FAMILIES, type Pair } from './pair.js';
import type { RxeEnd } from './rxe.js';

const MTU = 1024;
const DONE = WcStatus.SUCCESS;
const RIGHTS = GUEST_IS.hasFlush ? 15 | Access.FLUSH_GLOBAL : 15;
const flush = { ok: GUEST_IS.hasFlush, reason: 'this guest has neither ATOMIC WRITE nor FLUSH' };
const ENDS: EndOptions = { mtu: MTU, access: RIGHTS, regionAccess: RIGHTS };
/** Offset of a window in its region, and its size. */
const [AT, SIZE] = [4096, 3000];

describeWithRxe('extensions with rxe', 9000, (environment) => {
  describe.each(matrix(['']))('link %s, %s%s', (link, family) => {
    let ours: OurDevice;
    let peer: Peer;
    beforeAll(async () => {
      ours = await OurDevice.open(link);
      peer = await Peer.start(environment.guest, FAMILIES[family].gid);
    });
    afterAll(async () => {
      await peer?.close();
      await ours?.[Symbol.asyncDispose]();
    });

    const connected = (options: EndOptions = {}, card: EndOptions = {}): Promise<Pair> =>
      connectPair({ ours, peer, family }, { ...ENDS, ...options }, { card });

    /** Returns a bound window of ours, and its address for rxe. */
    async function windowOf(card: CardEnd, type: 1 | 2): Promise<{ rkey: number; at: bigint }> {
      const mr = await card.pd.regMr(card.mr, { access: RIGHTS | MW_BIND });
      const mw = await card.pd.allocMw(type);
      const rkey = card.qp.bindMw(mw, { mr, offset: AT, length: SIZE, access: REMOTE_WRITE | REMOTE_READ });
      expect(await card.completions(1)).toEqual([{ id: 0, status: DONE, opcode: WcOpcode.BIND_MW }]);
      return { rkey, at: BigInt(mr.iova) + BigInt(AT) };
    }

    describe.each([1, 2] as const)('a window of type %d of ours', (type) => {
      test('lets rxe write and read all of it', async () => {
        await using pair = await connected();
        const { card, rxe } = pair;
        const [here, there] = [await Expected.fill(rxe, 1), await Expected.fill(card, 2)];
        const { rkey, at } = await windowOf(card, type);
        await rxe.postSend({ op: 'write', id: 1, pieces: [[5, SIZE]], at, rkey });
        await rxe.postSend({ op: 'read', id: 2, pieces: [[20_000, SIZE]], at, rkey });
        expect(await rxe.completions(2)).toMatchObject([1, 2].map((id) => ({ id, status: DONE })));
        there.set(AT, here.bytes.subarray(5, 5 + SIZE));
        here.set(20_000, Buffer.from(here.bytes.subarray(5, 5 + SIZE)));
        await here.check();
        await there.check();
      });

      test('refuses a byte beyond it, although the region has it', async () => {
        await using pair = await connected();
        const { card, rxe } = pair;
        const there = await Expected.fill(card, 2);
        const { rkey, at } = await windowOf(card, type);
        await rxe.postSend({ op: 'write', id: 1, pieces: [[0, SIZE]], at: at + 1n, rkey });
        expect(await rxe.completions(1)).toEqual([{ id: 1, status: WcStatus.REM_ACCESS_ERR }]);
        await there.check();
      });
    });

    test('may be invalidated by rxe, which then may not use it', async () => {
      await using pair = await connected();
      const { card, rxe } = pair;
      const { rkey, at } = await windowOf(card, 2);
      await card.postRecv([[0, 100]], 4);
      await rxe.postSend({ op: 'write', id: 1, pieces: [[0, 10]], at, rkey });
      await rxe.postSend({ op: 'send_inv', id: 2, pieces: [[0, 64]], inv: rkey });
      expect(await card.completions(1)).toEqual([
        { id: 4, status: DONE, opcode: WcOpcode.RECV, byteLen: 64, inv: rkey },
      ]);
      await rxe.postSend({ op: 'write', id: 3, pieces: [[0, 10]], at, rkey });
      expect(await rxe.completions(3)).toMatchObject([
        { id: 1, status: DONE },
        { id: 2, status: DONE },
        { id: 3, status: WcStatus.REM_ACCESS_ERR },
      ]);
    });

    /** Returns a bound window of rxe, and its address for us. */
    async function rxeWindow(rxe: RxeEnd): Promise<{ rkey: number; at: bigint }> {
      const rkey = await rxe.qp.bind(rxe.mr, AT, SIZE, REMOTE_WRITE | REMOTE_READ, 9);
      expect(await rxe.completions(1)).toMatchObject([{ id: 9, status: DONE, opcode: WcOpcode.BIND_MW }]);
      return { rkey, at: rxe.mr.addr + BigInt(AT) };
    }

    test('a window of rxe’s lets us write and read, until we invalidate it', async () => {
      await using pair = await connected();
      const { card, rxe } = pair;
      const [here, there] = [await Expected.fill(card, 1), await Expected.fill(rxe, 2)];
      const { rkey, at } = await rxeWindow(rxe);
      await rxe.postRecv([[0, 100]], 4);
      await card.postSend({ op: 'write', id: 1, pieces: [[5, SIZE]], at, rkey });
      await card.postSend({ op: 'read', id: 2, pieces: [[20_000, SIZE]], at, rkey });
      await card.postSend({ op: 'send_inv', id: 3, pieces: [[0, 64]], inv: rkey });
      expect(await card.completions(3)).toMatchObject([1, 2, 3].map((id) => ({ id, status: DONE })));
      expect(await rxe.completions(1)).toMatchObject([{ id: 4, status: DONE, inv: rkey }]);
      there.set(AT, here.bytes.subarray(5, 5 + SIZE));
      there.set(0, here.bytes.subarray(0, 64));
      here.set(20_000, Buffer.from(here.bytes.subarray(5, 5 + SIZE)));
      await card.postSend({ op: 'write', id: 5, pieces: [[0, 10]], at, rkey });
      expect(await card.completions(1)).toEqual([{ id: 5, status: WcStatus.REM_ACCESS_ERR }]);
      await here.check();
      await there.check();
    });

    const keeps = 'the library keeps us within the window';
    testOfRxe('rxe lets us leave its window within the region (a deviation of rxe)', keeps, async () => {
      await using pair = await connected();
      const { card, rxe } = pair;
      const { rkey, at } = await rxeWindow(rxe);
      await card.postSend({ op: 'write', id: 1, pieces: [[0, SIZE]], at: at + 100n, rkey });
      expect(await card.completions(1)).toMatchObject([{ id: 1, status: DONE }]);
      // rxe hangs when it destroys a queue pair with a bound window, hence this invalidation
      await rxe.qp.postSend({ op: 'local_inv', id: 2, inv: rkey });
      expect(await rxe.completions(1)).toMatchObject([{ id: 2, status: DONE, opcode: WcOpcode.LOCAL_INV }]);
    });

    test('rxe uses a fast region of ours, and not once it is invalidated', async () => {
      await using pair = await connected();
      const { card, rxe } = pair;
      const [here, there] = [await Expected.fill(rxe, 1), await Expected.fill(card, 2)];
      const fast = await card.pd.allocMr();
      const buffer = card.mr.buffer.subarray(100, 5100);
      card.qp.postSend({ opcode: 'REG_MR', mr: fast, buffer, access: 15, iova: 0x1234_5678_9000n });
      expect(await card.completions(1)).toMatchObject([{ status: DONE, opcode: WcOpcode.REG_MR }]);
      const { rkey } = fast;
      await rxe.postSend({ op: 'write', id: 1, pieces: [[0, 5000]], at: 0x1234_5678_9000n, rkey });
      expect(await rxe.completions(1)).toMatchObject([{ id: 1, status: DONE }]);
      there.set(100, here.bytes.subarray(0, 5000));
      card.qp.postSend({ opcode: 'LOCAL_INV', invalidateRkey: rkey });
      expect(await card.completions(1)).toMatchObject([{ status: DONE, opcode: WcOpcode.LOCAL_INV }]);
      await rxe.postSend({ op: 'write', id: 2, pieces: [[0, 8]], at: 0x1234_5678_9000n, rkey });
      expect(await rxe.completions(1)).toEqual([{ id: 2, status: WcStatus.REM_ACCESS_ERR }]);
      await there.check();
    });

    describeIf(flush, 'ATOMIC WRITE', () => {
      test('from rxe to us', async () => {
        await using pair = await connected();
        const { card, rxe } = pair;
        const [here, there] = [await Expected.fill(rxe, 1), await Expected.fill(card, 2)];
        const { addr, rkey } = card.introduction;
        for (const [id, to] of [64, 0, 8].entries()) {
          await rxe.qp.atomicWrite(rxe.mr, 8 * id + 1, addr + BigInt(to), rkey, id);
          there.set(to, here.bytes.subarray(8 * id + 1, 8 * id + 9));
        }
        expect(await rxe.completions(3)).toMatchObject(
          [0, 1, 2].map((id) => ({ id, status: DONE, opcode: WcOpcode.ATOMIC_WRITE })),
        );
        await there.check();
      });

      test('from us to rxe, with a READ behind that sees it', async () => {
        await using pair = await connected();
        const { card, rxe } = pair;
        const [here, there] = [await Expected.fill(card, 1), await Expected.fill(rxe, 2)];
        const { addr, rkey } = rxe.introduction;
        const at = { remoteAddr: addr + 64n, rkey };
        card.qp.postSend([
          { wrId: 1, opcode: 'ATOMIC_WRITE', sgList: card.mr.sge(1, 8), ...at },
          { wrId: 2, opcode: 'RDMA_READ', sgList: card.mr.sge(100, 16), ...at },
        ]);
        expect(await card.completions(2)).toMatchObject([
          { id: 1, status: DONE, opcode: WcOpcode.ATOMIC_WRITE },
          { id: 2, status: DONE },
        ]);
        there.set(64, here.bytes.subarray(1, 9));
        here.set(100, Buffer.from(there.bytes.subarray(64, 80)));
        await here.check();
        await there.check();
      });

      test('from us to an address that is no multiple of 8', async () => {
        await using pair = await connected();
        const { card, rxe } = pair;
        const there = await Expected.fill(rxe, 2);
        const { addr, rkey } = rxe.introduction;
        card.qp.postSend({ opcode: 'ATOMIC_WRITE', sgList: Buffer.alloc(8, 1), remoteAddr: addr + 4n, rkey });
        expect(await card.completions(1)).toEqual([{ id: 0, status: WcStatus.REM_INV_REQ_ERR }]);
        await there.check();
      });
    });

    describeIf(flush, 'FLUSH, whose ICRC rxe gets wrong', () => {
      const GIVES_UP: EndOptions = { timeout: 14, retry: 1 };

      test('we flush behind a WRITE with the quirk: a range, and the whole region', async () => {
        await using pair = await connected();
        const { card, rxe } = pair;
        const [here, there] = [await Expected.fill(card, 1), await Expected.fill(rxe, 2)];
        card.qp.quirks = ['rxeFlushIcrc'];
        const { addr, rkey } = rxe.introduction;
        const at = { remoteAddr: addr, rkey };
        card.qp.postSend([
          { wrId: 1, opcode: 'RDMA_WRITE', sgList: card.mr.sge(0, 3000), ...at },
          { wrId: 2, opcode: 'FLUSH', length: 3000, ...at },
          { wrId: 3, opcode: 'FLUSH', selectivity: 'mr', ...at },
        ]);
        expect(await card.completions(3)).toMatchObject([
          { id: 1, status: DONE },
          { id: 2, status: DONE, opcode: WcOpcode.FLUSH },
          { id: 3, status: DONE, opcode: WcOpcode.FLUSH },
        ]);
        there.set(0, here.bytes.subarray(0, 3000));
        await there.check();
      });

      test('rxe flushes here with the quirk, also more of them than we keep responses of', async () => {
        await using pair = await connected({}, { destRdAtomic: 2 });
        const { card, rxe } = pair;
        // rxe sends a FLUSH over the limit again, with address 0
        card.qp.quirks = ['rxeFlushIcrc', 'rxeFlushAddress'];
        const { addr, rkey } = card.introduction;
        await rxe.postSend({ op: 'write', id: 0, pieces: [[0, 3000]], offset: 0 });
        for (let id = 1; id <= 12; id++) await rxe.qp.flush(addr, rkey, 3000, id % 2 ? 'range' : 'mr', id);
        const all = await rxe.completions(13);
        expect(all).toMatchObject(Array.from({ length: 13 }, (_, id) => ({ id, status: DONE })));
        expect(all[1]?.opcode).toBe(WcOpcode.FLUSH);
      });

      test('our FLUSH is not understood without the quirk', async () => {
        await using pair = await connected(GIVES_UP);
        const { card, rxe } = pair;
        const { addr, rkey } = rxe.introduction;
        card.qp.postSend({ wrId: 1, opcode: 'FLUSH', length: 8, remoteAddr: addr, rkey });
        expect(await card.completions(1)).toEqual([{ id: 1, status: WcStatus.RETRY_EXC_ERR }]);
      });

      test('rxe’s FLUSH is damaged to us without the quirk', async () => {
        await using pair = await connected(GIVES_UP);
        const { card, rxe } = pair;
        const { addr, rkey } = card.introduction;
        await rxe.qp.flush(addr, rkey, 8, 'range', 1);
        expect(await rxe.completions(1)).toEqual([{ id: 1, status: WcStatus.RETRY_EXC_ERR }]);
        expect(card.qp.counters().drop_icrc).toBeGreaterThanOrEqual(2);
      });

      test('a region of rxe’s without the right refuses', async () => {
        await using pair = await connected();
        const { card, rxe } = pair;
        card.qp.quirks = ['rxeFlushIcrc'];
        const { addr, rkey } = await rxe.register(4096, 15);
        card.qp.postSend({ wrId: 1, opcode: 'FLUSH', length: 8, remoteAddr: addr, rkey });
        expect(await card.completions(1)).toEqual([{ id: 1, status: WcStatus.REM_ACCESS_ERR }]);
      });

      test('a region of ours without the right refuses', async () => {
        await using pair = await connected();
        const { card, rxe } = pair;
        card.qp.quirks = ['rxeFlushIcrc'];
        const { addr, rkey } = await card.register(4096, 15);
        await rxe.qp.flush(addr, rkey, 8, 'range', 1);
        expect(await rxe.completions(1)).toEqual([{ id: 1, status: WcStatus.REM_ACCESS_ERR }]);
      });
    });
  });
});
