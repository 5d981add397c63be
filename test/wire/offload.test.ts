/** The ICRC in two parts: the card's, and the share of a link with LinkFeatures.icrcOffload. */
import { beforeEach, describe, expect, test } from 'vitest';
import { ack, decode, type Flow, frame, request } from '../../src/probe/packet/packets.js';
import { type Conversation, pattern, rc, TARGET_VA } from '../kit/conversation.js';
import { headerBytes } from '../kit/gsobursts.js';
import { complete, fold, ICRC_OFFLOAD, share } from '../kit/offload.js';
import type { Sent } from '../kit/rig.js';

const MTU = 4096;
/** Around each length at which the link's share grows, and each path MTU. */
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

  test.each(SIZES)('what a card sends with %i bytes is left to its link, which completes it', (length) => {
    c.rig.x.setLink(ICRC_OFFLOAD, 0, 0, 0);
    c.qp.send({ opcode: 'SEND', pieces: length === 0 ? [] : [c.buffer.piece(0, length)] });
    const [sent] = c.rig.sent(0) as [Sent];
    const padded = Math.ceil(length / 4) * 4;
    expect(sent.options >>> 17).toBe(share(12 + padded + 4));
    expect(decode(sent.bytes).icrcOk).toBe(padded < 256);
    expect(complete(sent.bytes, sent.options)).toBe(0);
    expect(decode(sent.bytes)).toMatchObject({ icrcOk: true, payload: c.buffer.bytes.slice(0, length) });
  });

  test.each(SIZES)('what a link has folded of a packet with %i bytes is taken, and damage is seen', (length) => {
    const payload = pattern(length, 77);
    const packet = () =>
      frame(
        c.there,
        request.writeOnly({ psn: 100, va: TARGET_VA, rkey: c.target.rkey, length, payload, ackReq: true }),
      );
    const size = packet().length;
    const extensions = headerBytes(packet()) + 12;
    const end = size - 4;
    const start = end - share(size - headerBytes(packet()));
    const before = c.target.bytes.slice();
    // behind the BTH, in front of the share, at its start, within it, at its end, and in the ICRC
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
