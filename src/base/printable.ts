/**
 * Text of others for a terminal or a log. Characters that control a terminal, or change the order of other characters,
 * are replaced by their numbers: names and messages from the network must not clear a screen or forge a line.
 */

/** Control characters (C0, DEL, C1), formatting characters such as those of direction, and separators of lines. */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

function numbered(character: string): string {
  const code = character.codePointAt(0) as number;
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, '0')}`;
  return code < 0x10000 ? `\\u${code.toString(16).padStart(4, '0')}` : `\\u{${code.toString(16)}}`;
}

/** Returns a text in one line, every character of which is shown. */
export const printable = (text: string): string => text.replace(UNSAFE, numbered);

/** The same for text that has lines, tabs and what else `kept` matches as a whole. */
export function printableText(text: string, kept = /[\n\t]/g): string {
  let [out, at] = ['', 0];
  for (const { 0: part, index } of text.matchAll(kept)) {
    out += printable(text.slice(at, index)) + part;
    at = index + part.length;
  }
  return out + printable(text.slice(at));
}

/** Returns JSON, in which these characters are escaped too. */
export const printableJson = (value: unknown): string =>
  JSON.stringify(value).replace(UNSAFE, (character) =>
    // a code unit each
    character.replace(/./gs, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  );
