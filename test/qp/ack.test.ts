/** The completer: the effect of ACKs and NAKs on the requests in flight (IBTA 9.7.5.1). */
import { describe, test } from 'vitest';
import { ack, nak, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, rc } from '../kit/conversation.js';

const REMOTE = { va: 0x10000n, rkey: 0x77 };
const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });
const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });
const read = (c: Conversation, wrId: number, length: number) => ({
  wrId,
  opcode: 'RDMA_READ',
  pieces: [c.buffer.piece(0, length)],
  remote: REMOTE,
});
const reading = (psn: number, length: number) => request.read({ psn, ...REMOTE, length, ackReq: true });

/** Three SENDs in flight, 1000 to 1002. */
async function three(options = {}): Promise<Conversation> {
  const c = await rc(options);
  return c.post(0, ping(1), ping(2), ping(3)).out(sent(1000), sent(1001), sent(1002));
}

/** The first retransmitted packet requests an ACK, so that the peer reports other losses soon. */
function repeated(packets: readonly Packet[], from: number): Packet[] {
  return packets
    .slice(from)
    .map((packet, i) => (i === 0 ? { ...packet, bth: { ...packet.bth, ackReq: true } } : packet));
}

test('one ACK covers every request up to its PSN', async () => {
  const c = await three();
  c.in(1, ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 })
    .in(2, ack({ psn: 1002, msn: 3 }))
    .wc({ wrId: 3 });
});

test('an ACK in the middle of a message completes nothing, and counts as progress', async () => {
  const c = await rc({ mtu: 256, timeout: 1 });
  const payload = c.buffer.bytes.slice(0, 600);
  const packets = request.send({ psn: 1000, payload, mtu: 256 });
  c.post(0, { wrId: 1, opcode: 'SEND', pieces: [c.buffer.piece(0, 600)] })
    .out(...packets)
    .in(5, ack({ psn: 1001, msn: 0 }))
    .wc()
    .at(8.5)
    .silent()
    .at(13.5)
    .out(...repeated(packets, 2))
    .in(14, ack({ psn: 1002, msn: 1 }))
    .wc({ wrId: 1 });
});

test('an ACK of an older PSN is a ghost', async () => {
  const c = await three();
  c.in(1, ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 })
    .in(2, ack({ psn: 1000, msn: 1 }), nak.sequence({ psn: 1001 }), nak.remoteAccess({ psn: 1000 }))
    .silent()
    .wc()
    .state('RTS')
    .counts({ drop_ghost_response: 3 })
    .in(3, ack({ psn: 1002, msn: 3 }))
    .wc({ wrId: 3 });
});

test('a response to a PSN that was never sent is a ghost', async () => {
  const c = await three();
  c.in(
    1,
    ack({ psn: 1003, msn: 4 }),
    ack({ psn: 0x7fffff, msn: 0 }),
    nak.sequence({ psn: 1003 }),
    nak.remoteAccess({ psn: 1500 }),
  )
    .silent()
    .in(2, nak.rnr({ psn: 1003, timer: 1 }), response.readOnly({ psn: 1003, msn: 1 }))
    .silent()
    .wc()
    .state('RTS')
    .counts({ drop_ghost_response: 6 })
    .in(3, ack({ psn: 1002, msn: 3 }))
    .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 });
});

test('reserved syndromes and NAK codes are ignored', async () => {
  const c = await three();
  const reserved = [0x40, 0x5f, 0x65, 0x7f, 0x80, 0x9f, 0xff, 0x64];
  c.in(1, ...reserved.map((syndrome) => ack({ psn: 1000, msn: 1, syndrome })))
    .silent()
    .wc()
    .counts({ drop_reserved_syndrome: reserved.length })
    .in(2, ack({ psn: 1002, msn: 3 }))
    .wc({}, {}, {});
});

test('an ACK with credits acknowledges like any other, and credits do not limit a queue pair without flow control', async () => {
  const c = await three();
  c.in(1, ack({ psn: 1002, msn: 3, syndrome: 0 }))
    .wc({}, {}, {})
    .post(2, ping(4))
    .out(sent(1003))
    .in(3, ack({ psn: 1003, msn: 4, syndrome: 0x0d }))
    .wc({ wrId: 4 });
});

test('a sequence NAK acknowledges all before it, and all from it on is repeated at once', async () => {
  const c = await three();
  c.in(1, nak.sequence({ psn: 1001, msn: 1 }))
    .out(sent(1001), sent(1002))
    .wc({ wrId: 1 })
    .in(2, ack({ psn: 1002, msn: 3 }))
    .wc({ wrId: 2 }, { wrId: 3 })
    .counts({ rcvd_seq_err: 1, retransmits: 2 });
});

test('a message is repeated from the missing packet, not from its start', async () => {
  const c = await rc({ mtu: 256 });
  const packets = request.write({ psn: 1000, payload: c.buffer.bytes.slice(0, 1000), mtu: 256, ...REMOTE });
  c.post(0, { wrId: 1, opcode: 'RDMA_WRITE', pieces: [c.buffer.piece(0, 1000)], remote: REMOTE })
    .out(...packets)
    .in(1, nak.sequence({ psn: 1002 }))
    .out(...repeated(packets, 2))
    .in(2, nak.sequence({ psn: 1003 }))
    .out(...repeated(packets, 3))
    .in(3, ack({ psn: 1003, msn: 1 }))
    .wc({ wrId: 1 });
});

test('a repeated packet is made anew from memory', async () => {
  const c = await rc();
  c.post(0, { wrId: 1, opcode: 'SEND', pieces: [c.buffer.piece(0, 4)] }).out(
    request.sendOnly({ psn: 1000, payload: c.buffer.bytes.slice(0, 4), ackReq: true }),
  );
  c.buffer.bytes.set(PING);
  c.in(1, nak.sequence({ psn: 1000 }))
    .out(sent(1000))
    .in(2, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1 });
});

test('a late ACK ends the repetition of what has arrived', async () => {
  const c = await three();
  c.in(1, nak.sequence({ psn: 1000 }), ack({ psn: 1001, msn: 2 }))
    .out(sent(1002))
    .wc({ wrId: 1 }, { wrId: 2 })
    .in(2, ack({ psn: 1002, msn: 3 }))
    .wc({ wrId: 3 });
});

describe('a fatal NAK fails its request, completes those before it and flushes those behind it', () => {
  const FATAL = [
    [nak.invalidRequest, 'REM_INV_REQ_ERR', 0x61],
    [nak.remoteAccess, 'REM_ACCESS_ERR', 0x62],
    [nak.remoteOperational, 'REM_OP_ERR', 0x63],
  ] as const;
  test.each(FATAL)('%o gives %s', async (make, status, syndrome) => {
    const c = await three({ receives: 1 });
    c.in(1, make({ psn: 1001, msn: 1 }))
      .silent()
      .wc(
        { wrId: 1, opcode: 'SEND' },
        { wrId: 2, status, syndrome, psn: 1001 },
        { wrId: 3, status: 'WR_FLUSH_ERR' },
        { wrId: 1, status: 'WR_FLUSH_ERR', opcode: 'RECV' },
      )
      .state('ERR')
      .counts({ req_cqe_error: 1 })
      .in(2, ack({ psn: 1002, msn: 3 }))
      .silent();
  });
});

test('a fatal NAK with the PSN of the next response of a partly answered READ fails the READ', async () => {
  const c = await rc();
  const [first] = response.read({ psn: 1000, msn: 1, payload: c.target.bytes.slice(0, 3000), mtu: 1024 });
  if (!first) throw new Error('a packet');
  c.post(0, read(c, 1, 3000))
    .out(reading(1000, 3000))
    .in(1, first)
    .in(2, nak.remoteAccess({ psn: 1001, msn: 1 }))
    .wc({ wrId: 1, status: 'REM_ACCESS_ERR', opcode: 'RDMA_READ', syndrome: 0x62 })
    .state('ERR');
});

test('a fatal NAK with the PSN of a partly answered READ’s request fails the READ (rxe)', async () => {
  const c = await rc();
  const [first] = response.read({ psn: 1000, msn: 1, payload: c.target.bytes.slice(0, 3000), mtu: 1024 });
  if (!first) throw new Error('a packet');
  c.post(0, read(c, 1, 3000), ping(2))
    .out(reading(1000, 3000), sent(1003))
    .in(1, first)
    .in(2, nak.remoteAccess({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1, status: 'REM_ACCESS_ERR', opcode: 'RDMA_READ' }, { wrId: 2, status: 'WR_FLUSH_ERR' })
    .state('ERR');
});

test('a fatal NAK behind a READ without its response is an implied NAK of the READ, and counts when it is repeated', async () => {
  const c = await rc();
  const payload = c.target.bytes.slice(0, 8);
  c.post(0, read(c, 1, 8), ping(2))
    .out(reading(1000, 8), sent(1001))
    .in(1, nak.remoteAccess({ psn: 1001, msn: 1 }))
    .out(reading(1000, 8), sent(1001))
    .wc()
    .in(2, response.readOnly({ psn: 1000, msn: 1, payload }))
    .wc({ wrId: 1 })
    .in(3, nak.remoteAccess({ psn: 1001, msn: 1 }))
    .wc({ wrId: 2, status: 'REM_ACCESS_ERR' })
    .state('ERR');
});

test('PSNs of requests and ACKs wrap at 2^24', async () => {
  const c = await rc({ sqPsn: 0xfffffe });
  c.post(0, ping(1), ping(2), ping(3), ping(4))
    .out(sent(0xfffffe), sent(0xffffff), sent(0), sent(1))
    .in(1, ack({ psn: 0xffffff, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 })
    .in(2, nak.sequence({ psn: 0, msn: 2 }))
    .out(sent(0), sent(1))
    .in(3, ack({ psn: 0xfffffe, msn: 2 }))
    .silent()
    .in(4, ack({ psn: 1, msn: 4 }))
    .wc({ wrId: 3 }, { wrId: 4 })
    .counts({ drop_ghost_response: 1 });
});

test('a NAK before the wrap repeats packets across it', async () => {
  const c = await rc({ sqPsn: 0xffffff, mtu: 256 });
  const packets = request.send({ psn: 0xffffff, payload: c.buffer.bytes.slice(0, 700), mtu: 256 });
  c.post(0, { wrId: 1, opcode: 'SEND', pieces: [c.buffer.piece(0, 700)] })
    .out(...packets)
    .in(1, nak.sequence({ psn: 0xffffff }))
    .out(...repeated(packets, 0))
    .in(2, nak.sequence({ psn: 0 }))
    .out(...repeated(packets, 1))
    .in(3, ack({ psn: 1, msn: 1 }))
    .wc({ wrId: 1, byteLen: 700 });
});

test('at least two packets of a window ask for an ACK, and the window is not exceeded', async () => {
  const c = await rc({ mtu: 256 });
  const [length, payload] = [40 * 256, c.buffer.bytes.slice(0, 40 * 256)];
  const packets = request.send({ psn: 1000, payload, mtu: 256 });
  for (const i of [15, 31]) (packets[i] as Packet).bth.ackReq = true;
  c.post(0, { wrId: 1, opcode: 'SEND', pieces: [c.buffer.piece(0, length)] })
    .out(...packets.slice(0, 32))
    .in(1, ack({ psn: 1015, msn: 0 }))
    .out(...packets.slice(32))
    .in(2, ack({ psn: 1039, msn: 1 }))
    .wc({ wrId: 1, byteLen: length });
});
