// Shared receive queues at either end, and as many READs and atomics at once as both ends have agreed on.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { gidToHex } from '../../src/base/gid.js';
import { type AsyncEvent, type Qp, WcStatus } from '../../src/index.js';
import { Op } from '../../src/probe/packet/opcodes.js';
import { eventually } from '../kit/eventually.js';
import { OurDevice } from './card.js';
import { describeWithRxe } from './environment.js';
import type { GatedLink } from './gatedlink.js';
import { Peer, type PeerQp, patternBytes } from './guest/peer.js';
import { connectPair, Expected, FAMILIES, type Pair } from './pair.js';

const DONE = WcStatus.SUCCESS;
const SLOT = 4096;
const SLOTS = 40;
/** A value of ibv_event_type. */
const SRQ_LIMIT_REACHED = 15;
const WAIT = { timeout: 20_000 };

/** Returns a different message each time, usually longer than a packet. */
const message = (i: number) => Buffer.from(patternBytes(1000 + 67 * i, 50 + i));

describeWithRxe('queues with rxe', 9000, (environment) => {
  describe.each([
    ['packet', 'IPv4'],
    ['udp', 'IPv6'],
  ] as const)('link %s, %s', (link, family) => {
    let peer: Peer;
    beforeAll(async () => {
      peer = await Peer.start(environment.guest, FAMILIES[family].gid);
    });
    afterAll(() => peer?.close());

    async function connectBoth(qp: Qp, theirs: PeerQp): Promise<void> {
      const { gid, psn } = qp.endpoint(FAMILIES[family].guest);
      await theirs.connect({ dqpn: qp.qpNum, dpsn: psn, dgid: gidToHex(gid), mtu: 1024, timeout: 18 });
      await qp.connect({ qpNum: theirs.qpn, psn: theirs.psn, gid: peer.gid }, { pathMtu: 1024, timeout: 18 });
    }

    test('two of rxe’s queue pairs send to a shared receive queue of ours: its limit, another size, and no receive', async () => {
      await using ours = await OurDevice.open(link);
      const pd = await ours.device.allocPd();
      const cq = await ours.device.createCq({ cqe: 256 });
      const mr = await pd.regMr(SLOT * SLOTS);
      const srq = await pd.createSrq({ maxWr: 8, maxSge: 1 });
      const events: string[] = [];
      srq.on('event', ({ type }: AsyncEvent) => events.push(type));
      const theirMr = await peer.reg(SLOT);
      const senders: PeerQp[] = [];
      for (let i = 0; i < 2; i++) {
        const theirs = await peer.qp();
        await connectBoth(await pd.createQp({ sendCq: cq, srq }), theirs);
        senders.push(theirs);
      }
      const post = (i: number) => srq.postRecv({ wrId: i, sgList: mr.sge(i * SLOT, SLOT) });
      let next = 0;
      const send = async () => {
        const bytes = message(next);
        const sender = senders[next % 2] as PeerQp;
        await peer.write(theirMr, 0, bytes);
        await sender.postSend({ op: 'send', id: next, sge: [{ mr: theirMr, off: 0, len: bytes.length }] });
        return { sender, bytes, at: next++ };
      };
      const arrives = async ({ sender, bytes, at }: Awaited<ReturnType<typeof send>>) => {
        expect(await cq.next(WAIT)).toMatchObject({ ok: true, wrId: at, byteLen: bytes.length });
        expect(Buffer.from(mr.buffer.subarray(at * SLOT, at * SLOT + bytes.length))).toEqual(bytes);
        expect(await sender.poll(1)).toMatchObject([{ id: at, status: DONE }]);
      };
      for (let i = 0; i < 8; i++) post(i);
      await srq.modify({ srqLimit: 6 });
      for (let i = 0; i < 3; i++) await arrives(await send());
      await eventually(() => expect(events).toEqual(['SRQ_LIMIT_REACHED']));
      await srq.modify({ maxWr: 32 });
      for (let i = 8; i < 28; i++) post(i);
      expect(srq.query()).toMatchObject({ pending: 25, srqLimit: 0 });
      while (next < 28) await arrives(await send());
      const waiting = await send();
      await eventually(() => expect(ours.device.counters().send_rnr_err).toBeGreaterThan(0));
      post(28);
      await arrives(waiting);
      expect(events).toHaveLength(1);
    });

    test('two of our queue pairs send to a shared receive queue of rxe’s: its limit, another size, and no receive', async () => {
      await using ours = await OurDevice.open(link);
      const pd = await ours.device.allocPd();
      const cq = await ours.device.createCq({ cqe: 256 });
      const srq = await peer.srq(8);
      const mr = await peer.reg(SLOT * SLOTS);
      const senders: { readonly qp: Qp; readonly theirs: PeerQp }[] = [];
      for (let i = 0; i < 2; i++) {
        const qp = await pd.createQp({ sendCq: cq, maxInlineData: 0 });
        const theirs = await peer.qp({ srq });
        await connectBoth(qp, theirs);
        senders.push({ qp, theirs });
      }
      const source = await pd.regMr(SLOT * SLOTS);
      const post = (i: number) => srq.postRecv([{ mr, off: i * SLOT, len: SLOT }], i);
      let next = 0;
      const send = () => {
        const { qp, theirs } = senders[next % 2] as (typeof senders)[0];
        const bytes = message(next);
        source.buffer.set(bytes, next * SLOT);
        qp.postSend({ opcode: 'SEND', wrId: next, sgList: source.sge(next * SLOT, bytes.length) });
        return { qp, theirs, bytes, at: next++ };
      };
      const arrives = async ({ theirs, bytes, at }: ReturnType<typeof send>) => {
        expect(await theirs.poll(1, 20_000)).toMatchObject([{ id: at, status: DONE, byteLen: bytes.length }]);
        expect(await peer.read(mr, at * SLOT, bytes.length)).toEqual(bytes);
        expect(await cq.next(WAIT)).toMatchObject({ ok: true, wrId: at });
      };
      for (let i = 0; i < 8; i++) await post(i);
      await srq.modify({ limit: 6 });
      for (let i = 0; i < 3; i++) await arrives(send());
      expect(await queueEvent()).toMatchObject({ event: SRQ_LIMIT_REACHED });
      expect((await srq.modify({ wr: 32 })).wr).toBeGreaterThanOrEqual(32);
      for (let i = 8; i < 28; i++) await post(i);
      while (next < 28) await arrives(send());
      const waiting = send();
      await eventually(() => expect(waiting.qp.counters().rcvd_rnr_err).toBeGreaterThan(0));
      await post(28);
      await arrives(waiting);
      expect(await queueEvent(0)).toBeUndefined();
    });

    /** Returns the next event, except events of the guest's port, which may become active late. */
    async function queueEvent(wait?: number) {
      let event = await peer.event(wait);
      while (event?.event === PORT_ACTIVE) event = await peer.event(wait);
      return event;
    }

    /**
     * Returns the largest number of READs and atomics in flight: requests of one end without a response of the other,
     * as our card sees it.
     */
    function mostAtOnce({ tap }: OurDevice, { card, rxe }: Pair, asks: 'our card' | 'rxe'): number {
      const [from, to] = asks === 'our card' ? [card, rxe] : [rxe, card];
      const unanswered = new Set<number>();
      let most = 0;
      for (const { bth } of tap?.frames() ?? []) {
        if (bth.destQp === to.introduction.qpn && REQUESTS.has(bth.opcode)) unanswered.add(bth.psn);
        else if (bth.destQp === from.introduction.qpn && ANSWERS.has(bth.opcode)) unanswered.delete(bth.psn);
        most = Math.max(most, unanswered.size);
      }
      return most;
    }

    describe.each(['our card', 'rxe'] as const)('%s requests', (asks) => {
      test.each([1, 2, 16, 64, 128])('READs and atomics, %d at a time', async (depth) => {
        const count = 2 + 2 * Math.min(depth, 20) + depth;
        const options = { rdAtomic: depth, destRdAtomic: depth, sendWr: 256, size: SIZE, timeout: 20 };
        await using ours = await OurDevice.open(link, { tap: true, gates: true });
        await using pair = await connectPair({ ours, peer, family }, options);
        const [from, to] = asks === 'our card' ? [pair.card, pair.rxe] : [pair.rxe, pair.card];
        const [here, there] = [await Expected.fill(from, 1), await Expected.fill(to, 2)];
        const counter = 8 * 1000;
        const start = there.bytes.readBigUInt64LE(counter);
        // no response passes until as many requests as possible are in flight
        const gates = ours.gates as GatedLink;
        gates[asks === 'our card' ? 'canReceive' : 'canSend'] = false;
        for (let id = 0; id < count; id++) {
          const at = SIZE / 2 + 64 * id;
          if (id % 2) {
            await from.postSend({ op: 'faa', id, pieces: [[at, 8]], offset: counter, add: 5n });
            here.set(at, word(start + 5n * BigInt(id >> 1)));
          } else {
            // one packet each, so that a response has the PSN of its request
            const length = 1 + (id % 60);
            await from.postSend({ op: 'read', id, pieces: [[at, length]], offset: id });
            here.set(at, there.bytes.subarray(id, id + length));
          }
        }
        const atOnce = Math.min(depth, FIRST_WINDOW);
        await eventually(() => expect(mostAtOnce(ours, pair, asks)).toBeGreaterThanOrEqual(atOnce));
        Object.assign(gates, { canReceive: true, canSend: true });
        expect(await from.completions(count)).toMatchObject(
          Array.from({ length: count }, (_, id) => ({ id, status: DONE })),
        );
        there.set(counter, word(start + 5n * BigInt(count >> 1)));
        await here.check();
        await there.check();
        expect(mostAtOnce(ours, pair, asks)).toBeLessThanOrEqual(depth);
      });
    });
  });
});

const SIZE = 65_536;
/** Packets of our in-flight window before it has grown; rxe has none, and sends more. */
const FIRST_WINDOW = 32;
/** Number of the event PORT_ACTIVE. */
const PORT_ACTIVE = 9;
const REQUESTS = new Set<number>([Op.RDMA_READ_REQUEST, Op.COMPARE_SWAP, Op.FETCH_ADD]);
const ANSWERS = new Set<number>([Op.RDMA_READ_RESPONSE_ONLY, Op.ATOMIC_ACKNOWLEDGE]);

function word(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt.asUintN(64, value));
  return bytes;
}
