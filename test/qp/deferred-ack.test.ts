/**
 * The ACK of packets that the peer is about to send again. rxe, whose requests have MigReq 0, is acknowledged as far as
 * its packets have come in the order in which it sends them; other peers get the ACK of all at once.
 */
import { describe, expect, test } from 'vitest';
import { ack, nak, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, pattern, type RcOptions, rc, send, TARGET_VA } from '../kit/conversation.js';
import { ACK_TIMER } from './measured-rtt.js';

/** A conversation with a peer whose requests have MigReq 0. */
async function rxe(options: RcOptions = {}): Promise<Conversation> {
  const c = await rc({ receives: 8, minRnrTimer: 14, ...options, flow: { migReq: false } });
  Object.assign(c.back, { migReq: true });
  return c;
}

/** A gap of one packet is filled, and two packets wait behind it. */
function fill(c: Conversation): Conversation {
  return c
    .in(0, send({ psn: 101 }), send({ psn: 102 }))
    .out(nak.sequence({ psn: 100 }))
    .in(1, send({ psn: 100, ackReq: false }))
    .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 });
}

const deferredAcks = (c: Conversation): number =>
  c.rig.decisions(c.qp.qpn).filter((line) => line.includes('sends the ACK of psn 102')).length;

describe('the ACK of packets that have waited behind a gap', () => {
  test('comes at once if requests have MigReq 1', async () => {
    const c = fill(await rc({ receives: 8 }))
      .out(ack({ psn: 102, msn: 3 }))
      .at(10 * ACK_TIMER)
      .silent();
    expect(deferredAcks(c)).toBe(0);
  });

  test('comes packet by packet if requests have MigReq 0, as the peer sends them again', async () => {
    const c = fill(await rxe())
      .silent()
      .in(2, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 3 }))
      .in(3, send({ psn: 102 }))
      .out(ack({ psn: 102, msn: 3 }))
      .at(10 * ACK_TIMER)
      .silent();
    expect(deferredAcks(c)).toBe(0);
  });

  test('covers the packet that fills the gap if that one asks for it', async () => {
    const c = await rxe();
    c.in(0, send({ psn: 101 }))
      .out(nak.sequence({ psn: 100 }))
      .in(1, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 })
      .in(2, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }));
  });

  test('is deferred behind a second gap, which the peer fills while it sends all again', async () => {
    const c = await rxe();
    c.in(0, send({ psn: 101 }), send({ psn: 103 }))
      .out(nak.sequence({ psn: 100 }))
      .in(1, send({ psn: 100, ackReq: false }))
      .wc({ wrId: 1 }, { wrId: 2 })
      .in(2, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }))
      .in(3, send({ psn: 102, ackReq: false }))
      .silent()
      .wc({ wrId: 3 }, { wrId: 4 })
      .in(4, send({ psn: 103 }))
      .out(ack({ psn: 103, msn: 4 }));
  });

  test('comes at once if the gap fills before its NAK is sent', async () => {
    const c = await rxe();
    c.in(0, send({ psn: 101 }), send({ psn: 100 }))
      .out(ack({ psn: 101, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 })
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('comes at once if the NAK was sent before a RESET', async () => {
    const c = await rxe();
    c.in(0, send({ psn: 101 })).out(nak.sequence({ psn: 100 }));
    c.qp.modify({ STATE: 0 });
    c.qp.connect({ destQpn: c.there.srcQp, sqPsn: 1000, rqPsn: 100 });
    c.recv(1, 0, 64)
      .recv(2, 0, 64)
      .in(1, send({ psn: 101 }), send({ psn: 100 }))
      .out(ack({ psn: 101, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 });
  });

  test('comes after an ACK timeout if the rest of the second transmission is lost', async () => {
    const c = fill(await rxe());
    c.in(5, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 3 }))
      .at(5 + ACK_TIMER - 0.001)
      .silent()
      .at(5 + ACK_TIMER)
      .out(ack({ psn: 102, msn: 3 }))
      .at(10 * ACK_TIMER)
      .silent();
    expect(deferredAcks(c)).toBe(1);
  });

  test('is not sent beside the ACK of a new packet', async () => {
    const c = fill(await rxe());
    c.in(2, send({ psn: 103 }))
      .out(ack({ psn: 103, msn: 4 }))
      .wc({ wrId: 4 })
      .at(10 * ACK_TIMER)
      .silent();
    expect(deferredAcks(c)).toBe(0);
  });

  test('is not sent beside the NAK of another gap', async () => {
    const c = fill(await rxe());
    c.in(2, send({ psn: 104 }))
      .out(nak.sequence({ psn: 103, msn: 3 }))
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('covers no request that is refused when it comes again', async () => {
    const c = await rxe({ receives: 1 });
    const refused = request.writeOnly({ psn: 101, va: 0n, rkey: 7, payload: pattern(4), ackReq: true });
    c.in(0, refused)
      .out(nak.sequence({ psn: 100 }))
      .in(1, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .in(2, refused)
      .out(nak.remoteAccess({ psn: 101, msn: 1 }))
      .events('QP_ACCESS_ERR');
  });

  test('covers no message that finds no receive until it comes again', async () => {
    const c = await rxe({ receives: 1 });
    c.in(0, send({ psn: 101 }), send({ psn: 102 }))
      .out(nak.sequence({ psn: 100 }))
      .in(1, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .recv(2, 0, 64)
      .recv(2, 0, 64)
      .in(3, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 3 }))
      .wc({ wrId: 2 }, { wrId: 2 })
      .in(4, send({ psn: 102 }))
      .out(ack({ psn: 102, msn: 3 }));
  });

  test('is not sent beside an RNR NAK', async () => {
    const c = fill(await rxe({ receives: 3 }));
    c.in(2, send({ psn: 103 }))
      .out(nak.rnr({ psn: 103, msn: 3, timer: 14 }))
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('is not sent by a queue pair that has failed', async () => {
    const c = fill(await rxe({ receives: 3 }));
    c.at(2, () => c.qp.modify({ STATE: 6 }))
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('is not sent early as an update of credits', async () => {
    const c = await rxe({ receives: 3, flowControl: true });
    c.in(0, send({ psn: 101 }), send({ psn: 102 }))
      .out(nak.sequence({ psn: 100 }))
      .in(1, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 3, syndrome: 0 }))
      .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 })
      .recv(2, 0, 64)
      .at(2)
      .silent()
      .in(3, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 3, syndrome: 1 }));
  });
});

/** Two messages are executed, and acknowledged together. */
function execute(c: Conversation): Conversation {
  return c
    .in(0, send({ psn: 100, ackReq: false }), send({ psn: 101 }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 });
}

describe('the ACK of a duplicate', () => {
  test('covers all that was executed if the duplicate has MigReq 1', async () => {
    execute(await rc({ receives: 8 }))
      .in(ACK_TIMER, send({ psn: 100, ackReq: false }))
      .out(ack({ psn: 101, msn: 2 }))
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('covers only the duplicate if that has MigReq 0, and the rest after an ACK timeout', async () => {
    execute(await rxe())
      .in(ACK_TIMER, send({ psn: 100, ackReq: false }))
      .out(ack({ psn: 100, msn: 2 }))
      .in(ACK_TIMER + 5, send({ psn: 100, ackReq: false }))
      .out(ack({ psn: 100, msn: 2 }))
      .at(2 * ACK_TIMER + 4.999)
      .silent()
      .at(2 * ACK_TIMER + 5)
      .out(ack({ psn: 101, msn: 2 }))
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('is sent once if the duplicate is the newest packet', async () => {
    execute(await rxe())
      .in(5, send({ psn: 100, ackReq: false }))
      .out(ack({ psn: 100, msn: 2 }))
      .in(6, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }))
      .at(10 * ACK_TIMER)
      .silent();
  });

  test.each([false, true])(
    'never covers a READ behind it, whose response alone acknowledges it: MigReq %s',
    async (migReq) => {
      const c = await (migReq ? rc({ receives: 8 }) : rxe());
      const read = request.read({ psn: 102, va: TARGET_VA, rkey: c.target.rkey, length: 4 });
      const data = response.readOnly({ psn: 102, msn: 3, payload: pattern(4, 2) });
      c.in(0, send({ psn: 100, ackReq: false }), send({ psn: 101, ackReq: false }), read)
        .out(data)
        .wc({ wrId: 1 }, { wrId: 2 })
        .in(5, send({ psn: 100, ackReq: false }))
        .out(ack({ psn: migReq ? 101 : 100, msn: 3 }))
        .at(5 + ACK_TIMER)
        .out(...(migReq ? [] : [ack({ psn: 101, msn: 3 })]))
        .at(10 * ACK_TIMER)
        .silent();
    },
  );
});
