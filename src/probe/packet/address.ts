/** Conversion of MAC and IP addresses between text and the bytes on the wire. */

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

export function macBytes(text: string): Uint8Array {
  const parts = text.split(':').map((part) => Number.parseInt(part, 16));
  if (parts.length !== 6 || parts.some((part) => !(part >= 0 && part < 256))) throw new RangeError(`no MAC: ${text}`);
  return Uint8Array.from(parts);
}

export function macText(bytes: Uint8Array): string {
  let text = HEX[bytes[0] as number] ?? '';
  for (const byte of bytes.subarray(1)) text += `:${HEX[byte]}`;
  return text;
}

/** Returns 4 bytes for an address with dots, 16 for one with colons. */
export function ipBytes(text: string): Uint8Array {
  if (!text.includes(':')) {
    const parts = text.split('.').map(Number);
    if (parts.length !== 4 || parts.some((part) => !(part >= 0 && part < 256)))
      throw new RangeError(`no IPv4: ${text}`);
    return Uint8Array.from(parts);
  }
  const [head = '', tail] = text.split('::');
  const groups = (part: string) => (part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16)));
  const left = groups(head);
  const right = tail === undefined ? [] : groups(tail);
  const missing = 8 - left.length - right.length;
  if (tail === undefined ? missing !== 0 : missing < 0) throw new RangeError(`no IPv6: ${text}`);
  const all = [...left, ...new Array<number>(missing).fill(0), ...right];
  return Uint8Array.from(all.flatMap((group) => [group >> 8, group & 255]));
}

/** Returns the text of an address; IPv6 in the canonical form of RFC 5952. */
export function ipText(bytes: Uint8Array): string {
  if (bytes.length === 4) return bytes.join('.');
  const groups: string[] = [];
  for (let i = 0; i < 16; i += 2) groups.push((((bytes[i] ?? 0) << 8) | (bytes[i + 1] ?? 0)).toString(16));
  return new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1);
}
