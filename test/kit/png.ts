/** PNG files with a palette: pictures of pages need a few colours, and a third of the bytes that a browser writes. */
import { crc32, deflateSync } from 'node:zlib';

const SIGNATURE = Buffer.from('89504e470d0a1a0a', 'hex');
const COLOURS = 256;
/** The bits of a colour that tell it from others. */
const ALIKE = 0xf0f0f0;

/** Returns the bytes of a PNG file. @param pixels red, green, blue and alpha of each; alpha is left out */
export function palettePng(width: number, height: number, pixels: Uint8Array): Buffer {
  const view = new DataView(pixels.buffer, pixels.byteOffset, pixels.byteLength);
  const colours = Array.from({ length: width * height }, (_, i) => view.getUint32(4 * i) >>> 8);
  const counts = new Map<number, number>();
  for (const colour of colours) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const byCount = [...counts].sort(([, a], [, b]) => b - a).map(([colour]) => colour);
  // of colours that are much alike, the most frequent one; the shades of one colour would take all places
  const seen = new Set<number>();
  const isNew = (key: number) => !seen.has(key) && seen.add(key);
  const palette = byCount.filter((colour) => isNew(colour & ALIKE)).slice(0, COLOURS);
  const indexes = new Map(byCount.map((colour) => [colour, nearest(colour, palette)]));
  // each row begins with the number of its filter: none
  const rows = Buffer.alloc((width + 1) * height);
  colours.forEach((colour, i) => {
    rows[i + Math.floor(i / width) + 1] = indexes.get(colour) ?? 0;
  });
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3], 8);
  const plte = Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]));
  const data = deflateSync(rows, { level: 9, memLevel: 9 });
  return Buffer.concat([SIGNATURE, chunk('IHDR', header), chunk('PLTE', plte), chunk('IDAT', data), chunk('IEND')]);
}

/** Returns the index of the colour of a palette that is nearest. */
function nearest(colour: number, palette: readonly number[]): number {
  const part = (of: number, shift: number) => (of >> shift) & 255;
  const distance = (other: number) =>
    [0, 8, 16].reduce((sum, shift) => sum + (part(colour, shift) - part(other, shift)) ** 2, 0);
  let [best, least] = [0, Number.POSITIVE_INFINITY];
  palette.forEach((other, i) => {
    const found = distance(other);
    if (found < least) [best, least] = [i, found];
  });
  return best;
}

function chunk(type: string, data = Buffer.alloc(0)): Buffer {
  const body = Buffer.concat([Buffer.from(type), data]);
  const framed = Buffer.alloc(body.length + 8);
  framed.writeUInt32BE(data.length, 0);
  framed.set(body, 4);
  framed.writeUInt32BE(crc32(body), body.length + 4);
  return framed;
}
