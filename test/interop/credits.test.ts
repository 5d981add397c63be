// End-to-end credits with rxe, which does not support them: it advertises no limit and ignores ours.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WcStatus } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { OurDevice } from './card.js';
import { describeWithRxe } from './environment.js';
import { Peer } from './guest/peer.js';
import { connectPair, Expected, FAMILIES, type Pair } from './pair.js';

const COUNT = 40;
const SLOT = 1500;
const NO_LIMIT = 31;
const RNR = 0x20;
const RNR_CODE = 12;
/** 163.84 ms: the update leaves before rxe's repetition can take the receive that the update tells of. */
const LONG_RNR_CODE = 28;
const ACKNOWLEDGE = 0x11;
const DONE = { status: WcStatus.SUCCESS };

describeWithRxe('credits with rxe', 9000, (environment) => {
  describe.each([
    ['packet', 'IPv4'],
    ['udp', 'IPv6'],
  ] as const)('link %s, %s', (link, family) => {
    let ours: OurDevice;
    let peer: Peer;
    beforeAll(async () => {
      ours = await OurDevice.open(link, { tap: true });
      peer = await Peer.start(environment.guest, FAMILIES[family].gid);
    });
    afterAll(async () => {
      await peer?.close();
      await ours?.[Symbol.asyncDispose]();
    });

    const connected = (minRnr = RNR_CODE) =>
      connectPair({ ours, peer, family }, { minRnr }, { card: { flowControl: true } });

    /** Returns our ACKs: PSN and credit code, or the syndrome of an RNR NAK. */
    const said = ({ card, rxe }: Pair) =>
      (ours.tap?.frames(card.qp.qpNum, rxe.qp.qpn) ?? [])
        .filter(({ direction, bth }) => direction === 'out' && bth.opcode === ACKNOWLEDGE)
        .map(({ bth, aeth }) => ({ psn: bth.psn, syndrome: aeth?.syndrome as number }));

    test('our card requests: the first message waits for an ACK, the others do not', async () => {
      await using pair = await connected();
      const { card, rxe } = pair;
      const [here, there] = [await Expected.fill(card, 1), await Expected.fill(rxe, 2)];
      for (let id = 0; id < COUNT; id++) await rxe.postRecv([[id * SLOT, SLOT]], id);
      for (let id = 0; id < COUNT; id++) {
        const [offset, length] = [id * 7, 1 + id * 37];
        await card.postSend({ op: id % 3 ? 'send' : 'send_imm', id, imm: id, pieces: [[offset, length]] });
        there.set(id * SLOT, here.bytes.subarray(offset, offset + length));
      }
      expect(await card.completions(COUNT)).toMatchObject(Array.from({ length: COUNT }, (_, id) => ({ id, ...DONE })));
      expect(await rxe.completions(COUNT)).toMatchObject(Array.from({ length: COUNT }, (_, id) => ({ id, ...DONE })));
      expect(card.qp.counters().rc_crwaits).toBeLessThanOrEqual(1);
      expect(card.qp.query().progress).not.toHaveProperty('credits');
      await here.check();
      await there.check();
    });

    test('our card requests, and rxe has no receive: an RNR NAK as before, and one packet of the message alone', async () => {
      await using pair = await connected();
      const { card, rxe } = pair;
      await card.fill(1);
      await card.postSend({ op: 'send', id: 1, pieces: [[0, 2500]] });
      const naks = () => ours.tap?.naks(card.qp.qpNum, rxe.qp.qpn);
      await eventually(() => expect(naks()).toContain(RNR | RNR_CODE));
      await rxe.postRecv([[7, 3000]], 2);
      expect(await card.completions(1)).toMatchObject([{ id: 1, ...DONE }]);
      expect(await rxe.completions(1)).toMatchObject([{ id: 2, ...DONE, byteLen: 2500 }]);
      expect(await rxe.get(7, 2500)).toEqual(await card.get(0, 2500));
      // there are no packets in flight after the refused one, for which rxe would send "sequence error"
      expect(new Set(naks())).toEqual(new Set([RNR | RNR_CODE]));
    });

    test('rxe requests: it is told of every receive, and goes on as before', async () => {
      await using pair = await connected(LONG_RNR_CODE);
      const { card, rxe } = pair;
      const [here, there] = [await Expected.fill(card, 3), await Expected.fill(rxe, 4)];
      for (let id = 0; id < 4; id++) await card.postRecv([[id * SLOT, SLOT]], id);
      for (let id = 0; id < 4; id++) {
        await rxe.postSend({ op: 'send', id, pieces: [[id, 700]] });
        expect(await rxe.completions(1)).toMatchObject([{ id, ...DONE }]);
        here.set(id * SLOT, there.bytes.subarray(id, id + 700));
      }
      expect(await card.completions(4)).toMatchObject([0, 1, 2, 3].map((id) => ({ id, ...DONE })));
      const { psn } = rxe.introduction;
      expect(said(pair)).toEqual([3, 2, 1, 0].map((syndrome, i) => ({ psn: (psn + i) & 0xffffff, syndrome })));
      // no credits left: rxe does not wait and gets an RNR NAK, then an unsolicited credit update for the next receive
      await rxe.postSend({ op: 'send', id: 9, pieces: [[50, 600]] });
      await eventually(() => expect(said(pair).length).toBeGreaterThan(4));
      await card.postRecv([[5 * SLOT, SLOT]], 9);
      here.set(5 * SLOT, there.bytes.subarray(50, 650));
      expect(await rxe.completions(1)).toMatchObject([{ id: 9, ...DONE }]);
      expect(await card.completions(1)).toMatchObject([{ id: 9, ...DONE }]);
      const later = said(pair).slice(4);
      const news = later.filter(({ syndrome }) => syndrome < NO_LIMIT);
      expect(later[0]).toEqual({ psn: (psn + 4) & 0xffffff, syndrome: RNR | LONG_RNR_CODE });
      expect(news).toEqual([
        { psn: (psn + 3) & 0xffffff, syndrome: 1 },
        { psn: (psn + 4) & 0xffffff, syndrome: 0 },
      ]);
      await here.check();
      await there.check();
    });
  });
});
