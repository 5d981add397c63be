/** Messages of the communication manager in the captures of real peers. */
import { parseMad } from '../../src/cm/mad.js';
import type { Message } from '../../src/cm/messages.js';
import { CAPTURES, roceFrames } from '../kit/fixtures.js';
import { decode } from '../kit/packets.js';

export interface CapturedMad {
  /** IP addresses as text. */
  readonly from: string;
  readonly to: string;
  readonly bytes: Uint8Array;
  readonly message: Message;
}

export function capturedMads(capture: string): CapturedMad[] {
  return roceFrames(capture)
    .map(decode)
    .filter(({ bth }) => bth.destQp === 1)
    .map(({ ip, payload }) => {
      const message = parseMad(payload);
      if (typeof message === 'string') throw new Error(`${capture}: ${message}`);
      return { from: ip.src, to: ip.dst, bytes: payload, message };
    });
}

export const CM_CAPTURES = CAPTURES.filter((name) => capturedMads(name).length > 0);
