/** The captures of real peers in test/fixtures/captures; the README there says how each was made. */
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { readCapture } from '../../src/probe/capture/read.js';
import { isRoce } from '../../src/probe/packet/decode.js';

const FOLDER = fileURLToPath(new URL('../fixtures/captures/', import.meta.url));
const SUFFIX = '.pcap.gz';

/** Names of all captures, sorted. */
export const CAPTURES: readonly string[] = readdirSync(FOLDER)
  .filter((file) => file.endsWith(SUFFIX))
  .map((file) => file.slice(0, -SUFFIX.length))
  .sort();

export function capturePath(name: string): string {
  if (!CAPTURES.includes(name)) throw new RangeError(`unknown capture ${name}; there are ${CAPTURES.join(', ')}`);
  return FOLDER + name + SUFFIX;
}

/** Returns the RoCEv2 frames of a capture, in order. */
export function roceFrames(name: string): Uint8Array[] {
  return readCapture(capturePath(name))
    .packets.map((packet) => packet.data)
    .filter(isRoce);
}

/** Captures of packets with a wrong ICRC: rxe 6.12 covers the headers of a FLUSH twice. */
export const FLUSH_CAPTURES: readonly string[] = ['rxt_flush_global', 'rxt_flush_mr'];
