/** The addon's CRC and its part of the ICRC, beside the CRC byte by byte, the card's, and packets of real peers. */
import { beforeAll, describe, expect, test } from 'vitest';
import { RX_ICRC_FOLDED, TX_ICRC_SHIFT } from '../../src/link/frames.js';
import { native } from '../../src/native.js';
import { register } from '../../src/probe/packet/icrc.js';
import { decode, encodeFrame, flowOf, request } from '../../src/probe/packet/packets.js';
import { CAPTURES, FLUSH_CAPTURES, roceFrames } from '../kit/fixtures.js';
import { headerBytes } from '../kit/gsobursts.js';
import { IcrcRings } from '../kit/icrcrings.js';
import { complete, span } from '../kit/offload.js';
import { Random } from '../kit/random.js';
import { Wire } from '../wire/wire.js';

const SEED = Number(process.env.WASM_ROCE_SEED ?? 22);
const methods = native().crcMethods();
/** The byte of FECN, BECN and reserved bits, which the ICRC does not cover. */
const MASKED = 4;

/** Returns a copy with one bit flipped. */
function flipped(bytes: Uint8Array, place: number, bit: number): Uint8Array {
  const copy = Uint8Array.from(bytes);
  copy[place] = (copy[place] as number) ^ (1 << bit);
  return copy;
}

describe.skipIf(methods.length === 0)('the ICRC by the addon', () => {
  let wire: Wire;
  beforeAll(async () => {
    wire = await Wire.create();
  });

  /** Returns whether the card takes a frame whose ICRC the addon has folded. */
  function isTaken(bytes: Uint8Array, shift: number): boolean {
    const folded = new IcrcRings(bytes, shift).fold();
    expect(folded.options).toBe(RX_ICRC_FOLDED);
    return wire.parse(folded.frame, folded.options, shift) === 'ok' && wire.isIcrcRight;
  }

  test.each(methods)('%s agrees with the CRC byte by byte and with that of the card', (method) => {
    const random = new Random(SEED);
    const buffer = random.bytes(4096 + 64);
    const at = 1 << 17;
    wire.bytes.set(buffer, at);
    for (let n = 0; n < 500; n++) {
      const [length, shift] = [256 * random.between(1, 17), random.below(64)];
      const start = random.pick([0, 0xffffffff, random.u32()]);
      const bytes = buffer.subarray(shift, shift + length);
      const what = `seed ${SEED}, ${length} bytes`;
      const crc = native().crc(method, start, bytes);
      expect([crc, wire.exports.crc(start, at + shift, length) >>> 0], what).toEqual(
        Array(2).fill(register(start, bytes)),
      );
      const [before, behind] = [random.below(64), random.below(64)];
      const copy = new Uint8Array(before + length + behind);
      expect(native().crc(method, start, bytes, copy.subarray(before)), what).toBe(crc);
      const expected = Buffer.concat([Buffer.alloc(before), bytes, Buffer.alloc(behind)]);
      expect(Buffer.compare(copy, expected), what).toBe(0);
    }
  });

  test.each(CAPTURES.filter((name) => !FLUSH_CAPTURES.includes(name)))(
    '%s: each packet is intact, and damaged with a random bit flipped',
    (name) => {
      const random = new Random(SEED);
      for (const [n, bytes] of roceFrames(name).entries()) {
        const what = `packet ${n}, seed ${SEED}`;
        const shift = random.below(64);
        expect(isTaken(bytes, shift), what).toBe(true);
        const bth = headerBytes(bytes);
        const places = [random.between(bth, bytes.length), random.between(bth + 12, bytes.length)];
        for (const place of places) {
          expect(isTaken(flipped(bytes, place, random.below(8)), shift), `${what}, byte ${place}`).toBe(
            place === bth + MASKED,
          );
        }
      }
    },
  );

  const FLOWS = {
    IPv4: flowOf({ srcIp: '10.0.0.2', dstIp: '10.0.0.1' }),
    'IPv4 with a tag': flowOf({ srcIp: '10.0.0.2', dstIp: '10.0.0.1', vlan: 9 }),
    IPv6: flowOf({ srcIp: 'fd00::2', dstIp: 'fd00::1' }),
    'IPv6 with a tag': flowOf({ srcIp: 'fd00::2', dstIp: 'fd00::1', vlan: 9 }),
  };

  test.each(Object.entries(FLOWS))('%s: every bit of a packet counts, except the masked ones', (_name, there) => {
    const payload = new Random(SEED).bytes(260);
    const good = encodeFrame(there, request.sendOnly({ psn: 1, payload }));
    const bth = headerBytes(good);
    for (let place = bth; place < good.length; place++)
      for (let bit = 0; bit < 8; bit++)
        expect(isTaken(flipped(good, place, bit), bit), `byte ${place}, bit ${bit}`).toBe(place === bth + MASKED);
  });

  test.each(Object.entries(FLOWS))('%s: packets of all sizes, complete and folded', (_name, there) => {
    const random = new Random(SEED);
    for (let n = 0; n < 300; n++) {
      const payload = random.bytes(random.below(4097));
      const good = encodeFrame(there, request.sendOnly({ psn: n, payload }));
      const shift = random.below(64);
      const what = `${payload.length} bytes, seed ${SEED}`;
      expect(decode(good).icrcOk).toBe(true);
      expect(isTaken(good, shift), what).toBe(true);
      const left = span(good.length - headerBytes(good));
      const partial = Uint8Array.from(good);
      partial.set(random.bytes(4), partial.length - 4);
      const whole = Uint8Array.from(partial);
      complete(whole, left << TX_ICRC_SHIFT);
      expect(Buffer.compare(new IcrcRings(partial, shift).complete(left), whole), what).toBe(0);
      if (left > 0) expect(Buffer.compare(new IcrcRings(partial, shift).fetch(left), whole), what).toBe(0);
    }
  });
});
