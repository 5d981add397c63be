/** Requests that arrive ahead of a gap wait until it is filled; the gap's NAK is sent as ever (IBTA 9.7.5.2.2). */
import { expect, test } from 'vitest';
import { ack, nak, request, response } from '../../src/probe/packet/packets.js';
import { PING, pattern, rc, send, TARGET_VA } from '../kit/conversation.js';
import { Rig } from '../kit/rig.js';

/** Room for the buffer of the card beside what the test needs; see assembly/qp/reorder.ts. */
const BUFFER_BYTES = 256 * 65 * 64;

test('buffered packets are executed in the order of their PSNs, once, when the gap is filled', async () => {
  const c = await rc({ receives: 4 });
  c.in(0, send({ psn: 102, payload: pattern(4, 2) }))
    .out(nak.sequence({ psn: 100 }))
    .in(1, send({ psn: 103, payload: pattern(4, 3) }), send({ psn: 101, payload: pattern(4, 1) }))
    .silent()
    .in(2, send({ psn: 100 }))
    .out(ack({ psn: 103, msn: 4 }))
    .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 }, { wrId: 4 })
    .holds(c.buffer, 4096, pattern(4, 1))
    .holds(c.buffer, 2 * 4096, pattern(4, 2))
    .holds(c.buffer, 3 * 4096, pattern(4, 3))
    .in(3, send({ psn: 102 }))
    .out(ack({ psn: 103, msn: 4 }))
    .counts({ out_of_seq_request: 1, rx_reordered: 3, drop_psn_ahead: 0, duplicate_request: 1 });
});

test('copies of buffered packets are ignored: the first one counts', async () => {
  const c = await rc({ receives: 2 });
  c.in(0, send({ psn: 101, payload: pattern(4) }))
    .out(nak.sequence({ psn: 100 }))
    .in(1, send({ psn: 101, payload: pattern(4, 9) }))
    .silent()
    .in(2, send({ psn: 100 }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 })
    .holds(c.buffer, 4096, pattern(4))
    .counts({ rx_reordered: 1 });
});

test('a second gap gets its NAK with the next packet that arrives ahead of it', async () => {
  const c = await rc({ receives: 5 });
  c.in(0, send({ psn: 101 }))
    .out(nak.sequence({ psn: 100 }))
    .in(1, send({ psn: 103 }))
    .silent()
    .in(2, send({ psn: 100 }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 })
    .in(3, send({ psn: 104 }))
    .out(nak.sequence({ psn: 102, msn: 2 }))
    .in(4, send({ psn: 102 }))
    .out(ack({ psn: 104, msn: 5 }))
    .wc({ wrId: 3 }, { wrId: 4 }, { wrId: 5 })
    .counts({ out_of_seq_request: 2, rx_reordered: 3 });
});

test('packets of a WRITE are buffered, over the wrap of the PSNs, and a READ behind it is not', async () => {
  const c = await rc({ rqPsn: 0xfffffe });
  const remote = { va: TARGET_VA, rkey: c.target.rkey };
  const [first, middle, last] = request.write({ psn: 0xfffffe, ...remote, payload: pattern(2500), mtu: 1024 });
  if (!first || !middle || !last) throw new Error('three packets');
  c.in(0, request.read({ psn: 1, ...remote, length: 8 }))
    .out(nak.sequence({ psn: 0xfffffe }))
    .in(1, last, middle)
    .silent()
    .in(2, first)
    .out(ack({ psn: 0, msn: 1 }))
    .in(3, request.read({ psn: 1, ...remote, length: 8 }))
    .out(response.readOnly({ psn: 1, msn: 2, payload: pattern(2500).slice(0, 8) }))
    .holds(c.target, 0, pattern(2500))
    .counts({ rx_reordered: 2 });
});

test('a buffered request is checked in its turn: it may find no receive, or be refused', async () => {
  const c = await rc({ receives: 1, minRnrTimer: 1 });
  c.in(0, send({ psn: 101 }), request.writeOnly({ psn: 102, va: 0n, rkey: 7, payload: PING, ackReq: true }))
    .out(nak.sequence({ psn: 100 }))
    .in(1, send({ psn: 100 }))
    .out(nak.rnr({ psn: 101, msn: 1, timer: 1 }))
    .wc({ wrId: 1 })
    .recv(2, 0, 64)
    .in(2, send({ psn: 101 }))
    .out(nak.remoteAccess({ psn: 102, msn: 2 }))
    .wc({ wrId: 2 })
    .events('QP_ACCESS_ERR');
  expect(c.qp.state).toBe('ERR');
});

test('a packet further ahead than the window is dropped, whatever its PSN', async () => {
  const c = await rc({ receives: 2 });
  const window = c.rig.x.REORDER_WINDOW.value;
  c.in(0, send({ psn: 101 + window }), send({ psn: 100 + 0x7fffff }), send({ psn: 100 + window }))
    .out(nak.sequence({ psn: 100 }))
    .counts({ drop_psn_ahead: 1, rcvd_pkts: 2 });
});

test('no queue pair has more of the buffer than it leaves to others, and RESET and ERR give it back', async () => {
  const rig = await Rig.create();
  const free = () => rig.x.memAvailable();
  const peers = [];
  for (let i = 0; i < 8; i++) peers.push(await rc({ rig, flow: { srcQp: 0x100 + i } }));
  const connected = free();
  const filled = [];
  for (const c of peers) {
    c.in(0, ...Array.from({ length: 63 }, (_, i) => send({ psn: 101 + i }))).out(nak.sequence({ psn: 100 }));
    filled.push(c.qp.counters().rcvd_pkts);
  }
  // 256 slots: as many as the window has, or as are left
  expect(filled).toEqual([63, 63, 63, 34, 17, 8, 4, 2]);
  expect(free()).toBeLessThan(connected - BUFFER_BYTES);
  peers[0]?.qp.modify({ STATE: 6 });
  peers[1]?.qp.modify({ STATE: 0 });
  const late = await rc({ rig, flow: { srcQp: 0x200 }, receives: 3 });
  late
    .in(1, send({ psn: 101 }), send({ psn: 102 }))
    .out(nak.sequence({ psn: 100 }))
    .in(2, send({ psn: 100 }))
    .out(ack({ psn: 102, msn: 3 }))
    .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 });
  for (const c of [...peers, late]) rig.x.qpDestroy(c.qp.handle);
  expect(free()).toBeGreaterThan(connected - BUFFER_BYTES / 2);
});

test('a card without memory for the buffer drops packets instead', async () => {
  const c = await rc({ receives: 2 });
  for (let bytes = 8 << 20; bytes >= 64; bytes >>= 1) while (c.rig.x.memAlloc(bytes) !== 0);
  c.in(0, send({ psn: 101 }), send({ psn: 102 }))
    .out(nak.sequence({ psn: 100 }))
    .in(1, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1 })
    .counts({ drop_psn_ahead: 1, rx_reordered: 0 });
});
