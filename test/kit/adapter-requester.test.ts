/** The strict requester of the kit reports each broken rule, and takes a stream that breaks none. */
import { expect, test } from 'vitest';
import { ack, encodeFrame, flowOf, nak, type Packet, response, reverse } from '../../src/probe/packet/packets.js';
import { AdapterRequester } from './adapter/requester.js';
import { Violation } from './adapter/rules.js';
import { Random } from './random.js';

const MTU = 256;
const THERE = flowOf({ trafficClass: 2 });
const BACK = reverse(THERE);
const at = { va: 0x1000n, rkey: 7 };
const data = new Random(1).bytes(700);

/** A requester whose requests have reached the card: READ at PSN 100, atomic at 103, SEND at 104. `lost` have not. */
function requester(...lost: readonly number[]): AdapterRequester {
  const operations = [
    { kind: 'READ', length: 700, at },
    { kind: 'FETCH_ADD', at, add: 1n },
    { kind: 'SEND', data: data.slice(0, 8) },
  ] as const;
  const base = { there: THERE, mtu: MTU, psn: 100, random: new Random(1), rnrTimer: 2, posted: () => 1 };
  const adapter = new AdapterRequester({ ...base, operations });
  adapter.expire(0);
  for (const [i, bytes] of adapter.take().entries()) if (!lost.includes(i)) adapter.delivered(bytes);
  return adapter;
}

/** A response leaves the card, and arrives. */
function answer(adapter: AdapterRequester, ...packets: readonly Packet[]): void {
  for (const packet of packets) {
    adapter.inspect(encodeFrame(BACK, packet));
    adapter.receive(encodeFrame(BACK, packet), 0);
  }
}

const READ = response.read({ psn: 100, msn: 1, payload: data, mtu: MTU });
const ATOMIC = response.atomicAck({ psn: 103, msn: 2, original: 5n });

test('responses without a fault are accepted', () => {
  const adapter = requester();
  answer(adapter, ...READ, ATOMIC, ack({ psn: 104, msn: 3 }));
  expect(adapter.isDone).toBe(true);
  expect(adapter.results().slice(0, 2)).toEqual([data, Uint8Array.of(5, 0, 0, 0, 0, 0, 0, 0)]);
});

const BROKEN: readonly (readonly [string, RegExp, readonly Packet[], (readonly number[])?])[] = [
  ['an ACK of a request that has not arrived', /have arrived/, [ack({ psn: 104, msn: 2 })], [2]],
  ['an MSN ahead of the requests', /MSN 4 is not in 3 to 3/, [ack({ psn: 104, msn: 4 })]],
  ['an MSN behind the PSN', /MSN 2 is not in 3/, [ack({ psn: 104, msn: 2 })]],
  [
    'an MSN that goes back',
    /MSN 1 after 2/,
    [...READ.map((p) => ({ ...p, ...(p.aeth && { aeth: { ...p.aeth, msn: 2 } }) })), READ[0] as Packet],
  ],
  ['more credits than receives', /2 credits after 0 messages, of 1/, [ack({ psn: 103, msn: 2, syndrome: 2 })]],
  ['a response that leaves a packet out', /goes on elsewhere/, [READ[0] as Packet, READ[2] as Packet]],
  [
    'a response that ends too early',
    /ends elsewhere/,
    [response.readOnly({ psn: 100, msn: 1, payload: data.slice(0, 256) })],
  ],
  [
    'a response of another length',
    /not 188 bytes/,
    [...READ.slice(0, 2), response.readLast({ psn: 102, msn: 1, payload: data.slice(0, 4) })],
  ],
  ['data for an atomic', /no READ/, [response.readOnly({ psn: 103, msn: 2, payload: data.slice(0, 8) })]],
  ['an original value that changes', /was 5 before/, [ATOMIC, response.atomicAck({ psn: 103, msn: 2, original: 6n })]],
  ['an RNR NAK to a READ', /of no message that arrived/, [nak.rnr({ psn: 100, timer: 2 })]],
  ['another RNR timer', /RNR timer 3, not 2/, [nak.rnr({ psn: 104, msn: 2, timer: 3 })]],
  ['a NAK without a gap', /is expected/, [nak.sequence({ psn: 103, msn: 2 })]],
  ['two NAKs of one gap', /second NAK/, [nak.sequence({ psn: 103, msn: 1 }), nak.sequence({ psn: 103, msn: 1 })], [1]],
  ['a fatal NAK', /expects no syndrome/, [nak.remoteAccess({ psn: 104, msn: 2 })]],
  [
    'a CNP without a mark',
    /without a mark/,
    [{ bth: { opcode: 0x81, psn: 0, ackReq: false, solicited: false, becn: true }, payload: new Uint8Array(16) }],
  ],
  ['a response that asks for an ACK', /asks for an ACK/, [ack({ psn: 104, msn: 3, ackReq: true })]],
];

test.each(BROKEN.map(([name, rule, packets, lost = []]) => ({ name, rule, packets, lost })))('$name', (row) => {
  expect(() => answer(requester(...row.lost), ...row.packets)).toThrow(row.rule);
  expect(() => answer(requester(...row.lost), ...row.packets)).toThrow(Violation);
});
