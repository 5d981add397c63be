/** Bugs that the simulation found, each reduced to a few packets. */
import { expect, test } from 'vitest';
import { decode, encodeFrame, flowOf, Op, request } from '../../src/probe/packet/packets.js';
import { Rig } from '../kit/rig.js';

test('a READ response that is being repeated does not count as outstanding for the next READ', async () => {
  const rig = await Rig.create();
  const qp = rig.qp().connect({ destQpn: 0x22, sqPsn: 0, rqPsn: 0, maxDestRdAtomic: 1, mtu: 1024 });
  const region = rig.region(8192);
  const there = flowOf({ destQp: qp.qpn, srcQp: 0x22 });
  const read = (psn: number): Uint8Array =>
    encodeFrame(there, request.read({ psn, va: region.iova, rkey: region.rkey, length: 3000 }));
  expect(rig.in(1000, read(0)).length).toBe(3);
  // a late duplicate starts the response again; before it is sent, the peer, which has the response, sends a new
  // request
  rig.put(read(0));
  const answers = rig.in(2000, read(3)).map((bytes) => decode(bytes).bth);
  expect(qp.state).toBe('RTS');
  expect(answers.every(({ opcode }) => opcode !== Op.ACKNOWLEDGE)).toBe(true);
  expect(answers.filter(({ psn }) => psn >= 3).map(({ psn }) => psn)).toEqual([3, 4, 5]);
});

test('the first repeated packet asks for an ACK, which shows what was lost behind it', async () => {
  const rig = await Rig.create();
  const qp = rig.qp().connect({ destQpn: 0x22, sqPsn: 0, rqPsn: 0, mtu: 256 });
  const region = rig.region(8192);
  qp.send({ opcode: 'SEND', pieces: [region.piece(0, 8192)] });
  expect(rig.out(1000).length).toBe(32);
  const nak = encodeFrame(flowOf({ destQp: qp.qpn }), {
    bth: { opcode: Op.ACKNOWLEDGE, psn: 3, ackReq: false, solicited: false },
    aeth: { syndrome: 0x60, msn: 0 },
    payload: new Uint8Array(0),
  });
  const [first, second] = rig.in(2000, nak).map((bytes) => decode(bytes).bth);
  expect(first).toMatchObject({ opcode: Op.SEND_MIDDLE, psn: 3, ackReq: true });
  expect(second).toMatchObject({ opcode: Op.SEND_MIDDLE, psn: 4, ackReq: false });
});
