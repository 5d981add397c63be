// The ladder of captures of real peers, and of packets that are made for it.
import { expect, test } from 'vitest';
import type { CapturedPacket } from '../../src/probe/capture/captured.js';
import { readCapture } from '../../src/probe/capture/read.js';
import { type CapturedRoce, decodeCaptured } from '../../src/probe/capture/roce.js';
import { analyse, type Ladder } from '../../src/probe/ladder/analysis.js';
import { aboutText } from '../../src/probe/ladder/connection.js';
import { Follower } from '../../src/probe/ladder/follow.js';
import { pack, unpack } from '../../src/probe/ladder/pack.js';
import { MARKS } from '../../src/probe/ladder/packet.js';
import { ladderFindings, selectLadder } from '../../src/probe/ladder/select.js';
import { encodeMad, gidOf } from '../../src/probe/packet/mad.js';
import {
  ack,
  datagram,
  encodeFrame,
  type Flow,
  flowOf,
  nak,
  type Packet,
  request,
  response,
  reverse,
} from '../../src/probe/packet/packets.js';
import { CAPTURES, capturePath } from '../kit/fixtures.js';
import { Random } from '../kit/random.js';

const there = flowOf({ destQp: 0x11, srcQp: 0x22 });
const back = reverse(there);

/** Returns the ladder of packets, a microsecond apart. */
function ladderOf(...packets: [Flow, Packet][]): Ladder {
  return analyse(captured(...packets));
}

function captured(...packets: [Flow, Packet][]): CapturedPacket[] {
  return packets.map(([direction, packet], i) => {
    const data = encodeFrame(direction, packet);
    return { time: BigInt(1000 * i), data, wireLength: data.length, direction: 0 };
  });
}
const notes = ({ packets }: Ladder) => packets.map(({ note }) => note);
const send = (psn: number): [Flow, Packet] => [there, request.sendOnly({ psn, ackReq: true })];

test('directions become connections by the PSNs of their responses', () => {
  const other = flowOf({ destQp: 0x33, srcQp: 0x44 });
  const { connections, packets } = ladderOf(
    send(100),
    [other, request.sendOnly({ psn: 7 })],
    [back, ack({ psn: 100, msn: 1 })],
    [reverse(other), ack({ psn: 7, msn: 1 })],
  );
  expect(connections.map(({ qps }) => qps)).toEqual([
    [0x22, 0x11],
    [0x44, 0x33],
  ]);
  expect(packets.map(({ connection, direction, kind }) => [connection, direction, kind])).toEqual([
    [0, 0, 'SEND'],
    [1, 0, 'SEND'],
    [0, 1, 'ACK'],
    [1, 1, 'ACK'],
  ]);
});

test('a keep-alive is not marked as a retransmission', () => {
  const keepAlive = request.writeOnly({ psn: 100, va: 0n, rkey: 0, payload: new Uint8Array(0), ackReq: true });
  const ladder = ladderOf(send(100), [back, ack({ psn: 100, msn: 1 })], [there, keepAlive], send(101), send(100));
  expect(ladder.packets.map(({ marks }) => marks)).toEqual([0, 0, 0, 0, MARKS.retransmission]);
  expect(notes(ladder)[2]).toBe('A keep-alive: it repeats the last PSN without bytes, for an ACK.');
});

test('a gap, its NAK and the retransmission are found and explained', () => {
  const ladder = ladderOf(send(100), send(102), [back, nak.sequence({ psn: 101 })], send(101), send(102), [
    back,
    ack({ psn: 102, msn: 3 }),
  ]);
  expect(notes(ladder)).toEqual([
    '',
    'Gap: the capture lacks 1 PSN before this packet, from 101.',
    'The responder misses PSN 101: everything from there is sent again.',
    'Retransmission, 1 µs after a NAK (sequence error): the capture lacks the first transmission of this PSN.',
    'Retransmission: this PSN was sent 3 µs before, 2 µs after a NAK (sequence error).',
    '',
  ]);
  expect(ladder.connections[0]?.troubles).toBe(4);
});

test('the responses of a READ take its PSNs, so that the next request leaves no gap', () => {
  const payload = new Uint8Array(2500);
  const ladder = ladderOf(
    [there, request.read({ psn: 0xffffff, va: 0n, rkey: 1, length: 2500 })],
    ...response.read({ psn: 0xffffff, payload, mtu: 1024, msn: 1 }).map((each): [Flow, Packet] => [back, each]),
    send(2),
  );
  expect(notes(ladder)).toEqual(['', '', '', '', '']);
});

test('RNR NAKs, errors, congestion and wrong ICRCs are marked', () => {
  const { packets } = ladderOf(
    send(1),
    [back, nak.rnr({ psn: 1, timer: 12 })],
    [{ ...there, trafficClass: 3 }, request.sendOnly({ psn: 1 })],
    [back, nak.remoteAccess({ psn: 1 })],
    [there, { ...request.sendOnly({ psn: 2 }), icrc: 1 }],
  );
  const { rnr, retransmission, congestion, nak: refused, icrc } = MARKS;
  expect(packets.map(({ marks }) => marks)).toEqual([0, rnr, retransmission | congestion, refused, icrc]);
  expect(packets[3]?.label).toBe('NAK: remote access error, psn 1, msn 0');
});

test('a packet is followed by its number, and its loss in the network is shown', () => {
  const follower = new Follower(0, 1024);
  const packet = decodeCaptured({ data: encodeFrame(there, request.sendOnly({ psn: 1 })) }) as CapturedRoce;
  const follow = (number: number, isLost: boolean) =>
    follower.packet({ number, time: number * 1000, direction: 0, packet, isLost });
  expect(follow(1, true)).toMatchObject({ marks: MARKS.lost, note: 'The network loses this packet.' });
  expect(follow(2, false)).toMatchObject({ marks: MARKS.retransmission, kind: 'SEND', psn: 1 });
});

test.each(CAPTURES)('%s: every packet has its place, and the page reads the same packets', (name) => {
  const { packets } = readCapture(capturePath(name));
  const ladder = analyse(packets);
  expect(ladder.packets.length + ladder.skipped).toBe(packets.length);
  expect(ladder.connections.reduce((sum, each) => sum + each.packets, 0)).toBe(ladder.packets.length);
  expect(unpack(JSON.parse(JSON.stringify(pack(ladder))))).toEqual(
    ladder.packets.map((each) => ({ ...each, headers: new Uint8Array(each.headers) })),
  );
});

const LOSSY = /^(loss|reorder|dup)|rnr|bad|oob|flush|mw$|qpnoread|rdatomic0|sendtoolong|psnahead/;

test.each(CAPTURES.filter((name) => !LOSSY.test(name)))('%s: a capture without faults shows no trouble', (name) => {
  const { packets } = analyse(readCapture(capturePath(name)).packets);
  expect(packets.filter(({ note }) => note !== '').map(({ number, note }) => `${number}: ${note}`)).toEqual([]);
});

test('other frames are skipped, and an empty capture has no packets', () => {
  const packet = { time: 0n, data: new Uint8Array(3), wireLength: 3, direction: 0 as const };
  expect(analyse([packet])).toEqual({ connections: [], packets: [], skipped: 1 });
  expect(analyse([])).toEqual({ connections: [], packets: [], skipped: 0 });
});

test('a capture that is cut by a snap length has no gaps, no ICRCs, and the sizes of the wire', () => {
  const payload = new Uint8Array(1000);
  const packets: [Flow, Packet][] = Array.from({ length: 20 }, (_, psn) =>
    psn % 2
      ? [back, ack({ psn: psn - 1, msn: psn })]
      : [there, request.writeOnly({ psn, va: 0n, rkey: 1, payload, ackReq: true })],
  );
  const whole = ladderOf(...packets);
  for (const snapLength of [54, 58, 64, 96, 128]) {
    const cut = captured(...packets).map((each) => ({ ...each, data: each.data.subarray(0, snapLength) }));
    const { packets: shown, skipped } = analyse(cut);
    expect(skipped).toBe(0);
    expect(shown.map(({ psn, bytes, note }) => [psn, bytes, note])).toEqual(
      whole.packets.map(({ psn, bytes, note }) => [psn, bytes, note]),
    );
  }
});

/** WRITEs and their ACKs between the queue pairs of a flow, from one PSN on. */
function conversation(on: Flow, first: number, count: number, firstMsn = 0): [Flow, Packet][] {
  return Array.from({ length: count }, (_, i): [Flow, Packet][] => [
    [on, request.writeOnly({ psn: (first + i) & 0xffffff, va: 0n, rkey: 1, payload: new Uint8Array(8), ackReq: true })],
    [reverse(on), ack({ psn: (first + i) & 0xffffff, msn: firstMsn + i + 1 })],
  ]).flat();
}

test('queue pairs that begin at the same PSN are paired by the order of their packets', () => {
  const other = flowOf({ destQp: 0x33, srcQp: 0x44 });
  const [a, b] = [conversation(there, 0, 25), conversation(other, 0, 25)];
  const rnr = (psn: number): [Flow, Packet][] => [send(psn), [back, nak.rnr({ psn, timer: 12, msn: psn })]];
  const { connections } = ladderOf(
    ...Array.from({ length: 25 }, (_, i) => [
      ...b.slice(2 * i, 2 * i + 2),
      ...(i < 20 ? [] : rnr(i)),
      ...a.slice(2 * i, 2 * i + 2),
    ]).flat(),
  );
  expect(connections.map(({ qps, troubles, pairing }) => [qps, troubles, pairing.by])).toEqual([
    [[0x44, 0x33], 0, 'order'],
    [[0x22, 0x11], 10, 'order'],
  ]);
  for (const each of connections)
    expect(aboutText(each)).toMatch(/responses follow a request .*: the pairing is clear\.$/);
});

test('a thousand queue pairs that begin at the same PSN are paired', () => {
  const random = new Random(5);
  const flows = Array.from({ length: 1000 }, (_, i) => flowOf({ destQp: 0x1000 + i, srcQp: 0x9000 + i }));
  const packets: [Flow, Packet][] = [];
  for (let round = 0; round < 20; round++) {
    const order = flows.map((each) => ({ each, key: random.below(1 << 30) })).sort((a, b) => a.key - b.key);
    for (const { each } of order) packets.push(...conversation(each, round, 1, round));
  }
  const { connections } = ladderOf(...packets);
  expect(connections).toHaveLength(1000);
  for (const { qps, troubles } of connections) {
    expect(troubles).toBe(0);
    expect((qps[0] as number) - (qps[1] as number)).toBe(0x8000);
  }
});

test('a jump of the PSNs begins a new connection, and a single distant packet does not', () => {
  const { connections, packets } = ladderOf(
    ...conversation(there, 1000, 10),
    ...conversation(there, 9_000_000, 10),
    ...conversation(there, 500, 10),
    send(5_000_000),
    ...conversation(there, 510, 10, 10),
  );
  expect(connections.map(({ packets: count, began }) => [count, began])).toEqual([
    [20, ''],
    [20, 'the PSNs jump from 1010 to 9000000'],
    [41, 'the PSNs jump from 9000010 to 500'],
  ]);
  expect(packets.filter(({ note }) => note !== '').map(({ psn }) => psn)).toEqual([5_000_000]);
});

test('a responder whose MSN begins again belongs to a new connection', () => {
  const { connections } = ladderOf(...conversation(there, 0, 10), ...conversation(there, 0, 10));
  expect(connections.map(({ packets, troubles, began }) => [packets, troubles, began])).toEqual([
    [20, 0, ''],
    [20, 0, 'the peer counts its messages (MSN) from the beginning'],
  ]);
  // the same requests again, but their responder has not forgotten them
  const again = conversation(there, 0, 10).map(([on, packet]): [Flow, Packet] =>
    on === there ? [on, packet] : [on, ack({ psn: packet.bth.psn, msn: 10 })],
  );
  expect(ladderOf(...conversation(there, 0, 10), ...again).connections).toHaveLength(1);
});

test('a queue pair number that another peer uses later belongs to a new connection', () => {
  const later = flowOf({ destQp: 0x11, srcQp: 0x77 });
  const { connections } = ladderOf(...conversation(there, 0, 10), ...conversation(later, 20, 10));
  expect(connections.map(({ qps, packets, began }) => [qps, packets, began])).toEqual([
    [[0x22, 0x11], 20, ''],
    [[0x77, 0x11], 20, 'another queue pair answers from here'],
  ]);
});

test('the messages of rdma_cm name the queue pairs, and begin a new connection when they name one again', () => {
  const cm = flowOf({ destQp: 1, srcQp: 1 });
  const mad = (on: Flow, name: 'REQ' | 'REP', fields: object): [Flow, Packet] => [
    on,
    datagram.sendOnly({ psn: 0, qkey: 0x8001_0000, srcQp: 1, payload: encodeMad(name, fields) }),
  ];
  const connect = (id: number, startingPsn: number): [Flow, Packet][] => {
    const ids = { localCommId: id, startingPsn };
    const gids = { localGid: gidOf('10.0.0.2'), remoteGid: gidOf('10.0.0.1') };
    const sent: [Flow, Packet][] = [
      mad(cm, 'REQ', { ...ids, ...gids, localQpn: 0x22 }),
      mad(reverse(cm), 'REP', { ...ids, remoteCommId: id, localQpn: 0x11 }),
    ];
    // each is sent twice: the first answer came late
    return [...sent, ...sent];
  };
  const { connections } = ladderOf(
    ...connect(1, 100),
    ...conversation(there, 100, 5),
    ...connect(2, 103),
    ...conversation(there, 103, 5),
  );
  const named = 'rdma_cm has made a connection with this queue pair number';
  expect(
    connections.map(({ qps, packets, troubles, pairing, began }) => [qps, packets, troubles, pairing, began]),
  ).toEqual([
    [[1, 1], 8, 0, { by: 'datagrams' }, ''],
    [[0x22, 0x11], 10, 0, { by: 'rdma_cm' }, ''],
    [[0x22, 0x11], 10, 0, { by: 'rdma_cm' }, named],
  ]);
});

test('a part of a ladder has its connections, with all findings', () => {
  const ladder = ladderOf(...conversation(flowOf({ destQp: 0x33, srcQp: 0x44 }), 0, 4), send(1), send(3), send(4));
  const part = selectLadder(ladder, { qp: 0x11, from: 9000 });
  expect(part.connections.map(({ qps, packets, troubles }) => [qps, packets, troubles])).toEqual([
    [[undefined, 0x11], 2, 1],
  ]);
  expect(part.packets.map(({ connection, psn }) => [connection, psn])).toEqual([
    [0, 3],
    [0, 4],
  ]);
  expect(
    ladderFindings(ladder).map(({ qps, findings }) => [qps[1], findings.map(({ number, marks }) => [number, marks])]),
  ).toEqual([
    [0x11, [[10, ['gap']]]],
    [0x33, []],
  ]);
});

test('an ACK at the time of a NAK is no trouble', () => {
  const packets = captured(send(1), [back, nak.rnr({ psn: 1, timer: 12 })], [back, ack({ psn: 1, msn: 1 })]);
  const { packets: shown } = analyse(packets.map((each) => ({ ...each, time: 0n })));
  expect(shown.map(({ marks }) => marks)).toEqual([0, MARKS.rnr, 0]);
});
