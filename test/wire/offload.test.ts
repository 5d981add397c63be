/** The ICRC in two parts: the card's, and the span that is left to a link with LinkFeatures.icrcOffload. */
import { beforeEach, describe, expect, test } from 'vitest';
import { ack, decode, encodeFrame, type Flow, request } from '../../src/probe/packet/packets.js';
import { type Conversation, datagrams, pattern, rc, TARGET_VA, unreliable } from '../kit/conversation.js';
import { createAh } from '../kit/datagrams.js';
import { headerBytes } from '../kit/gsobursts.js';
import { complete, FETCH_SPAN, fold, ICRC_OFFLOAD, span } from '../kit/offload.js';
import type { SendRequest, Sent } from '../kit/rig.js';

const MTU = 4096;
/** Around each length at which the ICRC span grows, and each path MTU. */
const SIZES = [
  0, 1, 64, 252, 253, 255, 256, 257, 300, 511, 512, 513, 1000, 1024, 1028, 2047, 2048, 2052, 3000, 4092, 4096,
];

describe.each<[string, Partial<Flow>, Parameters<typeof rc>[0]]>([
  ['IPv4', {}, {}],
  [
    'IPv6',
    { srcIp: 'fd00::2', dstIp: 'fd00::1' },
    { localIp: [0xfd, ...Array(14).fill(0), 1], remoteIp: [0xfd, ...Array(14).fill(0), 2] },
  ],
])('%s', (_name, flow, options) => {
  let c: Conversation;
  beforeEach(async () => {
    c = await rc({ mtu: MTU, flow, ...options });
  });

  test.each(SIZES)('the span of a sent packet with %i bytes is left to the link, which completes it', (length) => {
    c.rig.x.setLink(ICRC_OFFLOAD, 0, 0, 0);
    c.qp.send({ opcode: 'SEND', pieces: length === 0 ? [] : [c.buffer.piece(0, length)] });
    const [sent] = c.rig.sent(0) as [Sent];
    const padded = Math.ceil(length / 4) * 4;
    expect(sent.options >>> 17).toBe(span(12 + padded + 4));
    // what ends in a pad is not fetched
    expect(sent.options & FETCH_SPAN).toBe(length >= 256 && length === padded ? FETCH_SPAN : 0);
    expect(decode(sent.bytes).icrcOk).toBe(padded < 256);
    expect(complete(sent.bytes, sent.options, (at, bytes) => c.rig.bytesAt(at, bytes))).toBe(0);
    expect(decode(sent.bytes)).toMatchObject({ icrcOk: true, payload: c.buffer.bytes.slice(0, length) });
  });

  test.each(SIZES)('a folded packet with %i bytes is taken, and damage is detected', (length) => {
    const payload = pattern(length, 77);
    const packet = () =>
      encodeFrame(
        c.there,
        request.writeOnly({ psn: 100, va: TARGET_VA, rkey: c.target.rkey, length, payload, ackReq: true }),
      );
    const size = packet().length;
    const extensions = headerBytes(packet()) + 12;
    const end = size - 4;
    const start = end - span(size - headerBytes(packet()));
    const before = c.target.bytes.slice();
    // behind the BTH, in front of the span, at its start, within it, at its end, and in the ICRC
    for (const place of [extensions, start - 1, start, (start + end) >> 1, end - 1, end, size - 1]) {
      if (place < extensions) continue;
      const damaged = packet();
      damaged[place] = (damaged[place] as number) ^ 4;
      c.frameWith(0, damaged, fold(damaged, 0)).silent();
    }
    expect(Buffer.compare(c.target.bytes, before)).toBe(0);
    const good = packet();
    c.frameWith(0, good, fold(good, 0))
      .out(ack({ psn: 100, msn: 1 }))
      .holds(c.target, 0, payload);
  });
});

describe('the span that a link fetches', () => {
  const unsignaled = { signalAll: false };
  const post =
    (request: Omit<SendRequest, 'pieces'>, ...pieces: readonly [offset: number, length: number][]) =>
    (c: Conversation) =>
      expect(
        c.qp.send({ signaled: false, ...request, pieces: pieces.map(([at, length]) => c.buffer.piece(at, length)) }),
      ).toBe('OK');
  const write = (c: Conversation) => ({ opcode: 'RDMA_WRITE', remote: { va: TARGET_VA, rkey: c.target.rkey } });
  const readOf2500 = (c: Conversation) => {
    c.target.bytes.set(pattern(2500));
    const packet = request.read({ psn: 100, va: TARGET_VA, rkey: c.target.rkey, length: 2500 });
    c.rig.put(encodeFrame(c.there, packet));
    c.rig.x.rx(0, 1);
  };

  /** Our path MTU is 1024. `fetched` has the bytes that are fetched of each packet. */
  test.each<[string, number[], (c: Conversation) => void, () => Promise<Conversation>]>([
    ['of a WRITE of several packets', [1024, 1024, 256], (c) => post(write(c), [0, 2500])(c), rc],
    ['of a SEND of several packets', [1024, 1024, 256], post({ opcode: 'SEND' }, [0, 2500]), rc],
    ['of a SEND with immediate data', [1024, 0], post({ opcode: 'SEND_WITH_IMM', imm: 1 }, [0, 1276]), rc],
    ['of a READ response', [1024, 1024, 256], readOf2500, rc],
    ['not of a packet whose span begins in its headers', [0], (c) => post(write(c), [0, 1020])(c), rc],
    ['behind other pieces', [512], post({ opcode: 'SEND' }, [0, 100], [300, 600]), rc],
    ['not when it is in two pieces', [0, 1024], post({ opcode: 'SEND' }, [0, 700], [1000, 1348]), rc],
    ['not when it ends in a pad', [1024, 0], post({ opcode: 'SEND' }, [0, 1501]), rc],
    ['of a piece that is at no multiple of anything', [1024], post({ opcode: 'SEND' }, [13, 1024]), rc],
    [
      'not of inline data',
      [0],
      (c) => void c.qp.send({ opcode: 'SEND', inline: pattern(512) }),
      () => rc({ inline: 512 }),
    ],
    ['of a UC message', [1024, 256], post({ opcode: 'SEND' }, [0, 1400]), () => unreliable(unsignaled)],
    [
      'of a datagram',
      [1024],
      (c) => post({ opcode: 'SEND', to: { ah: createAh(c.qp), qpn: 9, qkey: 1 } }, [0, 1024])(c),
      () => datagrams(unsignaled),
    ],
  ])('%s', async (_name, fetched, act, open) => {
    const sent = async (flags: number) => {
      const c = await open();
      c.buffer.bytes.set(pattern(4000, 3));
      c.rig.x.setLink(flags, 0, 0, 0);
      act(c);
      const bytesAt = (place: number, bytes: number) => c.rig.bytesAt(place, bytes);
      return { frames: c.rig.sent(0), bytesAt };
    };
    const [shared, alone] = [await sent(ICRC_OFFLOAD), await sent(0)];
    expect(shared.frames.map(({ options }) => (options & FETCH_SPAN ? options >>> 17 : 0))).toEqual(fetched);
    for (const { bytes, options } of shared.frames) complete(bytes, options, shared.bytesAt);
    expect(shared.frames.map(({ bytes }) => bytes)).toEqual(alone.frames.map(({ bytes }) => bytes));
    for (const { bytes } of alone.frames) expect(decode(bytes).icrcOk).toBe(true);
  });

  test('the rights of each SGE are checked all the same', async () => {
    const c = await rc();
    c.rig.x.setLink(ICRC_OFFLOAD, 0, 0, 0);
    const { ptr, length, lkey } = c.buffer.piece(0, 1024);
    c.qp.send({ wrId: 7, opcode: 'SEND', pieces: [{ ptr, length, lkey: lkey ^ 0x100 }] });
    expect(c.rig.sent(0)).toEqual([]);
    c.wc({ wrId: 7, status: 'LOC_PROT_ERR' }).state('ERR');
  });
});
