/** A headless Chromium, for the tests of pages. */
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';

/** Starts the browser. The caller closes it. */
export function launchBrowser(): Promise<Browser> {
  const paths = (process.env.PATH ?? '').split(delimiter).map((each) => join(each, 'chromium'));
  const quiet = ['--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
  const args = ['--no-sandbox', '--disable-gpu', ...quiet];
  return chromium.launch({ executablePath: paths.find((path) => existsSync(path)) as string, args });
}

/**
 * Opens a page from a file, and waits until its program is ready.
 * @param errors gets what goes wrong: exceptions, messages on the console, and requests to a network
 */
export async function openFile(
  browser: Browser,
  path: string,
  errors: string[],
  viewport = { width: 1200, height: 700 },
  options: BrowserContextOptions = {},
): Promise<Page> {
  const page = await browser.newPage({ viewport, ...options });
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('console', (message) => errors.push(message.text()));
  page.on('request', (sent) => {
    if (!/^(file|data):/.test(sent.url())) errors.push(sent.url());
  });
  await page.goto(`file://${path}`);
  await page.waitForSelector('body[data-ready]');
  return page;
}

/** Returns how many pairs of the elements overlap, and whether the page is wider than its window. */
export function overlaps(page: Page, selector: string): Promise<{ over: number; wide: boolean }> {
  return page.evaluate((all) => {
    const boxes = Array.from(document.querySelectorAll(all), (each) => each.getBoundingClientRect());
    const isOver = (a: DOMRect, b: DOMRect) =>
      a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    const over = boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => isOver(a, b)));
    return { over: over.length, wide: document.documentElement.scrollWidth > innerWidth };
  }, selector);
}

/** Returns the smallest contrast of the colours for text to the colours of a page's ground. */
export function contrast(
  page: Page,
  theme: string,
  grounds: readonly string[] = ['--ground'],
  colours: readonly string[] = ['--text', '--faint', '--trouble'],
): Promise<number> {
  return page.evaluate(
    ([name, names, all]) => {
      document.documentElement.className = name;
      const style = getComputedStyle(document.documentElement);
      const luminance = (variable: string) => {
        const hex = style.getPropertyValue(variable).trim().slice(1);
        const [r, g, b] = [0, 2, 4].map((at) => {
          const part = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
          return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        }) as [number, number, number];
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const contrasts = all.flatMap((each) =>
        names.map((ground) => {
          const [own, under] = [luminance(each), luminance(ground)];
          return (Math.max(own, under) + 0.05) / (Math.min(own, under) + 0.05);
        }),
      );
      return Math.min(...contrasts);
    },
    [theme, grounds, colours] as const,
  );
}
