// An explanation shows the packets concerned.
import { expect, test } from 'vitest';
import { headerOf, tracedPackets } from '../../src/device/decode.js';
import { Trace } from '../../src/device/trace.js';
import {
  describe as describeFrame,
  encodeFrame,
  flowOf,
  request,
  response,
  uc,
} from '../../src/probe/packet/packets.js';
import { rc } from '../kit/conversation.js';
import { complete, ICRC_OFFLOAD } from '../kit/offload.js';
import type { Sent } from '../kit/rig.js';
import { connectedPair } from './pair.js';

test('the trace has the last packets of a queue pair, sent and received, with their times', async () => {
  await using pair = await connectedPair({ open: { trace: 64 } });
  const { a, b } = pair;
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 8), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
  await a.cq.next({ timeout: 20_000 });
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 8), remoteAddr: b.mr.iova, rkey: (b.mr.rkey ^ 1) >>> 0 });
  const wc = await a.cq.next({ timeout: 20_000 });
  const { packets } = a.device.explain(wc);
  expect(packets).toHaveLength(4);
  expect(packets[2]).toMatch(
    /^ +-?\d+\.\d{3} ms {2}sent {2}[\d.]+ > [\d.]+, RC RDMA_WRITE_ONLY qp 0x\w+ psn \d+, ACK requested, va 0x\w+ rkey 0x\w+ length 8, 8 bytes$/,
  );
  expect(packets[3]).toMatch(/ 0\.000 ms {2}came .* RC ACKNOWLEDGE qp 0x\w+ psn \d+, NAK: remote access error, msn 1/);
});

test('the trace of a queue pair leaves out others, and keeps the given number of packets', async () => {
  await using pair = await connectedPair({ open: { trace: 4 }, connect: { timeout: 5, retryCnt: 1 } });
  const { a, b } = pair;
  const other = await a.pd.createQp({ sendCq: a.cq });
  const there = await b.pd.createQp({ sendCq: b.cq });
  await other.connect(there.endpoint());
  await there.connect(other.endpoint());
  a.qp.postSend({ opcode: 'SEND' });
  b.qp.postRecv({});
  await a.cq.next({ timeout: 20_000 });
  other.postSend({ opcode: 'RDMA_WRITE', remoteAddr: 1, rkey: 1, sgList: a.mr.sge(0, 1) });
  const wc = await a.cq.next({ timeout: 20_000 });
  const { packets } = wc.explain();
  expect(packets).toHaveLength(2);
  expect(packets.join()).not.toContain('SEND');
});

test('the trace has the packets of a super-packet one by one', async () => {
  await using pair = await connectedPair({ open: { trace: 64 }, connect: { pathMtu: 256 } });
  const { a, b } = pair;
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 2000), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
  await a.cq.next({ timeout: 20_000 });
  const texts = ({ engine }: typeof a.device, sent: boolean) =>
    tracedPackets(engine.trace).flatMap((packet) => (packet.sent === sent ? [packet.text] : []));
  expect(texts(b.device, false)).toEqual(texts(a.device, true));
  expect(texts(b.device, false)).toHaveLength(8);
});

test('the trace has a frame as it leaves, although its link fetches the payload later', async () => {
  const c = await rc({ mtu: 1024 });
  const trace = new Trace(c.rig.card, 4);
  c.rig.x.setLink(ICRC_OFFLOAD, 0, 0, 0);
  // of the second packet, more is in the frame than is kept
  c.qp.send({ opcode: 'SEND', pieces: [c.buffer.piece(0, 1024 + 500)] });
  c.rig.x.tx(0, 2);
  trace.recordSent(5);
  const sent = c.rig.sent(0);
  for (const { bytes, options } of sent) complete(bytes, options, (place, length) => c.rig.bytesAt(place, length));
  const kept = trace.frames();
  expect(kept).toHaveLength(2);
  for (const [n, { bytes }] of (sent as [Sent, Sent]).entries())
    expect(kept[n]).toEqual({ bytes: bytes.slice(0, 112), length: bytes.length, sent: true, at: 5 });
});

test('a device without traceFrames keeps no packets', async () => {
  await using pair = await connectedPair();
  pair.a.qp.postSend({ opcode: 'RDMA_WRITE', remoteAddr: 1, rkey: 1, sgList: pair.a.mr.sge(0, 1) });
  expect((await pair.a.cq.next({ timeout: 20_000 })).explain().packets).toEqual([]);
});

test('the trace decodes the headers of all kinds of frames, and cut ones without an exception', () => {
  const packets = [
    request.sendOnly({ psn: 1, payload: new Uint8Array(5) }),
    uc(request.sendOnly({ psn: 1, payload: new Uint8Array(5) })),
    request.read({ psn: 2, va: 0x1234n, rkey: 7, length: 9 }),
    response.readOnly({ psn: 3, msn: 4, payload: new Uint8Array(3) }),
  ];
  for (const way of [{}, { vlan: 5 }, { srcIp: 'fd00::2', dstIp: 'fd00::1' }]) {
    for (const packet of packets) {
      const bytes = encodeFrame(flowOf(way), packet);
      const header = headerOf(bytes, bytes.length);
      expect(header?.psn).toBe(packet.bth.psn);
      expect(header?.text).toContain(`${packet.payload?.length ?? 0} bytes`);
      expect(describeFrame(bytes)).toContain(`psn ${header?.psn}`);
      for (let length = 0; length < bytes.length; length++) headerOf(bytes.subarray(0, length), length);
    }
  }
});
