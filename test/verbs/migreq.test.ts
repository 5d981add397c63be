// The quirk that sends MigReq 0.
import { expect, test } from 'vitest';
import { throwIfFailed } from '../../src/index.js';
import { WireTap } from '../interop/wiretap.js';
import { connectedPair } from './pair.js';

test('a queue pair sends MigReq 1, and 0 while it has the quirk migReqZero', async () => {
  const tap = new WireTap();
  await using pair = await connectedPair({ open: { pcap: tap } });
  const { a, b } = pair;
  for (const quirks of [[], ['migReqZero'], []] as const) {
    a.qp.quirks = quirks;
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 8), remoteAddr: b.mr.remote.addr, rkey: b.mr.rkey });
    throwIfFailed(await a.cq.next({ timeout: 20_000 }));
  }
  // Both ends write to one capture.
  const saidTo = (qpn: number) =>
    tap
      .frames(qpn)
      .filter(({ direction }) => direction === 'out')
      .map(({ bth }) => bth.migReq);
  expect(saidTo(b.qp.qpNum)).toEqual([true, false, true]);
  expect(saidTo(a.qp.qpNum)).toEqual([true, true, true]);
});
