// The page of a run in a real browser.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { compareReports } from '../../../src/probe/report/compare.js';
import { histogram } from '../../../src/probe/report/histogram.js';
import { probePage } from '../../../src/probe/report/page.js';
import { probeReport } from '../../../src/probe/report/report.js';
import type { ProbeRun } from '../../../src/probe/report/run.js';
import { contrast, launchBrowser, openFile, overlaps } from '../../kit/browser.js';
import { eventually } from '../../kit/eventually.js';
import { describeIf, programPrivilege } from '../../kit/privileges.js';
import { cardRun, doubleRun } from './runs.js';

/** A run with a deviation, a failure, a check that did not run, and measurements that differ. */
async function mixedRun(): Promise<ProbeRun> {
  const [run, other] = [await doubleRun('migReqZero'), await doubleRun('cnpFlood')];
  const ack_generation = Array.from({ length: 100 }, (_, i) => 1000 + i * i);
  const results = run.results.map((result) => {
    if (result.name === 'cnp') return other.results.find(({ name }) => name === 'cnp') ?? result;
    if (result.name === 'ack-request') return { ...result, measurements: { ack_generation } };
    if (result.name !== 'atomic-values') return result;
    return { ...result, verdict: 'not reachable' as const, text: 'start <ib_atomic_bw> & wait', evidence: [] };
  });
  return { ...run, results };
}

test('a histogram has a bar for each range of values, and none if all are the same', () => {
  const of = { unit: 'ns', count: 3, min: 10, median: 10, p99: 20, max: 20 } as const;
  expect(histogram('t', [10, 10, 20], of).match(/<rect [^>]*><title>\d values/g)).toHaveLength(2);
  expect(histogram('t', [10, 10, 20], of)).toContain('<title>2 values</title>');
  expect(histogram('t', [10, 10, 20], of)).not.toContain('logarithmic');
  expect(histogram('t', [10, 10, 2000], { ...of, max: 2000, p99: 2000 })).toContain('logarithmic');
  expect(histogram('t', [10], { ...of, count: 1, max: 10 })).toBe('');
});

describeIf(programPrivilege('chromium'), 'the page of a run', () => {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-report-'));
  const errors: string[] = [];
  let browser: Browser;

  beforeAll(async () => {
    browser = await launchBrowser();
  }, 60_000);

  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true });
  });

  function open(html: string): Promise<Page> {
    const path = join(folder, 'page.html');
    writeFileSync(path, html);
    return openFile(browser, path, errors);
  }

  const visible = (page: Page) => page.locator('.check:visible').count();

  test('shows each check with its verdict, and hides those of a verdict', async () => {
    const run = await mixedRun();
    const page = await open(probePage(run));
    expect(await visible(page)).toBe(run.results.length);
    expect(await page.textContent('#check-cnp summary')).toMatch(/^48cnpfails.*20 CNPs for 20 marked packets$/);
    expect(await page.textContent('#check-atomic-values .text')).toBe('start <ib_atomic_bw> & wait');
    await page.uncheck('#verdicts input[value=pass]');
    expect(await visible(page)).toBe(3);
    await page.uncheck('#verdicts input[value=not-reachable]');
    expect(await visible(page)).toBe(2);
    expect(errors).toEqual([]);
  });

  test('a run that ended early says why at the top', async () => {
    const run = await mixedRun();
    const page = await open(probePage({ ...run, ended: 'stopped by <SIGINT>' }));
    expect(await page.textContent('#ended')).toBe('The run has ended early: stopped by <SIGINT>');
    expect(await (await open(probePage(run))).locator('#ended').count()).toBe(0);
  });

  test('shows a cell for each check at the top, and failures before deviations, with links', async () => {
    const run = await mixedRun();
    const page = await open(probePage(run));
    expect(await page.locator('#overview a').count()).toBe(run.results.length);
    expect(await page.locator('#overview .fails').getAttribute('title')).toBe('48 cnp: fails');
    const findings = page.locator('section[aria-labelledby=findings] li');
    expect(await findings.allTextContents()).toEqual([
      '48cnpfails20 CNPs for 20 marked packets',
      expect.stringMatching(/^4migreqdeviates\d+ of \d+ packets have MigReq 0, .*known of rxe, E810$/),
    ]);
    await findings.locator('a').first().click();
    await page.locator('#check-cnp dl').waitFor();
    const clean = await open(probePage(await doubleRun()));
    expect(await clean.textContent('section[aria-labelledby=findings]')).toBe(
      'FindingsEvery check that applies passes.',
    );
    expect(errors).toEqual([]);
  });

  test('scrolls a linked check below the tools, however many lines they need', async () => {
    const page = await open(probePage(await mixedRun()));
    for (const width of [420, 1000]) {
      await page.setViewportSize({ width, height: 700 });
      // the tools have their new height with the next frame
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
      await page.keyboard.press('p');
      await page.keyboard.press('n');
      const edges = () =>
        page.evaluate(() => {
          const check = document.activeElement?.getBoundingClientRect().top ?? 0;
          return check - (document.getElementById('tools')?.getBoundingClientRect().bottom ?? 0);
        });
      await eventually(async () => expect(await edges()).toBeGreaterThan(0));
    }
    expect(errors).toEqual([]);
  });

  test('moves by keys from finding to finding; a check shows the packets sent, and its ladder', async () => {
    const page = await open(probePage(await mixedRun()));
    const focused = () => page.evaluate(() => document.activeElement?.closest('details')?.id);
    await page.keyboard.press('n');
    expect(await focused()).toBe('check-migreq');
    expect(await page.textContent('#check-migreq dl')).toContain('rxe, E810: MigReq is 0');
    await page.keyboard.press('n');
    expect(await focused()).toBe('check-cnp');
    const ladder = page.frameLocator('#check-cnp iframe');
    expect(await ladder.locator('#summary').textContent()).toContain('63 of 63 packets');
    expect(await ladder.locator('h1').textContent()).toBe('48 cnp');
    // the ladder that was loaded did not take the focus
    expect(await focused()).toBe('check-cnp');
    await page.keyboard.press('p');
    expect(await focused()).toBe('check-migreq');
    await page.keyboard.press('Enter');
    expect(await page.locator('#check-migreq dl').isVisible()).toBe(false);
    await page.keyboard.press('Enter');
    // the frame is part of the page's order, and its keys are the ladder's
    await page.keyboard.press('Tab');
    await ladder.locator('#ladder').press('End');
    expect(await ladder.locator('#details h2').textContent()).toBe('Packet 63');
    expect(errors).toEqual([]);
  });

  test('only ladders in view are loaded, and follow light and dark', async () => {
    const page = await open(probePage(await mixedRun()));
    await page.keyboard.press('o');
    await page.waitForSelector('iframe');
    expect(await page.locator('iframe').count()).toBeLessThan(8);
    const ladder = page.frameLocator('iframe >> nth=0');
    await ladder.locator('body[data-ready]').waitFor();
    const grounds = () =>
      Promise.all(
        [page.locator('body'), ladder.locator('body')].map((body) =>
          body.evaluate((each) => getComputedStyle(each).backgroundColor),
        ),
      );
    const [light, lightFrame] = await grounds();
    expect(lightFrame).toBe(light);
    await ladder.locator('body:not([inert])').waitFor();
    await page.keyboard.press('t');
    const [dark, darkFrame] = await grounds();
    expect(dark).not.toBe(light);
    expect(darkFrame).toBe(dark);
    expect(errors).toEqual([]);
  });

  test('opens a check by its link, and shows the distribution of measurements', async () => {
    const page = await open(probePage(await mixedRun()));
    const row = page.locator('.figures tr', { hasText: 'ack_generation' });
    expect(await row.locator('td').allTextContents()).toEqual([
      ...['13 ack-request', '100', '1 µs', '3.45 µs', '10.6 µs', '10.8 µs'],
    ]);
    await row.locator('a').click();
    await page.locator('#check-ack-request svg').waitFor();
    expect(await page.textContent('#check-ack-request figcaption')).toContain('median 3.45 µs');
    expect(errors).toEqual([]);
  });

  test('shows the comparison with an earlier run if there is one', async () => {
    const [run, before] = [await mixedRun(), probeReport(await doubleRun())];
    const page = await open(probePage(run, { comparison: compareReports(before, probeReport(run)) }));
    const text = await page.textContent('section[aria-labelledby=compared]');
    expect(text).toMatch(/worse: migreq: pass → deviates: \d+ of \d+ packets have MigReq 0/);
    expect(text).toContain('worse: cnp: pass → fails: 20 CNPs for 20 marked packets');
    expect(await (await open(probePage(run))).locator('#compared').count()).toBe(0);
  });

  test('names the probable peer, and the reasons', async () => {
    const page = await open(probePage(await cardRun(true)));
    expect(await page.textContent('#peer')).toBe('Probably wasm-roce');
    const row = page.locator('.evidence tr', { hasText: 'Linux rxe' });
    expect(await row.isVisible()).toBe(false);
    await page.click('.why summary');
    expect(await row.locator('td').last().allInnerTexts()).toEqual([expect.stringContaining('MigReq: 1')]);
    expect(errors).toEqual([]);
  });

  test('has nothing wider than the window, and no overlaps, light and dark, narrow and wide', async () => {
    const page = await open(probePage(await mixedRun()));
    await page.click('.why summary');
    await page.keyboard.press('n');
    await page.keyboard.press('n');
    await page.evaluate(() => scrollTo(0, 0));
    for (const width of [360, 500, 700, 1200]) {
      await page.setViewportSize({ width, height: 700 });
      const inside = ['dl > div', 'figure', 'iframe', 'td', 'th'].map((part) => `[open] ${part}`);
      const parts = [
        '#tools button',
        '#verdicts label',
        'h1',
        '#about',
        '#overview a',
        'li > *',
        'summary > *',
        ...inside,
      ];
      await page.evaluate(() => document.getElementById('tools')?.style.setProperty('position', 'static'));
      expect(await overlaps(page, parts.join(', '))).toEqual({ over: 0, wide: false });
    }
    const colours = ['--text', '--faint', '--write', '--atomic', '--trouble', '--send'];
    for (const theme of ['', 'dark'])
      expect(await contrast(page, theme, ['--ground', '--panel'], colours)).toBeGreaterThan(4.5);
    expect(errors).toEqual([]);
  });
});
