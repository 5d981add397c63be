/** NAKs that end a connection: what a responder can send, and what is refused (IBTA 9.7.5.1, 9.7.7.1). */
import { describe, expect, test } from 'vitest';
import { ack, nak } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, rc } from '../kit/conversation.js';

const REMOTE = { va: 0x1000n, rkey: 0x77 };
const STATUS = { invalidRequest: 'REM_INV_REQ_ERR', remoteAccess: 'REM_ACCESS_ERR', remoteOperational: 'REM_OP_ERR' };
const KINDS = Object.keys(STATUS) as (keyof typeof STATUS)[];

/** Message 1 is done; a WRITE of three packets from PSN 1001 on, a READ of four, and a SEND are in flight. */
async function busy(): Promise<Conversation> {
  const c = await rc();
  c.post(0, { wrId: 1, opcode: 'SEND', inline: PING }).take();
  c.in(1, ack({ psn: 1000, msn: 1 })).wc({ wrId: 1 });
  c.post(
    2,
    { wrId: 2, opcode: 'RDMA_WRITE', pieces: [c.buffer.piece(0, 3 * 1024)], remote: REMOTE },
    { wrId: 3, opcode: 'RDMA_READ', pieces: [c.buffer.piece(0, 4 * 1024)], remote: REMOTE },
    { wrId: 4, opcode: 'SEND', inline: PING },
  ).take();
  return c;
}

describe.each(KINDS)('a NAK %s', (kind) => {
  test.each([
    ['the first packet of a message', 1001, 1, 2],
    ['a packet in its middle, which requested no ACK', 1002, 1, 2],
    ['its last packet', 1003, 1, 2],
    ['a packet whose message the peer already counts', 1003, 2, 2],
    ['a READ behind a message that it acknowledges', 1004, 2, 3],
  ])('for %s counts', async (_, psn, msn, wrId) => {
    const c = await busy();
    c.in(3, nak[kind]({ psn, msn }));
    expect(c.qp.poll().find(({ status }) => status === STATUS[kind])?.wrId).toBe(wrId);
    c.state('ERR').counts({ drop_implausible_nak: 0 });
  });

  test('is refused and counted for an MSN that the peer cannot have', async () => {
    const c = await busy();
    const forged = [0, 5, 0x800000, 0xffffff].map((msn) => nak[kind]({ psn: 1002, msn }));
    c.in(3, ...forged).counts({ drop_implausible_nak: 4 });
    // it acknowledges nothing either
    expect(c.qp.attribute('UNACKED_PSN')).toBe(1001);
    c.state('RTS');
    c.in(4, ack({ psn: 1003, msn: 2 })).wc({ wrId: 2 });
    c.take();
  });

  test('is refused for a packet that is not in flight', async () => {
    const c = await busy();
    c.in(3, nak[kind]({ psn: 1000, msn: 1 }), nak[kind]({ psn: 1009, msn: 1 })).state('RTS');
    c.counts({ drop_ghost_response: 2 });
  });
});
