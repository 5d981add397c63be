// The playground's page in a real browser, from a file.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { contrast, launchBrowser, openFile, overlaps } from '../kit/browser.js';
import { describeIf, programPrivilege } from '../kit/privileges.js';

describeIf(programPrivilege('chromium'), 'the page of the playground', () => {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-playground-'));
  const path = join(folder, 'playground.html');
  let browser: Browser;
  const errors: string[] = [];

  beforeAll(async () => {
    const script = '../../scripts/playground.mjs';
    const { playgroundPage } = (await import(script)) as { playgroundPage(): Promise<string> };
    writeFileSync(path, await playgroundPage());
    browser = await launchBrowser();
  }, 60_000);

  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true });
    // one test posts no receives, of which the card warns if that takes a second
    expect(errors.filter((text) => !text.startsWith('WASM_ROCE_NO_RECEIVE: '))).toEqual([]);
  });

  /** Opens the page, connected, with time as fast as possible. */
  async function open(viewport = { width: 1280, height: 800 }): Promise<Page> {
    const page = await openFile(browser, path, errors, viewport);
    await waitForText(page, '#status', 'Connected');
    await slide(page, 'speed', 'as fast as possible');
    return page;
  }

  const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();

  /** Moves a slider by the keyboard until it says this. */
  async function slide(page: Page, id: string, text: string): Promise<void> {
    await page.focus(`#${id}`);
    await page.keyboard.press('Home');
    for (let i = 0; (await page.textContent(`output[for="${id}"]`)) !== text; i++) {
      if (i > 60) throw new Error(`the slider ${id} never says ${text}`);
      await page.keyboard.press('ArrowRight');
    }
  }

  async function waitForText(page: Page, selector: string, text: string): Promise<void> {
    await page.waitForFunction(([of, what]) => document.querySelector(of)?.textContent?.includes(what), [
      selector,
      text,
    ] as const);
  }

  /** Does an operation and returns what the page says of it. */
  async function does(page: Page, operation: string): Promise<string> {
    const count = await page.locator('#outcomes li').count();
    await button(page, operation);
    await page.waitForFunction((before) => document.querySelectorAll('#outcomes li').length > before, count);
    return (await page.textContent('#outcomes li:first-child')) ?? '';
  }

  async function counter(page: Page, name: string): Promise<[number, number]> {
    const cells = await page.locator(`#counters tr[data-name="${name}"] td`).allTextContents();
    return [Number(cells[0]), Number(cells[1])];
  }

  test('each operation completes, and its bytes are at the other end', async () => {
    const page = await open();
    await waitForText(page, '#end0', 'RTS');
    await page.fill('#text', 'sent by A. ');
    expect(await does(page, 'SEND')).toMatch(/A to B: SEND, 4 KiB SUCCESS.*every byte is there$/);
    await waitForText(page, '#end1', 'last SENDsent by A. sent by A. ');
    await page.fill('#text', 'with a number. ');
    expect(await does(page, 'SEND with immediate')).toMatch(/SUCCESS.*every byte is there, immediate 2$/);
    await waitForText(page, '#end1', 'last SENDwith a number. ');
    await page.fill('#text', 'written by B. ');
    await page.selectOption('#from', 'B to A');
    expect(await does(page, 'WRITE')).toMatch(/B to A: WRITE, 4 KiB SUCCESS.*every byte is there$/);
    await waitForText(page, '#end0', 'last WRITEwritten by B. ');
    await page.selectOption('#size', '256 KiB');
    expect(await does(page, 'READ')).toMatch(/READ, 256 KiB SUCCESS.*every byte is there$/);
    expect(await does(page, 'FETCH ADD')).toMatch(/FETCH ADD SUCCESS.*the counter was 0$/);
    await waitForText(page, '#end0', 'counter1');
    expect(await counter(page, 'link.tx_lost')).toEqual([0, 0]);
  });

  test('with a fifth of the packets lost the ladder shows retransmissions, and every byte arrives', async () => {
    const page = await open();
    await slide(page, 'loss', '20 %');
    await page.selectOption('#size', '64 KiB');
    expect(await does(page, 'WRITE')).toMatch(/SUCCESS.*every byte is there$/);
    expect((await counter(page, 'link.tx_lost'))[0]).toBeGreaterThan(0);
    expect((await counter(page, 'retransmits'))[0]).toBeGreaterThan(0);
    await page.focus('#ladder');
    const notes = new Set<string>();
    for (let i = 0; i < 30; i++) {
      await page.keyboard.press('n');
      notes.add(((await page.textContent('#details .note')) ?? '').split(/[.:]/)[0] as string);
    }
    expect([...notes]).toEqual(expect.arrayContaining(['The network loses this packet', 'Retransmission']));
    expect(await page.textContent('#details table')).toContain('bth psn');
  });

  test('the sliders take effect', async () => {
    const page = await open();
    const ms = (text: string) => Number(/([\d.]+) ms/.exec(text)?.[1]);
    expect(ms(await does(page, 'WRITE'))).toBeLessThan(3);
    await slide(page, 'window', '1 packet');
    await waitForText(page, '#end0', 'window 1round trip');
    expect(ms(await does(page, 'WRITE'))).toBeGreaterThan(8);
    await slide(page, 'delay', '10 ms');
    expect(ms(await does(page, 'WRITE'))).toBeGreaterThan(80);
    await slide(page, 'window', 'no limit');
    await slide(page, 'mtu', '256 bytes');
    await waitForText(page, '#status', 'Connected, path MTU 256 bytes.');
    const before = (await counter(page, 'sent_pkts'))[0];
    await does(page, 'WRITE');
    expect((await counter(page, 'sent_pkts'))[0]).toBe(before + 16);
    await slide(page, 'reorder', '30 %');
    await page.selectOption('#size', '64 KiB');
    expect(await does(page, 'WRITE')).toContain('every byte is there');
    expect((await counter(page, 'rx_reordered'))[1]).toBeGreaterThan(0);
  });

  test('the page explains no receive, a wrong key and a reset, and connects again', async () => {
    const page = await open();
    await page.uncheck('#receives');
    // those that were posted before are still there
    await button(page, 'Reset');
    await waitForText(page, '#status', 'Not connected.');
    await button(page, 'SEND');
    await waitForText(page, '#status', 'EINVAL');
    await button(page, 'Connect');
    await waitForText(page, '#status', 'Connected');
    await button(page, 'SEND');
    await page.waitForFunction(
      () => Number(document.querySelector('[data-name="rcvd_rnr_err"] td')?.textContent ?? 0) > 3,
    );
    await page.check('#receives');
    await waitForText(page, '#outcomes', 'every byte is there');
    await page.check('#wrongkey');
    expect(await does(page, 'WRITE')).toContain('REM_ACCESS_ERR');
    await waitForText(page, '#status', 'Connect again.');
    await page.uncheck('#wrongkey');
    await button(page, 'Connect');
    await waitForText(page, '#status', 'Connected');
    expect(await does(page, 'WRITE')).toContain('every byte is there');
  });

  test('time stands still in a pause, and a step goes to the next event', async () => {
    const page = await open();
    await button(page, 'Pause');
    await button(page, 'WRITE');
    const time = await page.textContent('#time');
    for (let packets = 1; packets <= 4; packets++) {
      await button(page, 'Step');
      await waitForText(page, '#summary', `${packets} packets, 0 with trouble`);
    }
    expect(await page.textContent('#time')).not.toBe(time);
    expect(await page.locator('#outcomes li').count()).toBe(0);
    await button(page, 'Go on');
    await waitForText(page, '#outcomes', 'every byte is there');
    await button(page, 'Clear');
    await waitForText(page, '#summary', '0 packets');
  });

  test('nothing overlaps, and text is legible, wide and narrow, light and dark', async () => {
    const page = await open();
    await does(page, 'WRITE');
    const controls = '#controls button, #controls select, #controls label, #tools label, #tools button, #legend li';
    for (const [width, height] of [
      [1280, 800],
      [800, 1000],
      [420, 900],
    ] as const) {
      await page.setViewportSize({ width, height });
      expect(await overlaps(page, controls), `${width}`).toEqual({ over: 0, wide: false });
      expect(await overlaps(page, '.end, #line'), `${width}`).toEqual({ over: 0, wide: false });
      expect((await page.locator('#ladder').boundingBox())?.height).toBeGreaterThan(200);
    }
    for (const theme of ['', 'dark']) expect(await contrast(page, theme, ['--ground', '--panel'])).toBeGreaterThan(4.5);
  });

  test('every control has a name and is reached by keyboard, with a visible focus', async () => {
    const page = await open();
    await page.click('h1');
    const names: string[] = [];
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press('Tab');
      const found = await page.evaluate(() => {
        const at = document.activeElement as HTMLInputElement;
        if (at === document.body) return undefined;
        const label = at.getAttribute('aria-label') ?? at.labels?.[0]?.textContent ?? at.textContent ?? '';
        return { name: label.trim(), isSeen: getComputedStyle(at).outlineStyle !== 'none' };
      });
      if (found === undefined) break;
      expect(found.name).not.toBe('');
      expect(found.isSeen, found.name).toBe(true);
      names.push(found.name);
    }
    for (const name of ['SEND', 'READ', 'Loss', 'Path MTU', 'Connect', 'Speed', 'Pause', 'Only troubles', 'Counters'])
      expect(names).toContain(name);
    expect(names.indexOf('SEND')).toBeLessThan(names.indexOf('Loss'));
    await page.focus('#operations button');
    await page.keyboard.press('Enter');
    await waitForText(page, '#outcomes', 'every byte is there');
  });
});
