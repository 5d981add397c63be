// What the ladder finds in captures of real peers, and in packets that are made for it.
import { expect, test } from 'vitest';
import { type CapturedPacket, readCapture } from '../../src/probe/capture/read.js';
import { analyse, Follower, type Ladder, MARKS } from '../../src/probe/ladder/analysis.js';
import { pack, unpack } from '../../src/probe/ladder/pack.js';
import { decode } from '../../src/probe/packet/decode.js';
import {
  ack,
  type Flow,
  flow,
  frame,
  nak,
  type Packet,
  request,
  response,
  reverse,
} from '../../src/probe/packet/packets.js';
import { CAPTURES, capturePath } from '../kit/fixtures.js';

const there = flow({ destQp: 0x11, srcQp: 0x22 });
const back = reverse(there);

/** Returns the ladder of packets, a microsecond apart. */
function ladderOf(...packets: [Flow, Packet][]): Ladder {
  const captured = packets.map(([direction, packet], i): CapturedPacket => {
    const data = frame(direction, packet);
    return { time: BigInt(1000 * i), data, wireLength: data.length, direction: 0 };
  });
  return analyse(captured);
}
const notes = ({ packets }: Ladder) => packets.map(({ note }) => note);
const send = (psn: number): [Flow, Packet] => [there, request.sendOnly({ psn, ackReq: true })];

test('directions become connections by the PSNs of their responses', () => {
  const other = flow({ destQp: 0x33, srcQp: 0x44 });
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

test('a gap, its NAK and the retransmission are found and explained', () => {
  const ladder = ladderOf(send(100), send(102), [back, nak.sequence({ psn: 101 })], send(101), send(102), [
    back,
    ack({ psn: 102, msn: 3 }),
  ]);
  expect(notes(ladder)).toEqual([
    '',
    'Gap: the capture lacks 1 PSN before this packet, from 101.',
    'The responder misses PSN 101: everything from there is sent again.',
    'The packet arrives 2 PSNs late: it was overtaken.',
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

test('packets are followed one by one, and one that the network loses says so', () => {
  const follower = new Follower(0, 1024);
  const data = frame(there, request.sendOnly({ psn: 1 }));
  const follow = (number: number, isLost: boolean) =>
    follower.packet({ number, time: number * 1000, direction: 0, frame: decode(data), data, isLost });
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

test('garbage is skipped, and an empty capture has no packets', () => {
  const packet = { time: 0n, data: new Uint8Array(3), wireLength: 3, direction: 0 as const };
  expect(analyse([packet])).toEqual({ connections: [], packets: [], skipped: 1 });
  expect(analyse([])).toEqual({ connections: [], packets: [], skipped: 0 });
});
