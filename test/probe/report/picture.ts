/**
 * npm run picture: draws docs/report.png and docs/report-dark.png, which README shows: the report of a probe of an
 * endpoint in another network namespace, over a veth pair. Faults make packets of the endpoint wrong, so that the
 * report has all verdicts.
 */
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { run, start } from '../../cli/run.js';
import { launchBrowser, openFile } from '../../kit/browser.js';
import { palettePng } from '../../kit/png.js';
import { PeerNamespace } from '../../link/netns.js';
import { ROOT } from '../../repo/sources.js';

/** Two deviations that are known of adapters, and NAKs of a gap twice, which are none. */
const FAULTS = [
  'drop every CNP, always',
  'rewrite migreq=0 in every *, always',
  'duplicate every NAK syndrome=0x60, always',
];
/** The check whose packets are shown. */
const SHOWN = 'psn-gap';
/** Pixels of a page that is legible at the width of a README. */
const WIDTH = 1000;

const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-picture-'));

/** Runs the probe. @returns the path of the page */
async function probed(): Promise<string> {
  const namespace = await PeerNamespace.open('roce', 198, 1500);
  const [config, page] = [join(folder, 'config.json'), join(folder, 'report.html')];
  const access = ['remoteRead', 'remoteWrite', 'remoteAtomic'];
  const regions = { scratch: { size: '64k', access }, sealed: { size: '4k', access: ['remoteRead'] } };
  const services = [{ type: 'regions' }, { type: 'write-bw' }];
  writeFileSync(config, JSON.stringify({ interface: namespace.far, link: 'packet', regions, services }));
  const faults = FAULTS.flatMap((rule) => ['--fault', rule]);
  const endpoint = start(['endpoint', config, ...faults], { prefix: ['nsenter', ...namespace.enter] });
  try {
    await endpoint.prints((stdout) => stdout.includes(' ready '));
    const options = ['--intrusive', '--ib-dev', namespace.near, '--link', 'packet', '--html', page];
    const { stdout, stderr } = await run(['probe', namespace.farAddresses[0], ...options]);
    if (!/^\d+ pass, [1-9]\d* deviate, [1-9]\d* fail, /m.test(stdout))
      throw new Error(`the report lacks a verdict that the picture shows:\n${stdout}${stderr}`);
    return page;
  } finally {
    endpoint.child.kill();
    namespace.close();
  }
}

/** Draws the page from its top to the end of the check that is shown. The checks before it that pass are hidden. */
async function draw(page: string): Promise<void> {
  const browser = await launchBrowser();
  try {
    for (const [colorScheme, name] of [
      ['light', 'report.png'],
      ['dark', 'report-dark.png'],
    ] as const) {
      const errors: string[] = [];
      const tab = await openFile(
        browser,
        page,
        errors,
        { width: WIDTH, height: 700 },
        { colorScheme, deviceScaleFactor: 1.5 },
      );
      for (const verdict of ['pass', 'not-reachable', 'not-applicable'])
        await tab.uncheck(`#verdicts input[value=${verdict}]`);
      await tab.click(`#check-${SHOWN} summary`);
      const ladder = tab.frameLocator(`#check-${SHOWN} iframe`);
      await ladder.locator('body[data-ready]:not([inert])').waitFor();
      await tab.evaluate(() => {
        (document.activeElement as HTMLElement | null)?.blur();
        scrollTo(0, 0);
      });
      const box = await tab.locator(`#check-${SHOWN}`).boundingBox();
      const path = join(ROOT, 'docs', name);
      const clip = { x: 0, y: 0, width: WIDTH, height: Math.ceil((box?.y ?? 0) + (box?.height ?? 0)) + 4 };
      writeFileSync(path, await withPalette(browser, await tab.screenshot({ clip, fullPage: true })));
      if (errors.length > 0) throw new Error(errors.join('\n'));
      console.log(`docs/${name}: ${statSync(path).size} bytes`);
    }
  } finally {
    await browser.close();
  }
}

/** Returns the same picture with a palette. The browser reads what it has written. */
async function withPalette(browser: Browser, png: Buffer): Promise<Buffer> {
  const tab = await browser.newPage();
  const { width, height, pixels } = await tab.evaluate(
    async (url) => {
      const bitmap = await createImageBitmap(await (await fetch(url)).blob());
      const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d');
      context?.drawImage(bitmap, 0, 0);
      const data = context?.getImageData(0, 0, bitmap.width, bitmap.height).data ?? new Uint8ClampedArray();
      const blob = new Blob([data]);
      const text = await new Promise<string>((resolve) => {
        const reader = new FileReader();
        reader.addEventListener('load', () => resolve(String(reader.result)));
        reader.readAsDataURL(blob);
      });
      return { width: bitmap.width, height: bitmap.height, pixels: text.slice(text.indexOf(',') + 1) };
    },
    `data:image/png;base64,${png.toString('base64')}`,
  );
  await tab.close();
  return palettePng(width, height, Buffer.from(pixels, 'base64'));
}

try {
  await draw(await probed());
} finally {
  rmSync(folder, { recursive: true });
}
