/**
 * Queue pair 1: management datagrams. Apart from its number and its Q_Key it is a UD queue pair, see
 * test/qp/ud.test.ts.
 */
import { describe, expect, test } from 'vitest';
import { datagram, encodeFrame } from '../../src/probe/packet/packets.js';
import { datagrams, PING } from '../kit/conversation.js';
import { createAh } from '../kit/datagrams.js';
import { Rig } from '../kit/rig.js';

const GSI_QKEY = 0x80010000;
const mad = (qkey = GSI_QKEY) => datagram.sendOnly({ psn: 5, qkey, srcQp: 1, payload: PING });
const gsi = () => datagrams({ type: 'GSI', qkey: GSI_QKEY, receives: 2, flow: { srcQp: 1 } });

test('queue pair 1 exists once', async () => {
  const rig = await Rig.create();
  const first = rig.qp({ type: 'GSI' });
  expect(first.qpn).toBe(1);
  expect(() => rig.qp({ type: 'GSI' })).toThrow('EBUSY');
  rig.x.qpDestroy(first.handle);
  expect(rig.qp({ type: 'GSI' }).qpn).toBe(1);
});

test('has type UD', async () => {
  const { qp } = await gsi();
  expect(qp.attribute('TYPE')).toBe(4);
});

describe('its Q_Key', () => {
  test('is the well-known one, and no other is taken', async () => {
    const qp = (await Rig.create()).qp({ type: 'GSI' });
    expect(qp.modify({ STATE: 1, PKEY_INDEX: 0, PORT: 1, QKEY: 0x1234 })).toBe('EINVAL');
    expect(qp.refused()).toEqual({ missing: [], forbidden: [], range: ['QKEY'] });
    expect(qp.modify({ STATE: 1, PKEY_INDEX: 0, PORT: 1, QKEY: GSI_QKEY })).toBe('OK');
    expect(qp.modify({ STATE: 2, QKEY: 1 })).toBe('EINVAL');
  });

  test('lets datagrams in', async () => {
    const c = await gsi();
    c.in(0, mad(0x1234)).wc();
    expect(c.rig.counters()).toMatchObject({ drop_qkey: 1 });
    c.in(1, mad()).silent().wc({ wrId: 1, byteLen: 44, srcQpn: 1 });
  });

  test('is in datagrams with bit 31 of the work request’s Q_Key', async () => {
    const c = await gsi();
    const ah = createAh(c.qp);
    c.post(0, { opcode: 'SEND', pieces: [c.buffer.piece(0, 4)], to: { ah, qpn: 1, qkey: GSI_QKEY } })
      .out(datagram.sendOnly({ psn: 1000, qkey: GSI_QKEY, srcQp: 1, payload: c.buffer.bytes.slice(0, 4) }))
      .wc({ opcode: 'SEND' });
  });
});

test('other queue pairs never get its number, nor 0', async () => {
  const rig = await Rig.create(3, { maxQp: 512 });
  const all = Array.from({ length: 512 }, () => rig.qp({ sendWr: 1, recvWr: 1 }).qpn);
  expect(all.filter((qpn) => qpn < 2)).toEqual([]);
});

test('a datagram to queue pair 1 is dropped when there is none', async () => {
  const c = await datagrams();
  c.frames(0, encodeFrame({ ...c.there, destQp: 1 }, mad())).silent();
  expect(c.rig.counters()).toMatchObject({ drop_qpn: 1 });
});
