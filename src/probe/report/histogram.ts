/** Measured values as a drawing: SVG that takes its colours from the page. */
import { escaped } from '../ladder/template.js';
import type { Distribution } from './distribution.js';
import { valueText } from './values.js';

const [WIDTH, HEIGHT, BASE] = [640, 120, 98];
const BINS = 40;
/** Values that span more than this ratio are drawn by their logarithms. */
const LOGARITHMIC = 50;

/** Returns a histogram with lines at the median and the 99th percentile, or nothing if all values are the same. */
export function histogram(name: string, values: readonly number[], of: Distribution): string {
  const { min, max, median, p99, unit } = of;
  if (min === max) return '';
  const isLogarithmic = min > 0 && max / min > LOGARITHMIC;
  const scale = (value: number) => (isLogarithmic ? Math.log(value) : value);
  const share = (value: number) => (scale(value) - scale(min)) / (scale(max) - scale(min));
  const counts = new Array<number>(BINS).fill(0);
  for (const value of values) {
    const bin = Math.min(BINS - 1, Math.floor(share(value) * BINS));
    counts[bin] = (counts[bin] as number) + 1;
  }
  const most = Math.max(...counts);
  const step = WIDTH / BINS;
  const number = (value: number) => Number(value.toFixed(1));
  const bars = counts.flatMap((count, i) => {
    const height = Math.max(2, (count / most) * (BASE - 8));
    const title = `<title>${count} values</title>`;
    const box = `x="${number(i * step + 1)}" y="${number(BASE - height)}" width="${number(step - 2)}"`;
    return count === 0 ? [] : [`<rect ${box} height="${number(height)}">${title}</rect>`];
  });
  const line = (value: number, kind: string) => {
    const x = number(Math.min(WIDTH - 1, Math.max(1, share(value) * WIDTH)));
    return `<line class="${kind}" x1="${x}" x2="${x}" y1="2" y2="${BASE}"/>`;
  };
  const label = `${name}: ${values.length} values from ${valueText(min, unit)} to ${valueText(max, unit)}`;
  return [
    `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escaped(label)}">`,
    ...bars,
    `<path class="axis" d="M0 ${BASE}H${WIDTH}"/>`,
    line(median, 'median'),
    line(p99, 'p99'),
    `<text x="0" y="${HEIGHT - 6}">${escaped(valueText(min, unit))}</text>`,
    `<text x="${WIDTH}" y="${HEIGHT - 6}" text-anchor="end">${escaped(valueText(max, unit))}</text>`,
    ...(isLogarithmic ? [`<text x="${WIDTH / 2}" y="${HEIGHT - 6}" text-anchor="middle">logarithmic</text>`] : []),
    '</svg>',
  ].join('');
}
