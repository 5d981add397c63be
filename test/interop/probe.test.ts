// Every check against rxe: its known deviations, and nothing else.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { gidToHex } from '../../src/base/gid.js';
import { LinkTarget, type PeerService, type RequesterService, type ScriptedEnd } from '../../src/cli/probe/target.js';
import { type Device, openDevice } from '../../src/index.js';
import { PacketLink } from '../../src/link/packet.js';
import { decodeRoce, underived } from '../../src/probe/packet/decode.js';
import { encode } from '../../src/probe/packet/encode.js';
import { CHECKS, type Frame, ScriptedLink, type TrafficRequest } from '../../src/probe.js';
import { Path, type PathOptions } from '../probe/checks/path.js';
import { describeWithRxe } from './environment.js';
import { CARD, GUEST } from './guest/network.js';
import { Peer, type PeerMr, type PeerQp } from './guest/peer.js';
import { difference, findings } from './probe-findings.js';

const MTU = 1024;
const RECEIVES = 8;
const RECEIVE_BYTES = 4096;
const RNR_TIMER = 12;
const RESOURCES = 16;
/** Of ibv_access_flags: local write and remote read. */
const READ_ONLY = 5;

/** rxpeer as a service: it does what the script's end asks for. */
async function rxeService(peer: Peer, hasReceives: boolean): Promise<PeerService> {
  const region = await peer.reg(65536);
  const readOnly = await peer.reg(4096, READ_ONLY);
  const buffer = await peer.reg(RECEIVES * RECEIVE_BYTES);
  const memory = ({ addr, rkey, size }: PeerMr) => ({ va: addr, rkey, length: size });
  return {
    start: 'rxpeer',
    hasReceives,
    choosesPsn: true,
    choosesMtu: true,
    async connect({ device, qpNum: qpn, psn, mtu = MTU, port }: ScriptedEnd) {
      const qp = await peer.qp();
      for (let i = 0; hasReceives && i < RECEIVES; i++)
        await qp.postRecv([{ mr: buffer, off: i * RECEIVE_BYTES, len: RECEIVE_BYTES }], i);
      const dgid = gidToHex(device.chooseGid(GUEST.ipv4).gid);
      await qp.connect({
        dqpn: qpn,
        dpsn: psn,
        dgid,
        mtu,
        minrnr: RNR_TIMER,
        rdatomic: RESOURCES,
        destrdatomic: RESOURCES,
      });
      return {
        port: await port({ address: GUEST.ipv4, qpNum: qp.qpn, mtu }),
        psn,
        region: memory(region),
        readOnly: memory(readOnly),
        receives: hasReceives ? RECEIVES : 0,
        receiveBytes: RECEIVE_BYTES,
        resources: RESOURCES,
        rnrTimer: RNR_TIMER,
        close: () => qp.destroy(),
      };
    },
  };
}

/** Memory of ours that rxe's requests name. No card has it: the checks answer. */
const REMOTE = { va: 0x6000_0000_0000n, rkey: 0x9abc00, length: 65536 };
/** Messages of a check that rxe may have to keep. */
const SENDS = 128;

/** rxpeer as a service: it posts what a check asks for. */
async function rxeRequester(peer: Peer): Promise<RequesterService> {
  const buffer = await peer.reg(65536);
  const post = async (qp: PeerQp, { opcode, length, count }: TrafficRequest) => {
    const op = opcode.toLowerCase() as 'send' | 'write' | 'read';
    const remote = op === 'send' ? {} : { raddr: REMOTE.va, rkey: REMOTE.rkey };
    const sge = [{ mr: buffer, off: 0, len: length }];
    for (let i = 0; i < count; i++) await qp.postSend({ op, sge, ...remote, flags: [] });
  };
  const offers = ['SEND', 'WRITE', 'READ'] as const;
  return {
    start: 'rxpeer',
    offers,
    async connect({ device, qpNum: qpn, psn, port }, { timeout = 14, retryCnt = 7, rnrRetry = 7 }) {
      const qp = await peer.qp({ sendwr: SENDS });
      const dgid = gidToHex(device.chooseGid(GUEST.ipv4).gid);
      const numbers = { timeout, retry: retryCnt, rnr: rnrRetry };
      await qp.connect({ dqpn: qpn, dpsn: psn, dgid, mtu: MTU, rdatomic: 16, destrdatomic: 16, ...numbers });
      const inner = await port({ address: GUEST.ipv4, qpNum: qp.qpn, mtu: MTU });
      let posted = Promise.resolve();
      return {
        port: inner,
        ...{ psn: qp.psn, region: REMOTE, offers, timeout, retryCnt, rnrRetry },
        request: (messages) => {
          posted = posted.then(() => post(qp, messages));
          return inner.now();
        },
        close: async () => {
          await posted;
          await qp.destroy();
        },
      };
    },
  };
}

/** Deviations of rxe from the specification, and checks that they make impossible. */
const KNOWN = [
  'deviates: reserved-opcode: no answer to the opcode 0x1f',
  'deviates: future-ack: after an ACK of the future a message without ACK is not sent again',
  'deviates: credits: ACKs have code 31, receives are posted',
  expect.stringMatching(/^deviates: no-credits: SEND_ONLY .* before the SEND before it is acknowledged$/),
  'deviates: duplicate-read: the rest of a READ begins with MIDDLE instead of FIRST',
  expect.stringMatching(/^deviates: read-response-lost: the READ is repeated after /),
  'deviates: retry-count: the retransmissions have no end',
  'deviates: rnr-drops-the-rest: a NAK 0x60 follows the RNR NAK',
  'deviates: read-response-length: the missing bytes are requested with the PSN of the next READ',
  expect.stringMatching(/^deviates: long-send: .*: NAK REMOTE_OPERATIONAL of PSN /),
  'deviates: cnp: no CNP for a marked packet',
  'not applicable: cnp-layout: the peer sends no CNP',
  expect.stringMatching(/^deviates: migreq: (\d+) of \1 packets have MigReq 0, .*: MigReq is 0$/),
  // the checks of the connection manager are not among these
  'not applicable: mad-format: the checks of this run got no packet that it is about',
];

/**
 * The ACK timer counts in ticks: its 67 ms are sixteen of 4 ms, and what is left of the first one. CNPs do not lower
 * its rate, but the times of its flows may differ too much to tell.
 */
const SOMETIMES =
  /^deviates: ack-timeout: transmission \d of the message came |^deviates: cnp-rate: CNPs do not lower |^not applicable: cnp-rate: flows without CNPs take /;

/** Returns a packet with other headers, and with the ICRC for them. */
function changed(frame: Uint8Array, change: (packet: Frame) => void): Uint8Array[] {
  const packet = decodeRoce(frame);
  if (packet === undefined) return [frame];
  const { icrc: _, ...other } = underived(packet);
  change(other);
  return [encode(other)];
}

/** Paths that change packets of the peer, and what is found of it then. */
const CHANGES: readonly (readonly [string, NonNullable<PathOptions['change']>, RegExp])[] = [
  [
    'each hundredth packet has a wrong ICRC',
    (frame, count) => {
      const other = frame.slice();
      if (count % 100 === 99) other[frame.length - 1] = (other[frame.length - 1] as number) ^ 1;
      return [other];
    },
    /^fails: icrc: \d+ of \d+ packets have a wrong ICRC; /,
  ],
  [
    'each hundredth packet has another partition key',
    (frame, count) => changed(frame, ({ bth }) => (bth.pkey = count % 100 === 99 ? 0x8123 : bth.pkey)),
    /^fails: own-partition: \d+ of \d+ packets have another partition key; .*: 0x8123 instead of 0xffff$/,
  ],
  [
    'each hundredth packet has congestion experienced',
    (frame, count) =>
      changed(frame, ({ ip }) => {
        if (ip.version === 4 && count % 100 === 99) ip.tos |= 3;
      }),
    /^fails: ecn-capable: \d+ of \d+ packets have congestion experienced/,
  ],
  [
    'the UDP source port changes',
    (frame, count) => changed(frame, ({ udp }) => (udp.sport = 0xc000 + (count % 7))),
    /^fails: one-source-port: \d+ of \d+ packets come from another UDP source port than those before/,
  ],
  [
    'MigReq alternates',
    (frame, count) => changed(frame, ({ bth }) => (bth.migReq = count % 2 === 0)),
    /^fails: migreq: \d+ of \d+ packets have MigReq 0, or another one/,
  ],
  [
    'each hundredth packet has a reserved bit',
    (frame, count) => changed(frame, ({ bth }) => (bth.reserved7 = count % 100 === 99 ? 1 : 0)),
    /^fails: reserved-zero: \d+ of \d+ packets have reserved bits; /,
  ],
];

describeWithRxe('probe of rxe', 9000, (environment) => {
  let device: Device;
  let peer: Peer;
  let target: LinkTarget;
  beforeAll(async () => {
    const link = new ScriptedLink(PacketLink.open({ interface: CARD.interface }));
    device = await openDevice({ link });
    peer = await Peer.start(environment.guest);
    const services = [await rxeService(peer, false), await rxeService(peer, true)];
    target = new LinkTarget({ device, link, services, requesters: [await rxeRequester(peer)] });
  }, 60_000);
  afterAll(async () => {
    await device?.close({ force: true });
    await peer?.close();
  });

  /** Checks of a peer that answers, without those that measure by many packets, and rules. */
  const some = CHECKS.filter((check) => check.number !== 56 && ('needs' in check || check.rule !== undefined));

  test.each(CHANGES)('one check, and no other, finds a path where %s', async (_, change, expected) => {
    const { found, packets } = await findings(new Path(target, { change }), some);
    const others = found.filter((text) => !text.startsWith('deviates') && !text.startsWith('not applicable'));
    expect(others, packets).toEqual([expect.stringMatching(expected)]);
  });

  test('no check fails behind a path that loses 2 % of the packets of each direction', async () => {
    const { found, packets } = await findings(new Path(target, { loss: 0.02, seed: 3 }), some);
    expect(
      found.filter((text) => text.startsWith('fails')),
      packets,
    ).toEqual([]);
  });

  test('no check fails behind a path that duplicates each fifth packet', async () => {
    const change = (frame: Uint8Array, count: number) => (count % 5 === 0 ? [frame, frame] : [frame]);
    const { found, packets } = await findings(new Path(target, { change }), some);
    expect(
      found.filter((text) => text.startsWith('fails')),
      packets,
    ).toEqual([]);
  });

  test('rxe has the known deviations, and no others', async () => {
    // those of the connection manager are for probe-cm.test.ts
    const checks = CHECKS.filter((check) => !('connects' in check));
    const { found, packets } = await findings(target, checks);
    const always = found.filter((text) => !SOMETIMES.test(text));
    expect(always, difference(always, KNOWN, packets)).toEqual(KNOWN);
  }, 180_000);
});
