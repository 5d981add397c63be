/** Messages of the communication manager in captures of real peers. */
import { parseMad } from '../../src/cm/core/mad.js';
import type { Message } from '../../src/cm/core/messages.js';
import { decode } from '../../src/probe/packet/packets.js';
import { CAPTURES, roceFrames } from '../kit/fixtures.js';

/** A captured message. */
export interface CapturedMad {
  /** IP addresses as text. */
  readonly from: string;
  readonly to: string;
  readonly bytes: Uint8Array;
  readonly message: Message;
}

/** Returns the messages to queue pair 1 in a capture. */
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

/** Captures with at least one such message. */
export const CM_CAPTURES = CAPTURES.filter((name) => capturedMads(name).length > 0);
