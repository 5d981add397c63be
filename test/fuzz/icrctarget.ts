/**
 * Frames of any length, whole, damaged or cut off, for the addon's part of the ICRC offload. Each lies at the end of an
 * ArrayBuffer of the C heap, so that the address sanitizer sees an access behind it.
 */
import { native } from '../../src/native.js';
import { encodeFrame, request } from '../../src/probe/packet/packets.js';
import { IcrcRings } from '../kit/icrcrings.js';
import type { Random } from '../kit/random.js';
import type { FuzzTarget, Session } from './fuzzer.js';
import { mutate } from './mutations.js';
import { FROM_PEER } from './target.js';

/** An input: the alignment, the share and the address that the descriptor says (16 bits, big-endian), the frame. */
const PREFIX_BYTES = 5;
const ICRC_BYTES = 4;

class IcrcSession implements Session {
  next(random: Random): Uint8Array {
    const there = { ...FROM_PEER, ...(random.chance(0.3) && { vlan: random.below(4096) }) };
    const v6 = { srcIp: 'fd00::2', dstIp: 'fd00::1' };
    const payload = new Uint8Array(random.pick([random.below(4400), random.below(300), 256 * random.below(17)]));
    const whole = encodeFrame(random.chance(0.5) ? there : { ...there, ...v6 }, request.sendOnly({ psn: 1, payload }));
    const damaged = random.chance(0.3) ? mutate(random, whole) : whole;
    const cut = random.chance(0.3) ? damaged.subarray(0, random.below(damaged.length + 1)) : damaged;
    const share = random.pick([256, 512, 1024, 2048, 4096, random.below(1 << 15)]);
    const address = random.below(2 * cut.length + 200);
    return Uint8Array.of(random.below(64), share >> 8, share & 255, address >> 8, address & 255, ...cut);
  }

  feed(inputs: readonly Uint8Array[]): void {
    for (const input of inputs) {
      const [shift, share, address] = [input[0] as number, word(input, 1), word(input, 3)];
      const bytes = input.subarray(PREFIX_BYTES);
      const rings = new IcrcRings(bytes, shift);
      checkChange(bytes, rings.fold().frame, false);
      // what was folded is undone by folding it again
      checkChange(bytes, rings.fold().frame, true);
      checkChange(bytes, rings.complete(share), false);
      rings.fetchFrom(share, address);
    }
  }

  check(): void {}

  async [Symbol.asyncDispose](): Promise<void> {}
}

function word(bytes: Uint8Array, at: number): number {
  return ((bytes[at] as number) << 8) | (bytes[at + 1] as number);
}

/** Checks that nothing but one ICRC has changed, or nothing at all. @throws Error */
function checkChange(before: Uint8Array, after: Uint8Array, isSame: boolean): void {
  const first = before.findIndex((byte, i) => byte !== after[i]);
  if (first === -1) return;
  const last = before.findLastIndex((byte, i) => byte !== after[i]);
  if (isSame || last - first >= ICRC_BYTES)
    throw new Error(`bytes ${first} to ${last} of ${before.length} have changed`);
}

export const icrcTarget: FuzzTarget = {
  name: 'icrc',
  about: 'frames of any length for the ICRC offload of the addon',
  batch: 64,
  batches: 200,
  unavailable() {
    try {
      return native().crcMethods().length === 0 ? 'this processor has no method for the CRC' : undefined;
    } catch (error) {
      return (error as Error).message;
    }
  },
  async open() {
    return new IcrcSession();
  },
};
