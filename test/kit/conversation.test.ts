/** The harness of the conversation tests must itself detect errors. */
import { expect, test } from 'vitest';
import { ack, request } from '../../src/probe/packet/packets.js';
import { PING, rc, send } from './conversation.js';

test('a wrong answer is reported with both packets, the time, and what was sent before', async () => {
  const c = await rc({ receives: 1 });
  const wrong = () => c.in(7, send({ psn: 100 })).out(ack({ psn: 100, msn: 2 }));
  expect(wrong).toThrow(/^at 7 us: the card should have sent\n {4}.*msn 2.*\nbut sent\n {4}.*msn 1,.*\nfirst diff.*\n/);
  c.wc({ wrId: 1 });
});

test('a missing or additional answer is reported', async () => {
  const c = await rc({ receives: 2 });
  expect(() => c.in(0, send({ psn: 100 })).silent()).toThrow(/should have sent\n {4}nothing/);
  const twice = () => c.in(1, send({ psn: 101 })).out(ack({ psn: 101, msn: 2 }), ack({ psn: 101, msn: 2 }));
  expect(twice).toThrow(/but sent\n {4}nothing/);
  c.wc({ wrId: 1 }, { wrId: 2 });
});

test('an unexpected packet is reported with the next step, and at the end', async () => {
  const c = await rc({ receives: 2 });
  c.in(0, send({ psn: 100 }));
  expect(() => c.at(1)).toThrow(/should have sent\n {4}nothing/);
  expect(() => c.end()).toThrow(/completions should be/);
  c.in(2, request.sendMiddle({ psn: 101, payload: PING }));
  c.take();
  c.wc({ status: 'WR_FLUSH_ERR' });
  expect(() => c.end()).toThrow(/events should be \[\] but are \[QP_REQ_ERR\]/);
});

test('completions, states, counters and memory are compared', async () => {
  const c = await rc({ receives: 1 });
  c.in(0, send({ psn: 100 })).out(ack({ psn: 100, msn: 1 }));
  expect(() => c.wc({ wrId: 2 })).toThrow(/"wrId":2.*\nbut are\n.*"wrId":1/);
  expect(() => c.state('ERR')).toThrow('should be ERR but is RTS');
  expect(() => c.counts({ rcvd_pkts: 2 })).toThrow('{"rcvd_pkts":2} but are {"rcvd_pkts":1}');
  expect(() => c.holds(c.buffer, 0, Uint8Array.of(112, 0))).toThrow('byte 1 of the region should be 0 but is 105');
  expect(() => c.at(-1)).toThrow('time goes back');
});
