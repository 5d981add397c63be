// Congestion between our card and rxe, which is deaf to it: what the guest's kernel marks, and CNPs that somebody forges there.
import { networkInterfaces } from 'node:os';
import { describe, expect, test } from 'vitest';
import { WcStatus } from '../../src/index.js';
import { encode } from '../kit/encode.js';
import { CNP } from '../kit/opcodes.js';
import { OurDevice } from './card.js';
import { CARD, GUEST } from './guest/network.js';
import { Peer } from './guest/peer.js';
import { connectPair, Expected, FAMILIES, type Family } from './pair.js';
import { describeWithRxe } from './world.js';

/** What a switch may mark (RFC 3168). */
const ECT_0 = 2;
const SIZE = 65_536;
const DONE = WcStatus.SUCCESS;
/** Ten seconds, the most that there is: as good as never here (us). */
const LONG = 10_000_000;

/** A whole frame, as the host of rxe would send it if it knew congestion control. */
function cnpFrame(family: Family, destQp: number, wrong: { readonly icrc?: number } = {}): Uint8Array {
  const [src, dst] = family === 'IPv4' ? [GUEST.ipv4, CARD.ipv4] : [GUEST.ipv6, CARD.ipv6];
  return encode({
    eth: { dst: networkInterfaces()[CARD.interface]?.[0]?.mac as string, src: '52:54:00:77:00:03' },
    ip:
      family === 'IPv4'
        ? { version: 4, tos: 0xc2, id: 0x718c, fragment: 0x4000, ttl: 64, src, dst }
        : { version: 6, trafficClass: 0xc2, flowLabel: 0, hopLimit: 64, src, dst },
    udp: { sport: 0xc123, dport: 4791, checksum: 0 },
    bth: {
      ...{ opcode: CNP, solicited: false, migReq: false, version: 0, pkey: 0xffff },
      ...{ fecn: false, becn: true, destQp, ackReq: false, psn: 0 },
    },
    payload: new Uint8Array(16),
    ...wrong,
  });
}

describeWithRxe('congestion with rxe', 9000, (world) => {
  describe.each([
    ['packet', 'IPv4'],
    ['udp', 'IPv6'],
  ] as const)('link %s, %s', (link, family) => {
    test.each(['write', 'read'] as const)('what a queue of the kernel marks we answer by CNPs: %s', async (op) => {
      await using ours = await OurDevice.open(link, { tap: true });
      await using peer = await Peer.start(world.guest, FAMILIES[family].gid);
      await using pair = await connectPair({ ours, peer, family }, { size: SIZE, trafficClass: ECT_0 });
      const { card, rxe } = pair;
      const [from, to] = op === 'write' ? [rxe, card] : [card, rxe];
      const source = await Expected.fill(rxe, 5);
      // with `ecn` netem marks what it would lose
      await world.guest.run('tc qdisc add dev eth0 root netem limit 10000 loss 30% ecn');
      try {
        await from.postSend({ op, id: 1, pieces: [[0, SIZE]], offset: 0 });
        expect(await from.completions(1)).toMatchObject([{ id: 1, status: DONE }]);
      } finally {
        await world.guest.run('tc qdisc del dev eth0 root');
      }
      expect(await card.crc()).toBe(await rxe.crc());
      await source.check();
      const { np_ecn_marked_roce_packets: marked, np_cnp_sent: sent } = card.qp.counters();
      expect(marked).toBeGreaterThan(3);
      expect(marked).toBeLessThan(60);
      expect(sent).toBeGreaterThan(0);
      const cnps = ours.tap?.frames(rxe.qp.qpn).filter(({ bth }) => bth.opcode === CNP) ?? [];
      expect(cnps).toHaveLength(sent as number);
      expect(cnps[0]).toMatchObject({ direction: 'out', bth: { becn: true } });
      expect([await from.state(), await to.state()]).toEqual([3, 3]);
    });

    test('CNPs from the guest slow our flow to rxe down, and it recovers', async () => {
      await using ours = await OurDevice.open(link);
      const { congestion } = ours.device;
      // no growth but when the test wants it
      congestion.modify({ lineRate: 100e6, leastRate: 1e6, rateInterval: LONG, alphaInterval: LONG });
      await using peer = await Peer.start(world.guest, FAMILIES[family].gid);
      await using pair = await connectPair({ ours, peer, family }, { size: SIZE });
      const { card, rxe } = pair;
      const [here, there] = [await Expected.fill(card, 1), await Expected.fill(rxe, 2)];
      const rate = () => card.qp.query().progress.rate;
      const handled = () => card.qp.counters().rp_cnp_handled;
      const write = async () => {
        const start = performance.now();
        await card.postSend({ op: 'write', id: 7, pieces: [[0, SIZE]], offset: 0 });
        expect(await card.completions(1)).toMatchObject([{ id: 7, status: DONE }]);
        return performance.now() - start;
      };
      await write();
      expect(rate()).toBeUndefined();

      // for nobody, and damaged: no matter
      await peer.frame(cnpFrame(family, card.qp.qpNum ^ 0x1000));
      await peer.frame(cnpFrame(family, card.qp.qpNum, { icrc: 0x12345678 }));
      const drops = () => [ours.device.counters().drop_qpn, ours.device.counters().drop_icrc];
      await expect.poll(drops, { timeout: 10_000 }).toEqual([1, 1]);
      expect([handled(), rate()]).toEqual([0, undefined]);

      for (let i = 1; i <= 6; i++) {
        await peer.frame(cnpFrame(family, card.qp.qpNum));
        await expect.poll(handled, { timeout: 10_000 }).toBe(i);
        expect(rate()).toBe(Math.floor(100e3 / 2 ** i) * 1000);
      }
      // 63 packets of 1 KiB behind the first at 1.5 Mbit/s
      expect(await write()).toBeGreaterThan(300);
      there.set(0, here.bytes);
      await there.check();

      // one more, and then it is left alone: half the way back a few times, then above that in steps
      congestion.modify({ rateInterval: 100 });
      await peer.frame(cnpFrame(family, card.qp.qpNum));
      await expect.poll(() => [handled(), rate()], { timeout: 10_000 }).toEqual([7, undefined]);
      await write();
      expect(ours.device.counters().retry_exceeded_err).toBe(0);
    });
  });
});
