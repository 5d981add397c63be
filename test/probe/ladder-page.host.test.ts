// The ladder's page in a real browser.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { analyse } from '../../src/probe/ladder/analysis.js';
import { ladderPage } from '../../src/probe/ladder/page.js';
import { encodeFrame, flowOf, request } from '../../src/probe/packet/packets.js';
import { contrast, launchBrowser, openFile, overlaps } from '../kit/browser.js';
import { capturePath } from '../kit/fixtures.js';
import { describeIf, programPrivilege } from '../kit/privileges.js';

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));

describeIf(programPrivilege('chromium'), 'the page of a ladder', () => {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-ladder-'));
  let browser: Browser;
  const errors: string[] = [];

  beforeAll(async () => {
    browser = await launchBrowser();
  }, 60_000);

  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true });
  });

  function open(html: string, width = 1200): Promise<Page> {
    const path = join(folder, 'page.html');
    writeFileSync(path, html);
    return openFile(browser, path, errors, { width, height: 700 });
  }

  test('the command writes the page, and its keys go from trouble to trouble', async () => {
    const path = join(folder, 'ladder.html');
    const args = [MAIN, 'ladder', capturePath('loss5_write_bw_64k'), '-o', path, '--json'];
    const report = JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' }));
    expect(report).toMatchObject({ page: path, connections: [{ pairing: { by: 'order' } }] });
    const page = await open(readFileSync(path, 'utf8'));
    expect(await page.textContent('#summary')).toContain(
      `${report.packets} of ${report.packets} packets, ${report.troubles} with trouble`,
    );
    await page.keyboard.press('n');
    const first = await page.textContent('#details h2');
    expect(await page.textContent('#details .note')).not.toBe('');
    await page.keyboard.press('n');
    expect(await page.textContent('#details h2')).not.toBe(first);
    await page.keyboard.press('p');
    expect(await page.textContent('#details h2')).toBe(first);
    expect(await page.textContent('#details table')).toContain('bth psn');
    expect(await page.textContent('#details table')).toContain('aroundEthernet');
    expect(await page.textContent('#pairing')).toContain(report.connections[0].about);
    await page.check('#troubles');
    expect(await page.textContent('#summary')).toContain(`${report.troubles} of ${report.packets} packets`);
    expect(errors).toEqual([]);
  });

  test('of many connections the page offers those with most trouble first', async () => {
    const sends = (destQp: number, ...psns: number[]) => psns.map((psn) => capturedSend(psn, destQp));
    const page = await open(ladderPage(analyse([...sends(1, 1, 2), ...sends(2, 1, 1, 1), ...sends(3, 1, 1)]), 'many'));
    expect(await page.locator('#connection option').allTextContents()).toEqual([
      'all 3',
      '10.0.0.2 qp ? – 10.0.0.1 qp 2 (2)',
      '10.0.0.2 qp ? – 10.0.0.1 qp 3 (1)',
      '10.0.0.2 qp ? – 10.0.0.1 qp 1',
    ]);
    await page.selectOption('#connection', { index: 1 });
    expect(await page.textContent('#summary')).toContain('3 of 7 packets, 2 with trouble');
    expect(await page.textContent('#pairing')).toBe('The capture has one direction only.');
    expect(errors).toEqual([]);
  });

  test('nothing is wider than the window, and no control overlaps another, light and dark, narrow and wide', async () => {
    const page = await open(ladderPage(analyse([capturedSend(1), capturedSend(2)]), 'two'), 700);
    for (let i = 0; i < 2; i++) {
      await page.keyboard.press('t');
      for (const width of [700, 1200]) {
        await page.setViewportSize({ width, height: 700 });
        const found = await overlaps(page, '#tools select, #tools button, #kinds label');
        expect(found).toEqual({ over: 0, wide: false });
      }
    }
    // text has four and a half times the contrast of its ground, as WCAG 2 asks
    for (const theme of ['', 'dark']) expect(await contrast(page, theme)).toBeGreaterThan(4.5);
    expect(errors).toEqual([]);
  });

  test('the page draws only what is in view of a hundred thousand packets, and reaches the end', async () => {
    const packets = Array.from({ length: 100_000 }, (_, i) => capturedSend(i & 0xffffff));
    const page = await open(ladderPage(analyse(packets), 'many'));
    await page.keyboard.press('End');
    expect(await page.textContent('#details h2')).toBe('Packet 100000');
    const rows = await page.evaluate(() => {
      let count = 0;
      const fill = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (...args) {
        count++;
        fill.apply(this, args as Parameters<typeof fill>);
      };
      return new Promise<number>((resolve) => {
        dispatchEvent(new Event('resize'));
        setTimeout(() => resolve(count), 200);
      });
    });
    expect(rows).toBeGreaterThan(10);
    expect(rows).toBeLessThan(200);
    expect(errors).toEqual([]);
  }, 60_000);
});

function capturedSend(psn: number, destQp = 0x11) {
  const data = encodeFrame(flowOf({ destQp }), request.sendOnly({ psn }));
  return { time: BigInt(psn) * 1000n, data, wireLength: data.length, direction: 0 as const };
}
