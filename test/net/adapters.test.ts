/** The card with strict peers "as an adapter" over networks that lose, double, reorder and mark frames. */
import { expect, describe as group, test } from 'vitest';
import type { Trouble } from '../kit/adapter/link.js';
import { requestFrom } from './card-requests.js';
import { respondTo } from './card-responses.js';

const SEED = Number(process.env.WASM_ROCE_SEED ?? 20_261_122);
const MTUS = [256, 1024, 4096] as const;
const OPS = 40;

const NETWORKS: Readonly<Record<string, Trouble>> = {
  'without fault': {},
  'that loses': { drop: 0.05 },
  'that doubles': { duplicate: 0.2 },
  'that reorders': { reorder: 0.1 },
  'that marks': { mark: 0.2 },
  'that does all at once': { drop: 0.03, duplicate: 0.05, reorder: 0.05, mark: 0.1 },
};

group('the card as the requester of a model adapter', () => {
  test.each(Object.entries(NETWORKS))('over a network %s', async (_, trouble) => {
    for (const [i, mtu] of MTUS.entries()) await requestFrom({ seed: SEED + i, mtu, ops: OPS, trouble });
  });

  test.each(Object.entries(NETWORKS))('with credits over a network %s', async (_, trouble) => {
    for (const [i, mtu] of MTUS.entries())
      await requestFrom({ seed: SEED + 10 + i, mtu, ops: OPS, trouble, credits: true });
  });

  test.each(Object.entries(NETWORKS))('from memory on demand over a network %s', async (_, trouble) => {
    for (const [i, mtu] of MTUS.entries())
      await requestFrom({ seed: SEED + 20 + i, mtu, ops: OPS, trouble, adapter: { onDemand: true } });
  });

  test('across the end of the PSNs', async () => {
    for (let i = 0; i < 5; i++)
      await requestFrom({ seed: SEED + 30 + i, mtu: 256, ops: OPS, psn: 0xffffc0, trouble: { drop: 0.05 } });
  });

  test('a sequence NAK is answered before anything new is sent, even if ACKs are late', async () => {
    const adapter = { onDemand: true, ackEvery: 5, ackDelay: 20_546, rnrTimer: 1 };
    await requestFrom({
      seed: 1680,
      mtu: 1024,
      ops: 37,
      trouble: { drop: 0.07802106142044068 },
      credits: true,
      adapter,
    });
  });

  test('and the adapter does what its model is for', async () => {
    const run = { seed: SEED, mtu: 1024, ops: OPS };
    const { counts, counters } = await requestFrom({
      ...run,
      trouble: { drop: 0.05, reorder: 0.05, mark: 0.3 },
      adapter: { onDemand: true },
    });
    expect(Object.entries(counts).filter(([, count]) => count === 0)).toEqual([]);
    expect(counters.rp_cnp_handled).toBeGreaterThan(0);
    expect(counters.rcvd_rnr_err).toBeGreaterThan(0);
  });
});

group.each([
  ['drops requests ahead of a gap', false],
  ['keeps requests ahead of a gap', true],
])('the card as the responder, and %s', (_, keeps) => {
  test.each(Object.entries(NETWORKS))('over a network %s', async (_, trouble) => {
    for (const [i, mtu] of MTUS.entries()) await respondTo({ keeps, seed: SEED + 40 + i, mtu, ops: OPS, trouble });
  });

  test.each(Object.entries(NETWORKS))('with credits over a network %s', async (_, trouble) => {
    for (const [i, mtu] of MTUS.entries())
      await respondTo({ keeps, seed: SEED + 50 + i, mtu, ops: OPS, trouble, credits: true });
  });

  test('across the end of the PSNs', async () => {
    for (let i = 0; i < 5; i++)
      await respondTo({ keeps, seed: SEED + 60 + i, mtu: 256, ops: OPS, psn: 0xffffc0, trouble: { drop: 0.05 } });
  });

  test('and the adapter does what its model is for', async () => {
    const trouble = { drop: 0.05, reorder: 0.05, mark: 0.3 };
    const { counts } = await respondTo({ keeps, seed: SEED, mtu: 1024, ops: 300, trouble });
    expect(Object.entries(counts).filter(([, count]) => count === 0)).toEqual([]);
  });
});

test.each([0.03, 0.1, 0.2])('rxe gets no ACK of a packet that it is about to send again: %s lost', async (drop) => {
  for (let i = 0; i < 12; i++)
    await respondTo({ keeps: true, rxe: true, seed: SEED + 80 + i, mtu: 256, ops: OPS, trouble: { drop } });
});
