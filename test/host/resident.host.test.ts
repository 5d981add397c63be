/** The system provides the memory that a card uses, and no more. */
import { expect, test } from 'vitest';
import { CARD_DEFAULTS, Card } from '../../src/device/card.js';

const CARDS = 8;
const REGION_BYTES = 16 * 2 ** 20;

test('memory that was never written to is not resident', async () => {
  const create = () => Card.create({ ...CARD_DEFAULTS, seed: new Uint8Array(32) });
  const cards = [await create()];
  const before = process.memoryUsage.rss();
  while (cards.length <= CARDS) {
    const card = await create();
    expect(card.exports.memAlloc(REGION_BYTES)).toBeGreaterThan(0);
    cards.push(card);
  }
  // the rings of one alone have 5 MiB
  expect((process.memoryUsage.rss() - before) / CARDS).toBeLessThan(2 ** 20);
});
