// RoCEv2 within other frames: each wrapping gives the same packet.
import { expect, test } from 'vitest';
import { decodeCaptured } from '../../src/probe/capture/roce.js';
import { encodeFrame, flowOf, request } from '../../src/probe/packet/packets.js';
import { hex, WRAPPINGS } from '../kit/capturefile.js';
import { Random } from '../kit/random.js';

const payload = Uint8Array.from({ length: 99 }, (_, i) => i);
const packet = request.writeOnly({ psn: 7, va: 0x1000n, rkey: 0x99, payload });
const data = encodeFrame(flowOf(), packet);

test.each(Object.entries(WRAPPINGS))('%s is taken off', (_name, { linkType, outer, wrap }) => {
  for (const trailer of [0, 4]) {
    const view = decodeCaptured({
      data: new Uint8Array(Buffer.concat([wrap(data), new Uint8Array(trailer)])),
      linkType,
    });
    expect(view).toMatchObject({ ...packet, payloadBytes: 99, tail: { icrcOk: true }, outer });
    expect(view?.headers).toEqual(data.subarray(14, 14 + 20 + 8 + 12 + 16));
  }
});

test('IPv6 is taken off the same ways, and options before UDP are skipped', () => {
  const six = encodeFrame(flowOf({ srcIp: 'fe80::2', dstIp: 'fe80::1' }), packet);
  for (const [name, { linkType, wrap }] of Object.entries(WRAPPINGS))
    if (!/^(MPLS with IP|GRE with IP|IP in IP|IPv4)$/.test(name))
      expect(decodeCaptured({ data: wrap(six), linkType }), name).toMatchObject({ ...packet, tail: { icrcOk: true } });
});

test('a frame that is cut anywhere shows the headers that it has, and never more', () => {
  const whole = decodeCaptured({ data });
  for (let length = 0; length < data.length; length++) {
    const view = decodeCaptured({ data: data.subarray(0, length) });
    // Ethernet, IP, UDP and BTH
    if (length < 14 + 20 + 8 + 12) expect(view).toBeUndefined();
    else {
      expect(view).toMatchObject({ bth: whole?.bth, payloadBytes: 99 });
      expect(view?.tail).toBeUndefined();
      expect(view?.reth).toEqual(length < 54 + 16 ? undefined : whole?.reth);
      expect(view?.payload).toEqual(payload.subarray(0, Math.max(0, Math.min(99, length - 70))));
    }
  }
});

test('bytes at random, and wrappings within wrappings without end, are not RoCEv2', () => {
  const random = new Random(1);
  const links = [...new Set(Object.values(WRAPPINGS).map(({ linkType }) => linkType))];
  for (const { linkType, wrap } of Object.values(WRAPPINGS)) {
    const wrapped = wrap(data);
    for (let i = 0; i < 200; i++) {
      const bytes = wrapped.slice(0, random.below(wrapped.length + 1));
      for (let k = 0; k < 4; k++) bytes[random.below(bytes.length || 1)] = random.below(256);
      for (const link of [linkType, random.pick(links)]) decodeCaptured({ data: bytes, linkType: link });
    }
  }
  const tags = Uint8Array.from({ length: 9000 }, (_, i) => [0x81, 0, 0, 5][i & 3] as number);
  expect(decodeCaptured({ data: tags, linkType: 1 })).toBeUndefined();
  expect(decodeCaptured({ data: hex('60000000 0008 3c40'), linkType: 101 })).toBeUndefined();
  expect(decodeCaptured({ data, linkType: 127 })).toBeUndefined();
});
