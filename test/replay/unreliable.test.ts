/**
 * Captured unreliable connections and datagrams, at both ends. The packets of one end go into the card and must reach
 * its application whole; given the same work requests, the card must send the same packets. Also the captured pingpong
 * over a shared receive queue, with all its queue pairs at once.
 */
import { expect, describe as group, test } from 'vitest';
import { WcFlag } from '../../src/index.js';
import { ipBytes } from '../../src/probe/packet/address.js';
import { type Decoded, decode, encode, OPCODES, Op, underived } from '../../src/probe/packet/packets.js';
import { createAh, gidOf, openPort, RigSrq } from '../kit/datagrams.js';
import { roceFrames } from '../kit/fixtures.js';
import { Rig, type RigQp } from '../kit/rig.js';

const UC_CAPTURES = ['uc_pingpong_64', 'uc_pingpong_4096', 'ib_send_lat_64_uc', 'ib_write_bw_uc_8192'];
const UD_CAPTURES = [
  ...['ud_pingpong_64', 'ud_pingpong_1024', 'ud_pingpong_v6_64', 'mtu9000_ud_pingpong_4096', 'ib_send_lat_64_ud'],
  'mckey',
  'udaddy',
  'ib_send_lat_R_ud_64',
];
const ROOM = 65536;
const GRH = 40;
/** QP1 belongs to the connection manager. */
const isUser = ({ bth }: Decoded): boolean => bth.destQp > 1;

/** The directions in a capture: all packets from one address to one queue pair. */
function directions(capture: string, kind: number): Decoded[][] {
  const found = new Map<string, Decoded[]>();
  for (const packet of roceFrames(capture).map(decode)) {
    if (packet.bth.opcode >> 5 !== kind || !isUser(packet)) continue;
    const key = `${packet.ip.src} ${packet.bth.destQp}`;
    found.set(key, [...(found.get(key) ?? []), packet]);
  }
  return [...found.values()];
}

const flags = (packet: Decoded): string => OPCODES.get(packet.bth.opcode)?.name ?? '';
const isFirst = (packet: Decoded): boolean => /FIRST|ONLY/.test(flags(packet));

/** Packets of a direction, message by message. */
function messages(packets: readonly Decoded[]): Decoded[][] {
  const all: Decoded[][] = [];
  for (const packet of packets) {
    if (isFirst(packet)) all.push([]);
    all.at(-1)?.push(packet);
  }
  return all;
}

const payloadOf = (message: readonly Decoded[]): Buffer => Buffer.concat(message.map(({ payload }) => payload));
const sizeOf = (packets: readonly Decoded[]): number => Math.max(...packets.map(({ payload }) => payload.length));
const mtuOf = (packets: readonly Decoded[]): number =>
  [256, 512, 1024, 2048, 4096].find((mtu) => mtu >= Math.max(1024, sizeOf(packets))) as number;

/** The ends of a direction as a connection needs them, seen from its receiver. */
function ends(packet: Decoded, isReceiver: boolean) {
  const [from, to] = [[...ipBytes(packet.ip.src)], [...ipBytes(packet.ip.dst)]];
  return isReceiver ? { localIp: to, remoteIp: from } : { localIp: from, remoteIp: to };
}

/** The packet, readdressed to this queue pair and this key. */
function readdressed(packet: Decoded, destQp: number, rkey = 0, va = 0n): Uint8Array {
  const plain = underived(packet);
  const reth = plain.reth && { ...plain.reth, rkey, va };
  return encode({ ...plain, bth: { ...plain.bth, destQp }, ...(reth && { reth }) });
}

/** The fields of a packet that the sender chose, not its program or its path. */
const essence = ({ bth, deth, reth, immdt, payload, padding }: Decoded) => ({
  opcode: bth.opcode,
  psn: bth.psn,
  solicited: bth.solicited,
  length: reth?.length,
  qkey: deth?.qkey,
  immdt,
  payload: Buffer.from(payload).toString('hex'),
  padding: padding.length,
});

async function card(): Promise<Rig> {
  return Rig.create(1, { memoryBytes: 32 * 2 ** 20, rxSlots: 1024, txSlots: 1024 });
}

function feed(rig: Rig, ...frames: readonly Uint8Array[]): Uint8Array[] {
  for (const bytes of frames) expect(rig.put(bytes)).toBe(true);
  rig.x.rx(0, frames.length);
  return rig.out(0);
}

group.each(UC_CAPTURES)('%s', (capture) => {
  const all = directions(capture, 1);

  test('a conversation was recorded', () => expect(all.length).toBeGreaterThan(0));

  test('as the responder', async () => {
    for (const packets of all) {
      const rig = await card();
      const first = packets[0] as Decoded;
      const region = rig.region(ROOM, 15, 0x1000n);
      const qp = rig.qp({ type: 'UC' });
      qp.connect({ destQpn: 9, sqPsn: 0, rqPsn: first.bth.psn, mtu: mtuOf(packets), ...ends(first, true) });
      for (const message of messages(packets)) {
        const isSend = flags(message[0] as Decoded).includes('SEND');
        if (isSend) expect(qp.recv(1, [region.piece(0, ROOM)])).toBe('OK');
        const frames = message.map((packet) => readdressed(packet, qp.qpn, region.rkey, region.iova));
        expect(feed(rig, ...frames)).toEqual([]);
        const whole = payloadOf(message);
        const wanted = isSend ? [{ status: 'SUCCESS', byteLen: whole.length }] : [];
        expect(qp.poll().map(({ status, byteLen }) => ({ status, byteLen }))).toEqual(wanted);
        expect(Buffer.compare(region.bytes.subarray(0, whole.length), whole)).toBe(0);
      }
      expect(Object.keys(qp.counters()).filter((name) => name.startsWith('drop_'))).toEqual([]);
    }
  });

  test('as the requester', async () => {
    for (const packets of all) {
      const rig = await card();
      const first = packets[0] as Decoded;
      const region = rig.region(ROOM);
      const qp = rig.qp({ type: 'UC' });
      const { psn } = first.bth;
      qp.connect({ destQpn: 9, sqPsn: psn, rqPsn: 0, mtu: mtuOf(packets), ...ends(first, false) });
      const sent: Decoded[] = [];
      for (const message of messages(packets)) {
        const whole = payloadOf(message);
        region.bytes.set(whole);
        const last = message.at(-1) as Decoded;
        const opcode = flags(last).includes('SEND') ? 'SEND' : 'RDMA_WRITE';
        const pieces = [region.piece(0, whole.length)];
        expect(qp.send({ opcode, pieces, remote: { va: 0, rkey: 0 }, solicited: last.bth.solicited })).toBe('OK');
        sent.push(...rig.out(0).map(decode));
        expect(qp.poll()).toMatchObject([{ status: 'SUCCESS', byteLen: whole.length }]);
      }
      expect(sent.map(essence)).toEqual(packets.map(essence));
    }
  });
});

group.each(UD_CAPTURES)('%s', (capture) => {
  const all = directions(capture, 3);
  const isGroup = ({ bth }: Decoded): boolean => bth.destQp === 0xffffff;

  test('a conversation was recorded', () => expect(all.length).toBeGreaterThan(0));

  test('as the receiver', async () => {
    for (const packets of all) {
      const rig = await card();
      const first = packets[0] as Decoded;
      openPort(rig, [first.ip.dst], 4096);
      const region = rig.region(ROOM);
      const qp = rig.qp({ type: 'UD' });
      qp.connect({ destQpn: 0, sqPsn: 0, rqPsn: 0, qkey: first.deth?.qkey as number });
      if (isGroup(first)) {
        rig.card.bytes.set(gidOf(first.ip.dst), rig.x.scratch());
        expect(rig.x.mcastAttach(qp.handle)).toBe(0);
      }
      for (const packet of packets) {
        expect(qp.recv(1, [region.piece(0, ROOM)])).toBe('OK');
        const bytes = readdressed(packet, isGroup(first) ? 0xffffff : qp.qpn);
        expect(feed(rig, bytes)).toEqual([]);
        const { payload, deth, immdt } = packet;
        const family = packet.ip.version === 6 ? WcFlag.IPV6 : 0;
        const flags = WcFlag.GRH | family | (immdt === undefined ? 0 : WcFlag.WITH_IMM);
        expect(qp.poll()).toMatchObject([
          { status: 'SUCCESS', byteLen: GRH + payload.length, srcQpn: deth?.srcQp, flags },
        ]);
        const header = packet.ip.version === 4 ? bytes.slice(14, 34) : bytes.slice(14, 54);
        expect(Buffer.compare(region.bytes.subarray(GRH - header.length, GRH), header)).toBe(0);
        expect(Buffer.compare(region.bytes.subarray(GRH, GRH + payload.length), payload)).toBe(0);
      }
    }
  });

  test('as the sender', async () => {
    for (const packets of all) {
      const rig = await card();
      const first = packets[0] as Decoded;
      openPort(rig, [first.ip.src], 4096);
      const region = rig.region(ROOM);
      const qp = rig.qp({ type: 'UD' });
      qp.connect({ destQpn: 0, sqPsn: first.bth.psn, rqPsn: 0, qkey: 1 });
      const to = { ah: createAh(qp, ends(first, false)), qpn: first.bth.destQp, qkey: first.deth?.qkey as number };
      for (const { payload, immdt, bth } of packets) {
        region.bytes.set(payload);
        const opcode = immdt === undefined ? 'SEND' : 'SEND_WITH_IMM';
        const imm = Buffer.alloc(4);
        imm.writeUInt32BE(immdt ?? 0);
        const pieces = [region.piece(0, payload.length)];
        const { solicited } = bth;
        expect(qp.send({ opcode, pieces, to, imm: imm.readUInt32LE(), solicited })).toBe('OK');
      }
      expect(rig.out(0).map(decode).map(essence)).toEqual(packets.map(essence));
    }
  });
});

group.each(['srq_pingpong_64', 'srq_pingpong_4096'])('%s', (capture) => {
  test('all queue pairs of one end take their receives from one queue', async () => {
    const all = roceFrames(capture).map(decode).filter(isUser);
    const { src, dst } = (all[0] as Decoded).ip;
    const requests = all.filter(({ ip, bth }) => ip.src === src && bth.opcode < Op.RDMA_READ_RESPONSE_FIRST);
    const rig = await card();
    const srq = new RigSrq(rig, 1024);
    const region = rig.region(ROOM);
    const qps = new Map<number, RigQp>();
    const cq = rig.x.cqCreate(1024);
    for (const packet of requests) {
      const { destQp, psn } = packet.bth;
      if (qps.has(destQp)) continue;
      const qp = rig.qp({ srq: srq.handle, cq });
      qp.connect({ destQpn: destQp, sqPsn: 0, rqPsn: psn, mtu: mtuOf(requests), ...ends(packet, true) });
      qps.set(destQp, qp);
    }
    expect(qps.size).toBeGreaterThan(3);
    const messageCount = requests.filter(isFirst).length;
    for (let i = 0; i < messageCount; i++) expect(srq.recv(i, [region.piece(0, 8192)])).toBe('OK');
    const answers = requests.flatMap((packet) =>
      feed(rig, readdressed(packet, (qps.get(packet.bth.destQp) as RigQp).qpn)).map(decode),
    );
    expect(answers.every(({ aeth }) => aeth?.syndrome === 0x1f)).toBe(true);
    const done = [...qps.values()][0]?.poll() ?? [];
    expect(done.map(({ status }) => status)).toEqual(Array(messageCount).fill('SUCCESS'));
    expect(new Set(done.map(({ wrId }) => wrId)).size).toBe(messageCount);
    expect(srq.filled).toBe(0);
    // as many ACKs as the peer sent
    const theirs = all.filter(({ ip, bth }) => ip.src === dst && bth.opcode === Op.ACKNOWLEDGE);
    expect(answers.length).toBe(theirs.length);
  });
});
