// Faults by rules over the memory link: the chosen packets are hit, no others, and the card recovers.
import { afterEach, expect, test } from 'vitest';
import { createMemoryHub, type Device, type Link, openDevice } from '../../src/index.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { EventFaultLink } from '../../src/probe/link/eventfaults.js';
import { decode } from '../../src/probe/packet/decode.js';
import type { Decoded } from '../../src/probe/packet/frame.js';
import { encodeFrame, flowOf, request, response } from '../../src/probe/packet/packets.js';
import { Rig } from '../link/rig.js';

const devices: Device[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) await device.close({ force: true });
});

const [A, B] = ['10.0.0.1', '10.0.0.2'];
const [MAC_A, MAC_B] = ['02:00:00:00:00:01', '02:00:00:00:00:02'];
const there = flowOf({ srcMac: MAC_A, dstMac: MAC_B, srcIp: A, dstIp: B, destQp: 0x12 });

/** Passes frames through a link with rules; `step` gives what has arrived at the other end. */
function through(...rules: string[]) {
  const hub = createMemoryHub();
  const link = new EventFaultLink(memoryLink(hub, { addresses: [A], mac: MAC_A }), rules);
  const [near, far] = [new Rig(link), new Rig(memoryLink(hub, { addresses: [B], mac: MAC_B }))];
  const arrivals = (rig: Rig) => rig.take().map(({ frame }) => decode(frame));
  return {
    link,
    sent(frames: Uint8Array[], now = 1000): Decoded[] {
      near.put(...frames);
      link.send(now);
      link.receive(now);
      far.link.receive(now);
      return arrivals(far);
    },
    received(frames: Uint8Array[], now = 1000): Decoded[] {
      far.put(...frames);
      far.link.send(now);
      link.receive(now);
      return arrivals(near);
    },
  };
}

const middles = (count: number, psn = 0) =>
  Array.from({ length: count }, (_, i) =>
    encodeFrame(there, request.writeMiddle({ psn: psn + i, payload: new Uint8Array(64) })),
  );
const psns = (frames: Decoded[]) => frames.map(({ bth }) => bth.psn);

test.each([
  ['drop the 3rd WRITE_MIDDLE', [0, 1, 3, 4]],
  ['drop the 2nd to 4th WRITE_MIDDLE of qp 1', [0, 4]],
  ['drop every 2nd WRITE_MIDDLE of qpn 0x12', [0, 2, 4]],
  ['drop every *', []],
  ['drop every * psn=1..2', [0, 3, 4]],
  ['drop every * psn!=1', [1]],
  ['drop every * ackreq', [0, 1, 2, 3, 4]],
  ['drop the 2nd WRITE', [0, 2, 3, 4]],
  ['drop every SEND', [0, 1, 2, 3, 4]],
  ['drop every WRITE_MIDDLE of qp 2', [0, 1, 2, 3, 4]],
  ['drop every WRITE_MIDDLE received', [0, 1, 2, 3, 4]],
  ['duplicate the 2nd WRITE_MIDDLE', [0, 1, 1, 2, 3, 4]],
  ['reorder by 2 the 2nd WRITE_MIDDLE', [0, 2, 3, 1, 4]],
])('%s', (rule, expected) => {
  expect(psns(through(rule).sent(middles(5)))).toEqual(expected);
});

test.each([
  [
    'drop the 2nd WRITE_MIDDLE',
    [
      [0, 2],
      [0, 1, 2],
      [0, 1, 2],
    ],
    1,
  ],
  [
    'drop the 2nd WRITE_MIDDLE, 2nd time too',
    [
      [0, 2],
      [0, 2],
      [0, 1, 2],
    ],
    2,
  ],
  [
    'drop the 2nd WRITE_MIDDLE, always',
    [
      [0, 2],
      [0, 2],
      [0, 2],
    ],
    3,
  ],
])('%s: a retransmission keeps its number', (rule, expected, hits) => {
  const { sent, link } = through(rule);
  expect([1, 2, 3].map(() => psns(sent(middles(3))))).toEqual(expected);
  expect(link.hits).toEqual([{ rule, hits }]);
  expect(link.counters()).toMatchObject({ fault_rule_1_hits: hits });
});

test('a change affects the chosen packet only, and the ICRC is right unless the rule breaks it', () => {
  const change = (rule: string) => through(rule).sent(middles(2)) as [Decoded, Decoded];
  expect(change('corrupt the 1st *').map(({ icrcOk }) => icrcOk)).toEqual([false, true]);
  const ecn = ({ ip, icrcOk }: Decoded) => [ip.version === 4 && (ip.tos & 3) === 3, icrcOk];
  expect(change('mark ECN the 2nd *').map(ecn)).toEqual([
    [false, true],
    [true, true],
  ]);
  const [rewritten, untouched] = change('rewrite psn=0x77 ackreq in the 1st WRITE_MIDDLE');
  expect(rewritten).toMatchObject({ bth: { psn: 0x77, ackReq: true }, icrcOk: true });
  expect(untouched).toMatchObject({ bth: { psn: 1, ackReq: false } });
  expect(change('rewrite icrcok=0 in the 1st *')[0].icrcOk).toBe(false);
  // a packet without the field does not count
  const { sent, link } = through('rewrite rkey=1 in every *');
  sent(middles(1));
  expect(link.hits[0]?.hits).toBe(0);
});

test('a delay lasts as long as the rule says', () => {
  const { sent, link } = through('delay by 50us the 1st WRITE_MIDDLE');
  expect(psns(sent(middles(2), 1000))).toEqual([1]);
  expect(link.nextDeadline()).toBe(51_000);
  expect(psns(sent([], 50_999))).toEqual([]);
  expect(psns(sent([], 51_000))).toEqual([0]);
  expect(link.nextDeadline()).toBe(0);
});

test('received responses have their own numbers; several rules apply together', () => {
  const back = flowOf({ srcMac: MAC_B, dstMac: MAC_A, srcIp: B, dstIp: A, destQp: 7 });
  const answers = [0, 1, 2].map((psn) => encodeFrame(back, response.readMiddle({ psn, payload: new Uint8Array(8) })));
  const { received } = through('drop the 2nd READ_RESPONSE_MIDDLE of qp 1 received', 'duplicate the 3rd * received');
  expect(psns(received(answers))).toEqual([0, 2, 2]);
});

test.each([
  ['drip the 5th *', '1:1: expected'],
  ['drop the 5 *', '1:10: expected ordinal, found "5"'],
  ['drop the 0th *', '1:10: expected ordinal, found "0"'],
  ['drop the 5th to 3rd *', 'the range ends at 3, before its start 5'],
  ['drop the 5th WRITE_MIDLE', '1:14: no operation WRITE_MIDLE'],
  ['drop every * psm=1', '1:14: no field psm'],
  ['drop every * psn', '1:14: psn needs a value'],
  ['drop every * psn="a"', '1:14: psn needs a number, found a text'],
  ['drop every * psn=>a', '1:14: a rule of faults has no variables'],
  ['rewrite psn=1..2 in every *', '1:9: rewrite needs one value: psn=value'],
  ['drop every * of qp 1 backwards', 'found "b"'],
])('%s: %s', (rule, message) => {
  expect(() => through(rule)).toThrow(message);
});

async function transfer(opcode: 'RDMA_WRITE' | 'RDMA_READ', ...rules: string[]) {
  const hub = createMemoryHub();
  const wrapped: EventFaultLink[] = [];
  const wrapLink = (inner: Link) => {
    wrapped.push(new EventFaultLink(inner, rules));
    return wrapped[0] as EventFaultLink;
  };
  const [near, far] = [await openDevice({ hub, addresses: [A], wrapLink }), await openDevice({ hub, addresses: [B] })];
  devices.push(near, far);
  const end = async (device: Device) => {
    const [pd, cq] = [await device.allocPd(), await device.createCq()];
    const mr = await pd.regMr(65536, { access: ['localWrite', 'remoteWrite', 'remoteRead'] });
    return { cq, mr, qp: await pd.createQp({ sendCq: cq }) };
  };
  const [a, b] = [await end(near), await end(far)];
  const options = { access: ['remoteWrite', 'remoteRead'], pathMtu: 1024 } as const;
  await a.qp.connect(b.qp.endpoint(), options);
  await b.qp.connect(a.qp.endpoint(), options);
  const [from, to] = opcode === 'RDMA_WRITE' ? [a.mr, b.mr] : [b.mr, a.mr];
  for (let i = 0; i < 16384; i++) from.buffer[i] = i * 7 + (i >> 8);
  const { addr, rkey } = b.mr.remote;
  a.qp.postSend({ opcode, sgList: a.mr.sge(0, 16384), remoteAddr: addr, rkey });
  const { ok } = await a.cq.next();
  const isEqual = Buffer.compare(from.buffer.subarray(0, 16384), to.buffer.subarray(0, 16384)) === 0;
  return { ok, isEqual, link: wrapped[0] as EventFaultLink };
}

test.each([
  ['RDMA_WRITE', 'drop the 5th WRITE_MIDDLE of qp 1, 2nd time too', 2],
  ['RDMA_WRITE', 'corrupt the 5th WRITE_MIDDLE', 1],
  ['RDMA_WRITE', 'reorder by 2 the 3rd WRITE_MIDDLE', 1],
  ['RDMA_WRITE', 'duplicate every WRITE_MIDDLE', 14],
  ['RDMA_READ', 'drop the 5th READ_RESPONSE_MIDDLE received, 2nd time too', 2],
  ['RDMA_READ', 'delay by 100us the 1st READ_REQUEST', 1],
] as const)('%s recovers from: %s', async (opcode, rule, hits) => {
  const { ok, isEqual, link } = await transfer(opcode, rule);
  expect({ ok, isEqual, hits: link.hits[0]?.hits }).toEqual({ ok: true, isEqual: true, hits });
});
