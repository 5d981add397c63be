// Unreliable connections, datagrams and groups with rxe in both directions, and congestion marks, which rxe ignores.
import { expect, test } from 'vitest';
import { gidToHex } from '../../src/base/gid.js';
import { type Mr, MULTICAST_QPN, type Qp, readGrh, type Wc, WcOpcode } from '../../src/index.js';
import { type LinkKind, OurDevice } from './card.js';
import type { Completion, End, Piece } from './end.js';
import { describeLinks, describeWithRxe, matrix, testOfRxe, xdpRows } from './environment.js';
import { CARD } from './guest/network.js';
import { Peer, type PeerMr, type PeerQp, patternBytes } from './guest/peer.js';
import { connectPair, Expected, FAMILIES, type Family } from './pair.js';

const QKEY = 0x1234567;
const SLOT = 8192;
const SLOTS = 88;
const GRH = 40;
/** The ECN codepoint of packets that a switch may mark (RFC 3168). */
const ECT_0 = 2;
const WAIT = { timeout: 20_000 };

/** One queue pair of each end, with a region of slots. */
class Both implements AsyncDisposable {
  static async open(type: 'UC' | 'UD', link: LinkKind, family: Family, peer: Peer, faults?: object): Promise<Both> {
    const ours = await OurDevice.open(link, { tap: true, ...(faults && { faults }) });
    const pd = await ours.device.allocPd();
    const cq = await ours.device.createCq({ cqe: 256 });
    const mr = await pd.regMr(SLOT * SLOTS);
    const qp = await pd.createQp({ type, sendCq: cq });
    const theirMr = await peer.reg(SLOT * SLOTS);
    const theirs = await peer.qp({ type: type === 'UC' ? 'uc' : 'ud', qkey: QKEY });
    const both = new Both(ours, qp, mr, peer, theirs, theirMr, family);
    if (type === 'UC') {
      const { gid, psn } = qp.endpoint(FAMILIES[family].guest);
      await theirs.connect({ dqpn: qp.qpNum, dpsn: psn, dgid: gidToHex(gid), mtu: 1024, tclass: ECT_0 });
      await qp.connect({ qpNum: theirs.qpn, psn: theirs.psn, gid: peer.gid }, { pathMtu: 1024 });
    } else {
      await theirs.activate();
      await qp.activate({ qkey: QKEY });
    }
    return both;
  }

  private constructor(
    readonly ours: OurDevice,
    readonly qp: Qp,
    readonly mr: Mr,
    readonly peer: Peer,
    readonly theirs: PeerQp,
    readonly theirMr: PeerMr,
    readonly family: Family,
  ) {}

  get ourGid(): string {
    return gidToHex(this.qp.endpoint(FAMILIES[this.family].guest).gid);
  }

  next(): Promise<Wc> {
    return this.qp.sendCq.next(WAIT);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.ours[Symbol.asyncDispose]();
  }
}

/** Returns a different message for each number, with the number in the first byte. */
function message(number: number, length: number): Buffer {
  const bytes = Buffer.from(patternBytes(length, 100 + number));
  if (length > 0) bytes[0] = number;
  return bytes;
}

const LENGTHS = [0, 1, 2, 3, 5, 63, 1021, 1023, 1024, 2047, 4095, 4096];

describeWithRxe('unreliable transports with rxe', 9000, (environment) => {
  describeLinks([...matrix(['']), ...xdpRows('', '')], 'link %s, %s%s', ([link, family]) => {
    test('our datagrams of every odd length arrive, with and without immediate', async () => {
      await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
      await using both = await Both.open('UD', link, family, peer);
      const { qp, mr, theirs, theirMr } = both;
      const ah = await qp.pd.createAh({ grh: { dgid: peer.gid } });
      for (const [i, length] of LENGTHS.entries()) {
        await theirs.postRecv([{ mr: theirMr, off: i * SLOT, len: SLOT }], i);
        mr.buffer.set(message(i, length), i * SLOT);
        const to = { ah, remoteQpn: theirs.qpn, remoteQkey: QKEY, sgList: mr.sge(i * SLOT, length) };
        qp.postSend(i % 2 ? { opcode: 'SEND_WITH_IMM', immData: 0xabc0 + i, ...to } : { opcode: 'SEND', ...to });
        expect(await both.next()).toMatchObject({ ok: true });
      }
      const found = await theirs.poll(LENGTHS.length);
      expect(found).toMatchObject(
        LENGTHS.map((length, id) => ({
          ...{ id, status: 0, byteLen: GRH + length, srcQp: qp.qpNum, imm: id % 2 ? 0xabc0 + id : 0 },
        })),
      );
      for (const [i, length] of LENGTHS.entries())
        expect(await peer.read(theirMr, i * SLOT + GRH, length)).toEqual(message(i, length));
    });

    test('datagrams of rxe arrive, with the GRH in front', async () => {
      await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
      await using both = await Both.open('UD', link, family, peer);
      const { qp, mr, theirs, theirMr } = both;
      const ah = await peer.ah(both.ourGid);
      for (const [i, length] of LENGTHS.entries()) {
        qp.postRecv({ wrId: i, sgList: mr.sge(i * SLOT, SLOT) });
        await peer.write(theirMr, i * SLOT, message(i, length));
        const to = { ah, dqpn: qp.qpNum, qkey: QKEY, sge: [{ mr: theirMr, off: i * SLOT, len: length }] };
        await theirs.postSend(i % 2 ? { op: 'send_imm', imm: 0xabc0 + i, ...to } : { op: 'send', ...to });
        const wc = await both.next();
        expect(wc).toMatchObject({ ok: true, wrId: i, byteLen: GRH + length, srcQp: theirs.qpn, hasImm: i % 2 === 1 });
        if (wc.hasImm) expect(wc.immData).toBe(0xabc0 + i);
        const at = i * SLOT;
        expect(readGrh(mr.buffer.subarray(at, at + GRH))).toMatchObject({
          source: FAMILIES[family].guest,
          destination: family === 'IPv4' ? CARD.ipv4 : CARD.ipv6,
        });
        expect(Buffer.from(mr.buffer.subarray(at + GRH, at + GRH + length))).toEqual(message(i, length));
      }
      // the address handle for the answer comes from the completion alone
      const wc = await roundTrip(both, await peer.ah(both.ourGid));
      const back = await qp.pd.createAhFromWc(wc, mr.buffer.subarray(0, GRH));
      await theirs.postRecv([{ mr: theirMr, off: 0, len: SLOT }], 77);
      qp.postSend({ opcode: 'SEND', sgList: Buffer.from('back'), ah: back, remoteQpn: wc.srcQp, remoteQkey: QKEY });
      // rxe may complete the last SEND later than the receive
      const received = (await theirs.poll(LENGTHS.length + 2, 2000)).find(({ id }) => id === 77);
      expect(received).toMatchObject({ byteLen: GRH + 4 });
    });

    test('a datagram with a wrong Q_Key is dropped, at both ends', async () => {
      await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
      await using both = await Both.open('UD', link, family, peer);
      const { qp, mr, theirs, theirMr } = both;
      qp.postRecv({ wrId: 1, sgList: mr.sge(0, SLOT) });
      await theirs.postRecv([{ mr: theirMr, off: 0, len: SLOT }], 1);
      const ah = await qp.pd.createAh({ grh: { dgid: peer.gid } });
      const theirAh = await peer.ah(both.ourGid);
      for (const [qkey, length] of [
        [QKEY + 1, 10],
        [QKEY, 20],
      ] as const) {
        qp.postSend({ opcode: 'SEND', sgList: mr.sge(SLOT, length), ah, remoteQpn: theirs.qpn, remoteQkey: qkey });
        const sge = [{ mr: theirMr, off: SLOT, len: length }];
        await theirs.postSend({ op: 'send', id: 9, ah: theirAh, dqpn: qp.qpNum, qkey, sge });
      }
      const ours = [await both.next(), await both.next(), await both.next()].filter(({ wrId }) => wrId === 1);
      expect(ours).toMatchObject([{ ok: true, byteLen: GRH + 20 }]);
      expect((await theirs.poll(3)).filter(({ id }) => id === 1)).toMatchObject([{ status: 0, byteLen: GRH + 20 }]);
      expect(qp.counters().drop_qkey).toBe(1);
    });

    // rxe alone receives no group: it sets the MAC filter of IPv6 groups for IPv4 groups as well (33:33 and the last
    // four bytes instead of 01:00:5e), and does not join the group at the IP level, where the kernel drops packets of
    // groups that nobody has joined. So the guest joins, as its rdma_cm would.
    test('both ends receive datagrams to a group', async () => {
      const group = family === 'IPv4' ? '239.200.1.2' : 'ff15::beef:1';
      const gid = family === 'IPv4' ? '00000000000000000000ffffefc80102' : 'ff1500000000000000000000beef0001';
      if (family === 'IPv4') await environment.guest.run('ip route replace 224.0.0.0/4 dev eth0');
      await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
      await using both = await Both.open('UD', link, family, peer);
      const { qp, mr, theirs, theirMr } = both;
      await qp.attachMcast(group);
      await theirs.attach(gid);
      for (let i = 0; i < 2; i++) {
        qp.postRecv({ wrId: 50 + i, sgList: mr.sge(i * SLOT, SLOT) });
        await theirs.postRecv([{ mr: theirMr, off: i * SLOT, len: SLOT }], 50 + i);
      }
      const ah = await qp.pd.createAh({ grh: { dgid: group } });
      mr.buffer.set(message(1, 100), 4 * SLOT);
      const to = { ah, remoteQpn: MULTICAST_QPN, remoteQkey: QKEY };
      qp.postSend({ opcode: 'SEND', sgList: mr.sge(4 * SLOT, 100), ...to });
      expect((await theirs.poll(1)).at(0)).toMatchObject({ id: 50, status: 0, byteLen: GRH + 100, srcQp: qp.qpNum });
      expect(await peer.read(theirMr, GRH, 100)).toEqual(message(1, 100));

      await peer.write(theirMr, 4 * SLOT, message(2, 200));
      await theirs.postSend({
        ...{ op: 'send', id: 9, ah: await peer.ah(gid), dqpn: MULTICAST_QPN, qkey: QKEY },
        sge: [{ mr: theirMr, off: 4 * SLOT, len: 200 }],
      });
      const heard: Wc[] = [];
      while (!heard.some(({ srcQp, wrId }) => wrId >= 50 && srcQp === theirs.qpn)) heard.push(await both.next());
      const wc = heard.at(-1) as Wc;
      expect(wc).toMatchObject({ ok: true, byteLen: GRH + 200 });
      const at = (wc.wrId - 50) * SLOT;
      expect(readGrh(mr.buffer.subarray(at, at + GRH)).destination).toBe(group);
      expect(Buffer.from(mr.buffer.subarray(at + GRH, at + GRH + 200))).toEqual(message(2, 200));
    });

    const joins = 'the library joins the group by IP itself';
    testOfRxe('a group that rxe has attached without joining it by IP receives nothing at rxe', joins, async () => {
      const [group, gid] =
        family === 'IPv4'
          ? ['239.200.1.3', '00000000000000000000ffffefc80103']
          : ['ff15::beef:3', 'ff1500000000000000000000beef0003'];
      await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
      await using both = await Both.open('UD', link, family, peer);
      const { qp, mr, theirs, theirMr } = both;
      await theirs.attach(gid, 0);
      await theirs.postRecv([{ mr: theirMr, off: 0, len: SLOT }], 1);
      const ah = await qp.pd.createAh({ grh: { dgid: group } });
      const to = { ah, remoteQpn: MULTICAST_QPN, remoteQkey: QKEY };
      qp.postSend({ opcode: 'SEND', sgList: mr.sge(0, 100), ...to });
      expect(await theirs.poll(1, 500)).toEqual([]);
    });

    test.each(['our card', 'rxe'] as const)(
      'UC, %s requests: WRITE and SEND of all lengths, with and without immediate, past PSN 2^24',
      async (asks) => {
        await using ours = await OurDevice.open(link);
        await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
        await using pair = await connectPair({ ours, peer, family }, { type: 'UC', psn: 0xfffff8, size: 2 ** 18 });
        const [from, to]: [End, End] = asks === 'our card' ? [pair.card, pair.rxe] : [pair.rxe, pair.card];
        const [here, there] = [await Expected.fill(from, 1), await Expected.fill(to, 2)];
        const expected: Completion[] = [];
        let [id, at] = [0, 0];
        for (const length of [0, 1, 3, 1023, 1024, 1025, 4097, 9001])
          for (const op of ['write', 'write_imm', 'send', 'send_imm'] as const) {
            const isWrite = op.startsWith('write');
            const hasImm = op.endsWith('imm');
            const pieces: Piece[] = length > 0 ? [[100 + id, length]] : [];
            if (op !== 'write') {
              const opcode = isWrite ? WcOpcode.RECV_RDMA_WITH_IMM : WcOpcode.RECV;
              await to.postRecv(isWrite || length === 0 ? [] : [[at, length]], id);
              expected.push({ id, status: 0, opcode, byteLen: length, ...(hasImm && { imm: 0xfe00 + id }) });
            }
            await from.postSend({
              op,
              id,
              pieces,
              ...(isWrite && { offset: at }),
              ...(hasImm && { imm: 0xfe00 + id }),
            });
            there.set(at, here.bytes.subarray(100 + id, 100 + id + length));
            at += length;
            id++;
          }
        // gather and scatter with 32 pieces
        const pieces: Piece[] = Array.from({ length: 32 }, (_, i) => [200_000 + 100 * i, 3 * i]);
        const bytes = Buffer.concat(pieces.map(([start, length]) => here.bytes.subarray(start, start + length)));
        await to.postRecv(pieces, id);
        await from.postSend({ op: 'send', id, pieces });
        for (const [start, length] of pieces) there.set(start, here.bytes.subarray(start, start + length));
        expected.push({ id, status: 0, opcode: WcOpcode.RECV, byteLen: bytes.length });
        expect(await from.completions(id + 1)).toMatchObject(
          Array.from({ length: id + 1 }, (_, i) => ({ id: i, status: 0 })),
        );
        expect(await to.completions(expected.length)).toEqual(expected);
        await here.check();
        await there.check();
      },
    );

    test('UC with loss in both directions: messages arrive whole or not at all, in order', async () => {
      const COUNT = 40;
      const LENGTH = 3001;
      await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
      await using both = await Both.open('UC', link, family, peer, { seed: 4, both: { drop: 0.1 } });
      const { qp, mr, theirs, theirMr } = both;
      for (let i = 0; i < COUNT; i++) {
        await theirs.postRecv([{ mr: theirMr, off: i * SLOT, len: SLOT }], 100 + i);
        qp.postRecv({ wrId: 100 + i, sgList: mr.sge(i * SLOT, SLOT) });
      }
      for (let i = 0; i < COUNT; i++) {
        // no source is overwritten: rxe may send long after it was asked
        const source = (COUNT + i) * SLOT;
        mr.buffer.set(message(i, LENGTH), source);
        qp.postSend({ opcode: 'SEND', wrId: i, sgList: mr.sge(source, LENGTH) });
        await peer.write(theirMr, source, message(i, LENGTH));
        await theirs.postSend({ op: 'send', id: i, sge: [{ mr: theirMr, off: source, len: LENGTH }] });
        while (!(await sentOf(both, i)));
      }
      const theirWcs = (await theirs.poll(2 * COUNT, 2000)).filter(({ id }) => id >= 100);
      await check(
        'rxe',
        theirWcs.map(({ id, status, byteLen }) => ({ slot: id - 100, ok: status === 0, byteLen })),
        (slot) => peer.read(theirMr, slot * SLOT, LENGTH),
      );
      const ours = received.splice(0);
      await check(
        'our card',
        ours.map(({ wrId, ok, byteLen }) => ({ slot: wrId - 100, ok, byteLen })),
        async (slot) => Buffer.from(mr.buffer.subarray(slot * SLOT, slot * SLOT + LENGTH)),
      );

      async function check(
        who: string,
        found: readonly { slot: number; ok: boolean; byteLen: number }[],
        bytes: (slot: number) => Promise<Buffer>,
      ): Promise<void> {
        expect(found.length).toBeGreaterThan(5);
        expect(found.length).toBeLessThan(COUNT);
        let last = -1;
        for (const { slot, ok, byteLen } of found) {
          expect({ ok, byteLen }).toEqual({ ok: true, byteLen: LENGTH });
          const found = await bytes(slot);
          const number = found[0] as number;
          expect(number, who).toBeGreaterThan(last);
          const wrong = message(number, LENGTH).findIndex((byte, at) => byte !== found[at]);
          expect(wrong, `${who}: message ${number} in slot ${slot} after ${last}`).toBe(-1);
          last = number;
        }
      }
    });

    const noNetem = 'the kernel of this host may have no netem';
    testOfRxe('packets that a queue of the kernel marks are answered by CNPs', noNetem, async () => {
      await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
      await using both = await Both.open('UC', link, family, peer);
      const { qp, mr, theirs, theirMr } = both;
      // with `ecn` netem marks packets instead of dropping them
      await environment.guest.run('tc qdisc add dev eth0 root netem limit 10000 loss 30% ecn');
      try {
        for (let i = 0; i < 20; i++) {
          qp.postRecv({ wrId: i, sgList: mr.sge(i * SLOT, SLOT) });
          await theirs.postSend({ op: 'send', id: i, sge: [{ mr: theirMr, off: 0, len: SLOT }] });
          expect(await both.next()).toMatchObject({ ok: true, byteLen: SLOT });
        }
      } finally {
        await environment.guest.run('tc qdisc del dev eth0 root');
      }
      const { np_ecn_marked_roce_packets: marked, np_cnp_sent: sent } = qp.counters();
      expect(marked).toBeGreaterThan(20);
      expect(marked).toBeLessThan(100);
      expect(sent).toBeGreaterThan(0);
    });

    test('marked packets to us are answered by CNPs, which rxe ignores', async () => {
      await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
      await using both = await Both.open('UC', link, family, peer, { seed: 4, rx: { ecn: 1 } });
      const { qp, mr, theirs, theirMr } = both;
      for (let i = 0; i < 20; i++) {
        qp.postRecv({ wrId: i, sgList: mr.sge(i * SLOT, SLOT) });
        await theirs.postSend({ op: 'send', id: i, sge: [{ mr: theirMr, off: 0, len: SLOT }] });
        expect(await both.next()).toMatchObject({ ok: true, byteLen: SLOT });
      }
      const { np_ecn_marked_roce_packets: marked, np_cnp_sent: sent } = qp.counters();
      expect(marked).toBeGreaterThanOrEqual(160);
      expect(sent).toBeGreaterThan(0);
      const cnps = both.ours.tap?.frames(qp.qpNum, theirs.qpn).filter(({ bth }) => bth.opcode === 0x81) ?? [];
      expect(cnps.length).toBe(sent);
      expect(cnps[0]).toMatchObject({ direction: 'out', bth: { destQp: theirs.qpn, becn: true } });
      expect((await theirs.state()).state).toBe(3);
    });
  });
});

/** Receive completions that arrived while the test waited for a send completion. */
const received: Wc[] = [];

async function sentOf(both: Both, id: number): Promise<boolean> {
  const wc = await both.next();
  if (wc.wrId < 100) return wc.wrId === id;
  received.push(wc);
  return false;
}

/** Receives one datagram of rxe in our first slot. @returns its completion */
async function roundTrip(both: Both, ah: number): Promise<Wc> {
  const { qp, mr, theirs, theirMr } = both;
  qp.postRecv({ wrId: 60, sgList: mr.sge(0, SLOT) });
  await theirs.postSend({ op: 'send', ah, dqpn: qp.qpNum, qkey: QKEY, sge: [{ mr: theirMr, off: 0, len: 7 }] });
  return both.next();
}
