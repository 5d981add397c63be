/**
 * A READ whose response would not fit the window is requested in parts, each before the response to the previous one
 * has ended.
 */
import { expect, test } from 'vitest';
import { nak, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, pattern, type RcOptions, rc } from '../kit/conversation.js';

const MTU = 256;
const PACKETS = 80;
const REMOTE = { va: 0x1_0000_0000n, rkey: 0x77 };
const DATA = pattern(PACKETS * MTU, 99);
/** The initial window, and the number of its packets after which half of the next part fits. */
const FIRST = 32;
const HALF = 11;

const asked = (place: number, packets: number): Packet =>
  request.read({
    psn: 1000 + place,
    va: REMOTE.va + BigInt(place * MTU),
    rkey: REMOTE.rkey,
    length: packets * MTU,
    ackReq: true,
  });
const answer = (place: number, packets: number, msn: number): Packet[] =>
  response.read({ psn: 1000 + place, msn, mtu: MTU, payload: DATA.slice(place * MTU, (place + packets) * MTU) });

/** A READ has requested its first window, and half of the response has arrived. */
async function reading(options: RcOptions = {}, packets = PACKETS): Promise<Conversation> {
  const c = await rc({ mtu: MTU, maxRdAtomic: 2, timeout: 14, ...options });
  const read = { wrId: 1, opcode: 'RDMA_READ', pieces: [c.buffer.piece(0, packets * MTU)], remote: REMOTE };
  c.post(0, read).out(asked(0, FIRST));
  return c.in(1, ...answer(0, FIRST, 1).slice(0, HALF));
}

test('the second part is requested while the response to the first arrives, the third when that has ended', async () => {
  const c = await reading();
  c.out(asked(32, 22))
    .in(2, ...answer(0, FIRST, 1).slice(HALF, -1))
    .silent()
    .in(3, ...answer(0, FIRST, 1).slice(-1))
    .out(asked(54, 26))
    .in(4, ...answer(32, 22, 2), ...answer(54, 26, 3))
    .wc({ wrId: 1, byteLen: PACKETS * MTU })
    .holds(c.buffer, 0, DATA);
});

test('a peer with one resource is asked for one part at a time', async () => {
  const c = await reading({ maxRdAtomic: 1 });
  c.silent()
    .in(2, ...answer(0, FIRST, 1).slice(HALF))
    .out(asked(32, 48))
    .in(3, ...answer(32, 48, 2))
    .wc({ wrId: 1 });
});

test('two parts take two resources: another READ waits until one is free', async () => {
  const c = await reading();
  c.out(asked(32, 22));
  c.post(1, { wrId: 2, opcode: 'RDMA_READ', pieces: [c.buffer.piece(0, 8)], remote: REMOTE }).silent();
  c.in(2, ...answer(0, FIRST, 1).slice(HALF)).out(asked(54, 26));
  // the third part takes the response resource that the first one released
  c.in(3, ...answer(32, 22, 2)).out(request.read({ psn: 1080, ...REMOTE, length: 8, ackReq: true }));
  c.in(4, ...answer(54, 26, 3), ...response.read({ psn: 1080, msn: 4, mtu: MTU, payload: pattern(8) }));
  c.wc({ wrId: 1 }, { wrId: 2 });
});

test('a repeated part ends where it ended before', async () => {
  const c = await reading({ adaptive: false }, 54);
  c.out(asked(32, 22))
    .at(70_000)
    // the window was halved, and has room for the first part only
    .out(asked(11, 21))
    .in(70_001, ...answer(11, 21, 1))
    .out(asked(32, 22))
    .in(70_002, ...answer(32, 22, 2).slice(0, 5))
    .silent()
    .at(150_000)
    .out(asked(37, 17))
    .in(150_001, ...answer(37, 17, 2))
    .wc({ wrId: 1 })
    .holds(c.buffer, 0, DATA.slice(0, 54 * MTU))
    .counts({ local_ack_timeout_err: 2 });
});

test('a NAK with the PSN of a part’s request ends the READ, also when some of that part has come (rxe)', async () => {
  const c = await reading({ maxRdAtomic: 1 });
  c.silent()
    .in(2, ...answer(0, FIRST, 1).slice(HALF))
    .out(asked(32, 48))
    .in(3, ...answer(32, 48, 2).slice(0, 5), nak.remoteAccess({ psn: 1032, msn: 2 }))
    .wc({ wrId: 1, status: 'REM_ACCESS_ERR' });
});

test('a NAK with the PSN of a request that was repeated from the middle ends the READ', async () => {
  const c = await reading({ adaptive: false }, FIRST);
  c.silent()
    .at(70_000)
    .out(asked(HALF, FIRST - HALF))
    .in(70_001, ...answer(HALF, FIRST - HALF, 1).slice(0, 2), nak.remoteAccess({ psn: 1000 + HALF, msn: 1 }))
    .wc({ wrId: 1, status: 'REM_ACCESS_ERR' });
});

test('a queue pair that is connected again has forgotten the part', async () => {
  const c = await reading();
  c.out(asked(32, 22));
  c.qp.modify({ STATE: 0 });
  c.qp.connect({ destQpn: c.there.srcQp, sqPsn: 1000, rqPsn: 100, mtu: MTU, maxRdAtomic: 2 });
  const read = (wrId: number) => ({ wrId, opcode: 'RDMA_READ', pieces: [c.buffer.piece(0, 8)], remote: REMOTE });
  c.post(2, read(3), read(4));
  expect(c.take()).toHaveLength(2);
});
