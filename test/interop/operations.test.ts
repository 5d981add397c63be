// Every RC operation between our card and rxe, each end as requester and as responder. Every byte of both regions is
// checked.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WcOpcode, WcStatus } from '../../src/index.js';
import { OurDevice } from './card.js';
import { type End, type Operation, type Piece, REMOTE_WRITE, type Request } from './end.js';
import { describeLinks, describeWithRxe, matrix, xdpRows } from './environment.js';
import { Peer } from './guest/peer.js';
import { connectPair, Expected, FAMILIES } from './pair.js';

const SIZE = 65536;
const DONE = WcStatus.SUCCESS;

/**
 * Every combination, some with the xdp link, one in worker mode, one whose card computes the whole ICRC, and both modes
 * with memory of the program.
 */
const cells = [
  ...[...matrix([1024, 4096]), ...xdpRows(4096, 1024)].map((cell) => [...cell, 'inline', 'link', 'card'] as const),
  ...matrix([4096])
    .slice(0, 1)
    .flatMap((cell) => [
      ...([[...cell, 'worker', 'link', 'card'] as const, [...cell, 'inline', 'card', 'card'] as const] as const),
      ...([[...cell, 'worker', 'link', 'program'] as const, [...cell, 'inline', 'link', 'program'] as const] as const),
    ]),
];

describeWithRxe('operations with rxe', 9000, (environment) => {
  describeLinks(cells, 'link %s, %s, path MTU %d, mode %s, ICRC by the %s, memory of the %s', (cell) => {
    const [link, family, mtu, mode, icrc, memory] = cell;
    let ours: OurDevice;
    let peer: Peer;
    beforeAll(async () => {
      ours = await OurDevice.open(link, { mode, icrcOffload: icrc === 'link', memory });
      peer = await Peer.start(environment.guest, FAMILIES[family].gid);
    });
    afterAll(async () => {
      await peer?.close();
      await ours?.[Symbol.asyncDispose]();
    });

    describe.each(['our card', 'rxe'] as const)('%s requests', (asks) => {
      /** Calls `body` with the requester, the responder, and the expected contents of their filled regions. */
      async function withEnds(
        body: (ends: { from: End; to: End; here: Expected; there: Expected }) => Promise<void>,
      ): Promise<void> {
        await using pair = await connectPair({ ours, peer, family }, { mtu, size: SIZE });
        const [from, to] = asks === 'our card' ? [pair.card, pair.rxe] : [pair.rxe, pair.card];
        const [here, there] = [await Expected.fill(from, 1), await Expected.fill(to, 2)];
        await body({ from, to, here, there });
        await here.check();
        await there.check();
      }

      /** Lengths around the packet boundaries, at odd offsets. */
      const transfers: Piece[] = [
        [0, 1],
        [1, 3],
        [5, mtu - 1],
        [3, mtu],
        [2, mtu + 1],
        [7, 3 * mtu + 2],
        [9, 40_001],
      ];

      test('WRITE: from and to unaligned addresses, all lengths', async () => {
        await withEnds(async ({ from, here, there }) => {
          for (const [id, [offset, length]] of transfers.entries()) {
            await from.postSend({ op: 'write', id, pieces: [[offset, length]], offset: 11 + id });
            there.set(11 + id, here.bytes.subarray(offset, offset + length));
          }
          expect(await from.completions(transfers.length)).toEqual(
            transfers.map((_, id) => ({ id, status: DONE, opcode: WcOpcode.RDMA_WRITE })),
          );
        });
      });

      test('READ: from and to unaligned addresses, all lengths', async () => {
        await withEnds(async ({ from, here, there }) => {
          for (const [id, [offset, length]] of transfers.entries()) {
            await from.postSend({ op: 'read', id, pieces: [[offset, length]], offset: 13 + id });
            here.set(offset, there.bytes.subarray(13 + id, 13 + id + length));
          }
          expect(await from.completions(transfers.length)).toEqual(
            transfers.map((_, id) => ({ id, status: DONE, opcode: WcOpcode.RDMA_READ })),
          );
        });
      });

      test('SEND: into receives of other sizes, all lengths', async () => {
        await withEnds(async ({ from, to, here, there }) => {
          for (const [id, [, length]] of transfers.entries()) await to.postRecv([[3 * id, length + 7 * id]], id);
          for (const [id, [offset, length]] of transfers.entries()) {
            await from.postSend({ op: 'send', id, pieces: [[offset, length]] });
            there.set(3 * id, here.bytes.subarray(offset, offset + length));
          }
          expect(await to.completions(transfers.length)).toEqual(
            transfers.map(([, byteLen], id) => ({ id, status: DONE, opcode: WcOpcode.RECV, byteLen })),
          );
          expect(await from.completions(transfers.length)).toEqual(
            transfers.map((_, id) => ({ id, status: DONE, opcode: WcOpcode.SEND })),
          );
        });
      });

      test.each<[Operation, number]>([
        ['send_imm', 0],
        ['send_imm', mtu + 5],
        ['write_imm', 0],
        ['write_imm', 17],
        ['write_imm', 2 * mtu],
        ['write_imm', 2 * mtu + 1],
      ])('%s of %d bytes: the immediate arrives unchanged, with the length', async (op, length) => {
        await withEnds(async ({ from, to, here, there }) => {
          const isWrite = op === 'write_imm';
          await to.postRecv(isWrite ? [] : [[100, 20_000]], 5);
          const pieces: Piece[] = length > 0 ? [[1, length]] : [];
          await from.postSend({ op, id: 6, pieces, imm: 0x01fe_23dc, ...(isWrite && { offset: 100 }) });
          const opcode = isWrite ? WcOpcode.RECV_RDMA_WITH_IMM : WcOpcode.RECV;
          expect(await to.completions(1)).toEqual([{ id: 5, status: DONE, opcode, byteLen: length, imm: 0x01fe_23dc }]);
          expect(await from.completions(1)).toMatchObject([{ id: 6, status: DONE }]);
          there.set(100, here.bytes.subarray(1, 1 + length));
        });
      });

      test('SEND, WRITE and READ of zero bytes', async () => {
        await withEnds(async ({ from, to }) => {
          await to.postRecv([], 1);
          await to.postRecv([[0, 10]], 2);
          await from.postSend({ op: 'send', id: 3 });
          // a WRITE of zero bytes does not check the key
          await from.postSend({ op: 'write', id: 4, at: 1n, rkey: 0 });
          await from.postSend({ op: 'read', id: 5, at: 2n, rkey: 0 });
          await from.postSend({ op: 'send', id: 6 });
          expect(await from.completions(4)).toMatchObject([3, 4, 5, 6].map((id) => ({ id, status: DONE })));
          expect(await to.completions(2)).toMatchObject([1, 2].map((id) => ({ id, status: DONE, byteLen: 0 })));
        });
      });

      test('SEND with invalidate of zero bytes', async () => {
        await using pair = await connectPair({ ours, peer, family }, { mtu, size: SIZE });
        const [from, to] = asks === 'our card' ? [pair.card, pair.rxe] : [pair.rxe, pair.card];
        const { rkey: inv } = await to.invalidatable(REMOTE_WRITE);
        await to.postRecv([], 1);
        await from.postSend({ op: 'send_inv', id: 2, inv });
        expect(await to.completions(1)).toEqual([{ id: 1, status: DONE, opcode: WcOpcode.RECV, byteLen: 0, inv }]);
        expect(await from.completions(1)).toMatchObject([{ id: 2, status: DONE }]);
      });

      test('32 pieces of 0 to 310 bytes are gathered, and scattered into 32 others', async () => {
        await withEnds(async ({ from, to, here, there }) => {
          const pieces: Piece[] = Array.from({ length: 32 }, (_, i) => [i * 500 + (i % 7), i * 10]);
          const total = pieces.reduce((sum, [, length]) => sum + length, 0);
          const others: Piece[] = pieces.map(([, length], i) => [20_000 + i * 401, 310 - length]);
          const gathered = Buffer.concat(pieces.map(([at, length]) => here.bytes.subarray(at, at + length)));
          const scatter = (into: Expected, bytes: Buffer) => {
            let at = 0;
            for (const [offset, length] of others) {
              into.set(offset, bytes.subarray(at, at + length));
              at += length;
            }
          };
          await to.postRecv(others, 1);
          await from.postSend({ op: 'send', id: 2, pieces });
          expect(await to.completions(1)).toMatchObject([{ id: 1, status: DONE, byteLen: total }]);
          scatter(there, gathered);
          await from.postSend({ op: 'write', id: 3, pieces, offset: 50_000 });
          there.set(50_000, gathered);
          await from.postSend({ op: 'read', id: 4, pieces: others, offset: 50_001 });
          expect(await from.completions(3)).toMatchObject([2, 3, 4].map((id) => ({ id, status: DONE })));
          const read = others.reduce((sum, [, length]) => sum + length, 0);
          scatter(here, Buffer.from(there.bytes.subarray(50_001, 50_001 + read)));
        });
      });

      test('inline data has its value at the call', async () => {
        await withEnds(async ({ from, to, here, there }) => {
          await to.postRecv([[0, 300]]);
          // biome-ignore format: one line
          const request: Omit<Request, 'op'> = { pieces: [[40, 99], [7, 100]], inline: true };
          await from.postSend({ op: 'send', id: 1, ...request });
          await from.postSend({ op: 'write', id: 2, offset: 1000, ...request });
          const before = Buffer.concat([here.bytes.subarray(40, 139), here.bytes.subarray(7, 107)]);
          here.set(0, Buffer.alloc(200, 0xaa));
          await from.put(0, Buffer.alloc(200, 0xaa));
          expect(await from.completions(2)).toMatchObject([1, 2].map((id) => ({ id, status: DONE })));
          expect(await to.completions(1)).toMatchObject([{ status: DONE, byteLen: 199 }]);
          there.set(0, before);
          there.set(1000, before);
        });
      });

      test('atomics return the old value, and write the new one', async () => {
        await withEnds(async ({ from, to, here, there }) => {
          const start = 0xffff_ffff_ffff_fffen;
          there.set(64, littleEndian(start));
          await to.put(64, littleEndian(start));
          const swap = 0x0123_4567_89ab_cdefn;
          const requests: Request[] = [
            { op: 'faa', add: 5n }, // past 2^64
            { op: 'cas', compare: 4n, swap }, // not equal
            { op: 'cas', compare: 3n, swap },
            { op: 'faa', add: 0n },
          ];
          for (const [id, request] of requests.entries())
            await from.postSend({ ...request, id, pieces: [[8 * id + 1, 8]], offset: 64 });
          expect(await from.completions(4)).toMatchObject([
            { id: 0, status: DONE, opcode: WcOpcode.FETCH_ADD },
            { id: 1, status: DONE, opcode: WcOpcode.COMP_SWAP },
            { id: 2, status: DONE, opcode: WcOpcode.COMP_SWAP },
            { id: 3, status: DONE, opcode: WcOpcode.FETCH_ADD },
          ]);
          for (const [id, old] of [start, 3n, 3n, swap].entries()) here.set(8 * id + 1, littleEndian(old));
          there.set(64, littleEndian(swap));
        });
      });

      test('SEND with invalidate invalidates the key that it names, and its receiver is told', async () => {
        await using pair = await connectPair({ ours, peer, family }, { mtu, size: SIZE });
        const [from, to] = asks === 'our card' ? [pair.card, pair.rxe] : [pair.rxe, pair.card];
        const [here, there] = [await Expected.fill(from, 1), await Expected.fill(to, 2)];
        const target = await to.invalidatable(REMOTE_WRITE);
        const write = { op: 'write', pieces: [[0, 100]], at: target.addr, rkey: target.rkey } as const;
        await from.postSend({ id: 1, ...write });
        await to.postRecv([[0, 2 * mtu]], 2);
        await from.postSend({ op: 'send_inv', id: 3, pieces: [[9, mtu + 7]], inv: target.rkey });
        expect(await to.completions(1)).toEqual([
          { id: 2, status: DONE, opcode: WcOpcode.RECV, byteLen: mtu + 7, inv: target.rkey },
        ]);
        await from.postSend({ id: 4, ...write });
        expect(await from.completions(3)).toMatchObject([
          { id: 1, status: DONE },
          { id: 3, status: DONE },
          { id: 4, status: WcStatus.REM_ACCESS_ERR },
        ]);
        there.set(0, here.bytes.subarray(9, 9 + mtu + 7));
        if (to.name === 'rxe') there.set(Number(target.addr - to.introduction.addr), here.bytes.subarray(0, 100));
        await here.check();
        await there.check();
      });

      test('a READ sees the WRITE before it, and a fenced WRITE waits for the READ before it', async () => {
        await withEnds(async ({ from, here, there }) => {
          const length = 3 * mtu + 1;
          await from.postSend({ op: 'write', id: 1, pieces: [[0, length]], offset: 0 });
          await from.postSend({ op: 'read', id: 2, pieces: [[20_000, length]], offset: 0 });
          await from.postSend({ op: 'write', id: 3, pieces: [[40_000, length]], offset: 0, fence: true });
          expect(await from.completions(3)).toMatchObject([1, 2, 3].map((id) => ({ id, status: DONE })));
          here.set(20_000, Buffer.from(here.bytes.subarray(0, length)));
          there.set(0, here.bytes.subarray(40_000, 40_000 + length));
        });
      });

      test('a PSN passes 2^24 on both sides', async () => {
        await using pair = await connectPair({ ours, peer, family }, { mtu, size: SIZE, psn: 0xfffffd });
        const [from, to] = asks === 'our card' ? [pair.card, pair.rxe] : [pair.rxe, pair.card];
        const [here, there] = [await Expected.fill(from, 3), await Expected.fill(to, 4)];
        await from.postSend({ op: 'write', id: 1, pieces: [[1, 5 * mtu]], offset: 3 });
        await from.postSend({ op: 'read', id: 2, pieces: [[30_000, 5 * mtu]], offset: 3 });
        expect(await from.completions(2)).toMatchObject([1, 2].map((id) => ({ id, status: DONE })));
        there.set(3, here.bytes.subarray(1, 1 + 5 * mtu));
        here.set(30_000, there.bytes.subarray(3, 3 + 5 * mtu));
        await here.check();
        await there.check();
      });
    });
  });
});

function littleEndian(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value);
  return bytes;
}
