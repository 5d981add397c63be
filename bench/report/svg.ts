/** A chart of horizontal bars as SVG, readable on light and on dark pages. */

export interface Bar {
  readonly label: string;
  readonly value: number;
  /** Selects the colour. */
  readonly kind: 'ours' | 'beside' | 'bare';
}

export interface Chart {
  readonly title: string;
  /** Machine, commit and date. */
  readonly subtitle: string;
  readonly unit: string;
  readonly groups: readonly { readonly label: string; readonly bars: readonly Bar[] }[];
}

const WIDTH = 860;
const LABELS = 250;
const VALUES = 70;
const ROW = 22;
const GROUP = 34;
const TOP = 62;

const STYLE = `
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 17px; font-weight: 600 } .small { font-size: 11px; fill: #656d76 } .group { font-weight: 600 }
  .ours { fill: #1a7f37 } .beside { fill: #8c959f } .bare { fill: #c9d1d9 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #8d96a0 }
    .ours { fill: #3fb950 } .beside { fill: #6e7681 } .bare { fill: #3d444d }
  }`;

/** @throws RangeError for a chart without any bar */
export function chart({ title, subtitle, unit, groups }: Chart): string {
  const longest = Math.max(...groups.flatMap(({ bars }) => bars.map(({ value }) => value)));
  if (!Number.isFinite(longest)) throw new RangeError(`the chart "${title}" has no bars`);
  const scale = (WIDTH - LABELS - VALUES) / longest;
  const parts: string[] = [];
  let y = TOP;
  for (const { label, bars } of groups) {
    parts.push(text(0, y + 16, label, 'group'));
    y += GROUP - 8;
    for (const bar of bars) {
      const width = Math.max(1, bar.value * scale).toFixed(1);
      parts.push(text(LABELS - 8, y + 14, bar.label, '', 'end'));
      parts.push(`<rect class="${bar.kind}" x="${LABELS}" y="${y + 2}" width="${width}" height="${ROW - 5}" rx="2"/>`);
      parts.push(text(LABELS + Number(width) + 6, y + 14, shown(bar.value)));
      y += ROW;
    }
    y += 8;
  }
  const key = `${unit}; green: ours, grey: beside, pale: the bare link without a protocol`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y + 8}" width="${WIDTH}" height="${y + 8}" role="img">`,
    `<title>${escaped(title)}</title><style>${STYLE}</style>`,
    text(0, 18, title, 'title'),
    text(0, 36, key, 'small'),
    text(0, 51, subtitle, 'small'),
    ...parts,
    '</svg>\n',
  ].join('\n');
}

function shown(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

function text(x: number, y: number, content: string, kind = '', anchor = ''): string {
  const attributes = `${kind && ` class="${kind}"`}${anchor && ` text-anchor="${anchor}"`}`;
  return `<text x="${x.toFixed(0)}" y="${y}"${attributes}>${escaped(content)}</text>`;
}

function escaped(content: string): string {
  return content.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
