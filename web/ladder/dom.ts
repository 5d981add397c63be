/** Elements, colours, times and the theme, for all programs of the pages. */

/** Returns the element with an id. @throws Error if the page has none */
export function element<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no element ${id}`);
  return found as T;
}

/** Returns a colour of the theme by its name in view.css. */
export const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Returns nanoseconds for people, with the same number of digits everywhere. */
export function timeText(ns: number): string {
  if (ns >= 1e9) return `${(ns / 1e9).toFixed(6)} s`;
  return ns >= 1e6 ? `${(ns / 1e6).toFixed(3)} ms` : `${(ns / 1e3).toFixed(1)} µs`;
}

/** Sets the theme that the reader prefers. */
export function useTheme(): void {
  if (matchMedia('(prefers-color-scheme: dark)').matches) document.documentElement.classList.add('dark');
}

/** Switches between light and dark. */
export function switchTheme(): void {
  document.documentElement.classList.toggle('dark');
}

/** Draws a line. */
export function line(context: CanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number): void {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

/** Sets a canvas to the pixels of its element. @returns its context, width and height in CSS pixels */
export function prepare(canvas: HTMLCanvasElement): [CanvasRenderingContext2D, number, number] {
  const scale = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext('2d') as CanvasRenderingContext2D;
  context.scale(scale, scale);
  return [context, width, height];
}
