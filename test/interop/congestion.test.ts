// Congestion control with rxe, which has none: packets that the guest's kernel marks, and CNPs that the test sends from
// the guest.
import { networkInterfaces } from 'node:os';
import { describe, expect, test } from 'vitest';
import { WcStatus } from '../../src/index.js';
import { encode } from '../../src/probe/packet/encode.js';
import { CNP } from '../../src/probe/packet/opcodes.js';
import { eventually } from '../kit/eventually.js';
import { OurDevice } from './card.js';
import { describeWithRxe } from './environment.js';
import { CARD, GUEST } from './guest/network.js';
import { Peer } from './guest/peer.js';
import { connectPair, Expected, FAMILIES, type Family } from './pair.js';

/** The ECN codepoint of packets that a switch may mark (RFC 3168). */
const ECT_0 = 2;
const SIZE = 65_536;
const DONE = WcStatus.SUCCESS;
/** Ten seconds in us, the maximum: longer than the test. */
const LONG = 10_000_000;

/** Returns a CNP as the host of rxe would send it if rxe supported congestion control. */
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

describeWithRxe('congestion with rxe', 9000, (environment) => {
  describe.each([
    ['packet', 'IPv4'],
    ['udp', 'IPv6'],
  ] as const)('link %s, %s', (link, family) => {
    test.each(['write', 'read'] as const)(
      'packets that a queue of the kernel marks are answered by CNPs: %s',
      async (op) => {
        await using ours = await OurDevice.open(link, { tap: true });
        await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
        await using pair = await connectPair({ ours, peer, family }, { size: SIZE, trafficClass: ECT_0 });
        const { card, rxe } = pair;
        const [from, to] = op === 'write' ? [rxe, card] : [card, rxe];
        const source = await Expected.fill(rxe, 5);
        // with `ecn` netem marks packets instead of dropping them
        await environment.guest.run('tc qdisc add dev eth0 root netem limit 10000 loss 30% ecn');
        try {
          await from.postSend({ op, id: 1, pieces: [[0, SIZE]], offset: 0 });
          expect(await from.completions(1)).toMatchObject([{ id: 1, status: DONE }]);
        } finally {
          await environment.guest.run('tc qdisc del dev eth0 root');
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
      },
    );

    test('CNPs from the guest slow our flow to rxe down, and it recovers', async () => {
      await using ours = await OurDevice.open(link);
      const { congestion } = ours.device;
      // the rate increases only when the test changes the interval
      congestion.modify({ lineRate: 100e6, minRate: 1e6, rateInterval: LONG, alphaInterval: LONG });
      await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
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

      // a CNP for an unknown queue pair and a corrupted one have no effect
      await peer.frame(cnpFrame(family, card.qp.qpNum ^ 0x1000));
      await peer.frame(cnpFrame(family, card.qp.qpNum, { icrc: 0x12345678 }));
      const drops = () => [ours.device.counters().drop_qpn, ours.device.counters().drop_icrc];
      await eventually(() => expect(drops()).toEqual([1, 1]));
      expect([handled(), rate()]).toEqual([0, undefined]);

      // A packet is in flight as long as the peer has no receive for it; without one, CNPs have no effect. The rate may
      // hold it back for a while: the RNR NAK tells that it has left.
      const begin = async () => {
        const refused = card.qp.counters().rcvd_rnr_err as number;
        await card.postSend({ op: 'send', id: 8, pieces: [[0, 3]] });
        await eventually(() => expect(card.qp.counters().rcvd_rnr_err).toBeGreaterThan(refused));
      };
      const finish = async () => {
        await rxe.postRecv([[0, 3]]);
        expect(await rxe.completions(1)).toMatchObject([{ status: DONE }]);
        expect(await card.completions(1)).toMatchObject([{ id: 8, status: DONE }]);
      };
      await begin();
      for (let i = 1; i <= 6; i++) {
        await peer.frame(cnpFrame(family, card.qp.qpNum));
        await eventually(() => expect(handled()).toBe(i));
        expect(rate()).toBe(Math.floor(100e3 / 2 ** i) * 1000);
      }
      await finish();
      // 63 packets of 1 KiB after the first one, at 1.5 Mbit/s
      expect(await write()).toBeGreaterThan(300);
      there.set(0, here.bytes);
      await there.check();

      // one more CNP, then recovery: a few times half the distance to the target rate, then increases above it in steps
      congestion.modify({ rateInterval: 100, alphaInterval: 1 });
      await begin();
      await peer.frame(cnpFrame(family, card.qp.qpNum));
      await eventually(() => expect(handled()).toBe(7));
      // while a packet is in flight that the rate does not hold back, the rate stays
      await finish();
      await eventually(() => expect(rate()).toBeUndefined());
      await write();
      expect(ours.device.counters().retry_exceeded_err).toBe(0);
    });
  });
});
