/** MigReq (IBTA 9.2.6): 1 unless the queue pair is set otherwise; received packets may have either value. */
import { test } from 'vitest';
import { ack, encodeFrame, request } from '../../src/probe/packet/packets.js';
import { rc, send } from '../kit/conversation.js';

test('requests and responses leave with MigReq 0 when it is switched off, and with 1 when it is on again', async () => {
  const c = await rc({ receives: 2 });
  const { x } = c.rig;
  x.qpQuirks(c.qp.handle, x.Quirk.MIG_REQ_ZERO);
  Object.assign(c.back, { migReq: false });
  c.in(0, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1 })
    .post(1, { opcode: 'SEND', wrId: 9 })
    .out(request.sendOnly({ psn: 1000, ackReq: true }))
    .frames(2, encodeFrame({ ...c.there, migReq: false }, ack({ psn: 1000, msn: 1 })))
    .wc({ wrId: 9 });
  x.qpQuirks(c.qp.handle, 0);
  Object.assign(c.back, { migReq: true });
  c.in(3, send({ psn: 101 }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 2 });
});
