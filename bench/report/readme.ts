/** Generated parts of handwritten texts, between two comments with the name of the part. */

/** Returns the text with a new part. @throws RangeError when the text has no part of that name */
export function withPart(text: string, name: string, part: string): string {
  const [begin, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const from = text.indexOf(begin);
  const to = text.indexOf(end);
  if (from < 0 || to < from) throw new RangeError(`there is no ${begin} ... ${end}`);
  return `${text.slice(0, from + begin.length)}\n${part}\n${text.slice(to)}`;
}
