/** Reads packet captures: pcap and pcapng, in either byte order, compressed with gzip or zstd or not. */
import { readFileSync } from 'node:fs';
import * as zlib from 'node:zlib';
import { numberHex } from '../packet/hex.js';
import type { Capture, CapturedPacket } from './captured.js';
import { readPcap } from './pcap.js';
import { readPcapng } from './pcapng.js';
import { isKnownLinkType, LINK_TYPES } from './unwrap.js';

const GZIP = Uint8Array.of(0x1f, 0x8b);
const ZSTD = Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd);
const MAGIC_BYTES = 4;

/**
 * Reads a capture. A file that ends in the middle of a packet, as that of a tcpdump which still runs, is read up to
 * there, and a remark says so.
 * @throws RangeError when it is neither pcap nor pcapng, or is compressed in a way that this Node.js cannot undo
 * @throws Error of node:fs when the file cannot be read
 */
export function readCapture(pathOrBytes: string | Uint8Array): Capture {
  const file = typeof pathOrBytes === 'string' ? new Uint8Array(readFileSync(pathOrBytes)) : pathOrBytes;
  const { bytes, remarks } = decompress(file);
  if (bytes.length < MAGIC_BYTES)
    throw new RangeError(
      file.length === 0
        ? 'the file is empty'
        : `the file has ${bytes.length} bytes${file === bytes ? '' : ' behind its compression'}, too few for a capture`,
    );
  const capture = readPcapng(bytes) ?? readPcap(bytes);
  if (capture === undefined) {
    const magic = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0);
    throw new RangeError(`the file starts with ${numberHex(magic)}, which is neither pcap nor pcapng`);
  }
  return { ...capture, remarks: [...remarks, ...capture.remarks, ...foreignLinks(capture.packets)] };
}

/** Returns a remark for each link type that is not read. */
function foreignLinks(packets: readonly CapturedPacket[]): string[] {
  const counts = new Map<number, number>();
  for (const { linkType = 1 } of packets) counts.set(linkType, (counts.get(linkType) ?? 0) + 1);
  return [...counts]
    .filter(([linkType]) => !isKnownLinkType(linkType))
    .map(([linkType, count]) => `${count} packets have link type ${linkType}, must be one of ${LINK_TYPES}.`);
}

function decompress(file: Uint8Array): { bytes: Uint8Array; remarks: string[] } {
  const starts = (magic: Uint8Array) => magic.every((byte, i) => file[i] === byte);
  if (starts(GZIP)) return undo(file, 'gzip', (options) => zlib.gunzipSync(file, options), zlib.constants.Z_SYNC_FLUSH);
  if (!starts(ZSTD)) return { bytes: file, remarks: [] };
  // since Node.js 22.15
  const { zstdDecompressSync } = zlib as { zstdDecompressSync?: typeof zlib.gunzipSync };
  if (zstdDecompressSync === undefined)
    throw new RangeError(`the file is compressed with zstd, which Node.js ${process.version} cannot read: run zstd -d`);
  return undo(file, 'zstd', (options) => zstdDecompressSync(file, options), 0);
}

/** @param partial the flush mode that gives what there is of a stream without an end */
function undo(
  file: Uint8Array,
  name: string,
  decompressSync: (options?: zlib.ZlibOptions) => Buffer,
  partial: number,
): { bytes: Uint8Array; remarks: string[] } {
  try {
    return { bytes: new Uint8Array(decompressSync()), remarks: [] };
  } catch (cause) {
    try {
      const bytes = new Uint8Array(decompressSync({ finishFlush: partial }));
      return { bytes, remarks: [`The ${name} stream ends too early, after ${file.length} bytes.`] };
    } catch {
      throw new RangeError(`the ${name} stream is damaged: ${(cause as Error).message}`, { cause });
    }
  }
}
