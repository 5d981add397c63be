/** A request so old that its PSNs are in use again is not mistaken for a new one (IBTA 9.7.2, 9.7.5.1.4). */
import { expect, test } from 'vitest';
import { ack, encodeFrame, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, pattern, rc, send, TARGET_VA } from '../kit/conversation.js';

const PSN_AT = 14 + 20 + 8 + 9;
/** Frames that the card receives at once. */
const BATCH = 256;

/**
 * Receives empty WRITEs with these PSNs, which request no ACK. They differ in the PSN alone, and a CRC is linear: the
 * ICRC of each is that of PSN 0 plus the terms of the bits of its PSN.
 */
function writes(c: Conversation, first: number, count: number): void {
  const write = (psn: number) =>
    encodeFrame(c.there, request.writeOnly({ psn, va: 0n, rkey: 0, payload: new Uint8Array(0), ackReq: false }));
  const bytes = write(0);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const icrcAt = bytes.length - 4;
  const icrcOf = (psn: number) => Buffer.from(write(psn)).readUInt32LE(icrcAt);
  const base = icrcOf(0);
  const bits = Array.from({ length: 24 }, (_, bit) => icrcOf(1 << bit) ^ base);
  const adds = [0, 8, 16].map((shift) =>
    Int32Array.from({ length: 256 }, (_, value) =>
      bits.slice(shift, shift + 8).reduce((sum, add, bit) => ((value >> bit) & 1 ? sum ^ add : sum), 0),
    ),
  ) as [Int32Array, Int32Array, Int32Array];
  for (let n = 0; n < count; n++) {
    const psn = (first + n) & 0xff_ffff;
    view.setUint16(PSN_AT, psn >> 8);
    view.setUint8(PSN_AT + 2, psn);
    const add = (adds[0][psn & 255] as number) ^ (adds[1][(psn >> 8) & 255] as number) ^ (adds[2][psn >> 16] as number);
    view.setUint32(icrcAt, base ^ add, true);
    c.rig.put(bytes);
    if ((n + 1) % BATCH === 0) c.rig.x.rx(1000, BATCH);
  }
  c.rig.x.rx(1000, BATCH);
}

test('an ACK has the newest PSN, also when half of all PSNs lie behind the last READ', async () => {
  const c = await rc({ receives: 1 });
  const half = 2 ** 23;
  c.in(0, request.read({ psn: 100, va: TARGET_VA, rkey: c.target.rkey, length: 8 })).out(
    response.readOnly({ psn: 100, msn: 1, payload: pattern(8, 2) }),
  );
  writes(c, 101, half);
  const [psn, msn] = [101 + half, half + 2];
  c.in(2, send({ psn }))
    .out(ack({ psn, msn }))
    .wc({ wrId: 1 })
    .in(3, send({ psn }))
    .out(ack({ psn, msn }))
    .counts({ duplicate_request: 1 });
  expect(c.rig.counters()).toMatchObject({ rcvd_pkts: half + 3 });
});
